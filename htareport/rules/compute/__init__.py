"""Rules about compute kernels."""
