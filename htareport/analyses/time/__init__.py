"""Analyses of the chapter Time."""
