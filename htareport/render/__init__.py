"""Report → files and notebook cells. A renderer reads the report and nothing else."""
