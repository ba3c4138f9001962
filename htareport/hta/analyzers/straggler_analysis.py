"""Stragglers, as class methods."""

from __future__ import annotations

from htareport.hta.analyzers.delegate import of_trace
from htareport.hta.trace_analysis import TraceAnalysis


class StragglerAnalysis:
    """See the methods of TraceAnalysis."""

    get_profiler_steps = of_trace(TraceAnalysis.get_profiler_steps)
    get_potential_stragglers = of_trace(TraceAnalysis.get_potential_stragglers)
