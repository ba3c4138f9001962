"""The critical path of a stretch of one rank: its graph, and what the path consists of."""
