"""HTA's helpers: checks of folders and traces, classes and short names of kernels."""
