"""Analyses of the chapter Memory."""
