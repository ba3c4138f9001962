"""The facts of all ranks together: matched collectives, clocks, arrivals."""
