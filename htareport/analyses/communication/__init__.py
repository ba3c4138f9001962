"""Analyses of the chapter Communication."""
