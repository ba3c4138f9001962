"""Queue lengths and memory bandwidth over time, as class methods."""

from __future__ import annotations

from htareport.hta.analyzers.delegate import of_trace
from htareport.hta.counters import summary_of_queues
from htareport.hta.trace_analysis import TraceAnalysis


class TraceCounters:
    """See the methods of TraceAnalysis."""

    get_queue_length_time_series = of_trace(TraceAnalysis.get_queue_length_time_series)
    get_queue_length_summary = of_trace(TraceAnalysis.get_queue_length_summary)
    get_queue_length_summary_from_time_series = staticmethod(summary_of_queues)
    get_time_spent_blocked_on_full_queue = of_trace(TraceAnalysis.get_time_spent_blocked_on_full_queue)
    get_memory_bw_time_series = of_trace(TraceAnalysis.get_memory_bw_time_series)
    get_memory_bw_summary = of_trace(TraceAnalysis.get_memory_bw_summary)
