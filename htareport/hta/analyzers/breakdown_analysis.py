"""Breakdowns of time and of kernels, as class methods."""

from __future__ import annotations

import pandas as pd

from htareport.hta.analyzers.delegate import of_trace
from htareport.hta.common.trace import Trace
from htareport.hta.trace_analysis import TraceAnalysis


class BreakdownAnalysis:
    """See the methods of TraceAnalysis."""

    get_gpu_kernel_breakdown = of_trace(TraceAnalysis.get_gpu_kernel_breakdown)
    get_gpu_kernels_with_user_annotations = of_trace(TraceAnalysis.get_gpu_kernels_with_user_annotations)
    get_gpu_user_annotation_breakdown = of_trace(TraceAnalysis.get_gpu_user_annotation_breakdown)
    get_temporal_breakdown = of_trace(TraceAnalysis.get_temporal_breakdown)

    @classmethod
    def get_idle_time_breakdown(
        cls,
        t: Trace,
        consecutive_kernel_delay: float = 30,
        rank: int = 0,
        streams: list[int] | None = None,
        visualize: bool = False,
        visualize_pctg: bool = True,
        show_idle_interval_stats: bool = False,
    ) -> tuple[pd.DataFrame, pd.DataFrame | None]:
        """Idle time of a rank's streams by cause; `consecutive_kernel_delay` is in µs."""
        analysis = TraceAnalysis.from_trace(t)
        return analysis.get_idle_time_breakdown(
            [rank], streams, visualize, visualize_pctg, show_idle_interval_stats, consecutive_kernel_delay
        )
