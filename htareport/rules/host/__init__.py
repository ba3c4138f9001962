"""Rules about the host and idle time."""
