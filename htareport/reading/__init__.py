"""Trace files → rows of one rank."""
