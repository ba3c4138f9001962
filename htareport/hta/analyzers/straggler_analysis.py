"""Stragglers, as class methods."""

from __future__ import annotations

from typing import Any

from htareport.hta.common.trace import Trace
from htareport.hta.trace_analysis import TraceAnalysis


class StragglerAnalysis:
    """See TraceAnalysis for what each answers."""

    @classmethod
    def get_profiler_steps(cls, t: Trace) -> list[int]:
        """Numbers of the profiler steps."""
        return TraceAnalysis.of(t).get_profiler_steps()

    @classmethod
    def get_potential_stragglers(cls, t: Trace, **options: Any) -> list[int]:
        """Ranks that are late to collectives."""
        return TraceAnalysis.of(t).get_potential_stragglers(**options)
