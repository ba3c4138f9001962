"""Writes copies of trace files with counters, a critical path or sequences of kernels added.

Architecture invariants: a copy is never written among the traces it is made of, and says in its metadata that it is
one, so that it is taken for a rank only where there are no other traces. What is not added or marked keeps its exact
text, so a copy loads with the numbers of the original.
"""
