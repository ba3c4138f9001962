"""Queue lengths and memory bandwidth over time, as class methods."""

from __future__ import annotations

import pandas as pd

from htareport.hta.common.constants import CUDA_MAX_LAUNCH_QUEUE_PER_STREAM
from htareport.hta.common.trace import Trace
from htareport.hta.counters import summary_of_queues
from htareport.hta.trace_analysis import TraceAnalysis


class TraceCounters:
    """See TraceAnalysis for what each answers."""

    @classmethod
    def get_queue_length_time_series(cls, t: Trace, ranks: list[int] | None = None) -> dict[int, pd.DataFrame]:
        """Length of each stream's queue after each change."""
        return TraceAnalysis.of(t).get_queue_length_time_series(ranks)

    @classmethod
    def get_queue_length_summary(cls, t: Trace, ranks: list[int] | None = None) -> pd.DataFrame | None:
        """Statistics of it."""
        return TraceAnalysis.of(t).get_queue_length_summary(ranks)

    @classmethod
    def get_queue_length_summary_from_time_series(
        cls, queue_length_dict: dict[int, pd.DataFrame]
    ) -> pd.DataFrame | None:
        """The same from series that are there already."""
        return summary_of_queues(queue_length_dict)

    @classmethod
    def get_time_spent_blocked_on_full_queue(
        cls,
        t: Trace,
        queue_length_dict: dict[int, pd.DataFrame],
        max_queue_length: int = CUDA_MAX_LAUNCH_QUEUE_PER_STREAM,
    ) -> pd.DataFrame:
        """Time for which each stream's queue is full."""
        return TraceAnalysis.of(t).get_time_spent_blocked_on_full_queue(queue_length_dict, max_queue_length)

    @classmethod
    def get_memory_bw_time_series(cls, t: Trace, ranks: list[int] | None = None) -> dict[int, pd.DataFrame]:
        """Summed bandwidth of concurrent copies after each change."""
        return TraceAnalysis.of(t).get_memory_bw_time_series(ranks)

    @classmethod
    def get_memory_bw_summary(cls, t: Trace, ranks: list[int] | None = None) -> pd.DataFrame | None:
        """Statistics of it."""
        return TraceAnalysis.of(t).get_memory_bw_summary(ranks)
