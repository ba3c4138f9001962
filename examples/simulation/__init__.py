"""A small simulation of a data-parallel training job on four GPUs; `make_traces.py` writes down what it does."""
