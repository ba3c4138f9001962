"""Analyses of the chapter Data quality."""
