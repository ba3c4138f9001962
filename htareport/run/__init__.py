"""Runs analyses and rules over all ranks: workers, what they may send, and their cache."""
