"""Analyses of the chapter Ranks."""
