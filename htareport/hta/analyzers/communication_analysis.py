"""Communication under compute, as a class method."""

from __future__ import annotations

from htareport.hta.analyzers.delegate import of_trace
from htareport.hta.trace_analysis import TraceAnalysis


class CommunicationAnalysis:
    """See the method of TraceAnalysis."""

    get_comm_comp_overlap = of_trace(TraceAnalysis.get_comm_comp_overlap)
