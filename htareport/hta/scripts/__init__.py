"""HTA's scripts, run with `python -m`."""
