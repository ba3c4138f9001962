"""Where trace files are: folders, archives, URLs; which files are traces, and of which rank."""
