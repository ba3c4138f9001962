"""Runs analyses and rules over all ranks: workers, the size of their summaries, and the cache of these."""
