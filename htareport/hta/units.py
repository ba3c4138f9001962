"""Times of HTA are µs, ours are ns."""

PER_US = 1000.0
