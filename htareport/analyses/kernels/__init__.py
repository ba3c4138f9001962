"""Analyses of the chapter Kernels."""
