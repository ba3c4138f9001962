"""Analyses of the chapter Host."""
