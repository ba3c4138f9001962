"""Breakdowns of time and of kernels, as class methods."""

from __future__ import annotations

from typing import Any

import pandas as pd

from htareport.hta.common.trace import Trace
from htareport.hta.trace_analysis import TraceAnalysis


class BreakdownAnalysis:
    """See TraceAnalysis for what each answers."""

    @classmethod
    def get_gpu_kernel_breakdown(cls, t: Trace, **options: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Time by kernel type, and statistics by kernel and rank."""
        return TraceAnalysis.of(t).get_gpu_kernel_breakdown(**options)

    @classmethod
    def get_gpu_kernels_with_user_annotations(
        cls, t: Trace, rank: int, expand_names: bool = True, shorten_names: bool = True
    ) -> pd.DataFrame | None:
        """Device work with the annotation that it belongs to."""
        return TraceAnalysis.of(t).get_gpu_kernels_with_user_annotations(rank, expand_names, shorten_names)

    @classmethod
    def get_gpu_user_annotation_breakdown(cls, t: Trace, **options: Any) -> pd.DataFrame | None:
        """Statistics of annotations."""
        return TraceAnalysis.of(t).get_gpu_user_annotation_breakdown(**options)

    @classmethod
    def get_temporal_breakdown(cls, t: Trace, visualize: bool = False) -> pd.DataFrame:
        """Compute, communication, memory and idle time."""
        return TraceAnalysis.of(t).get_temporal_breakdown(visualize)

    @classmethod
    def get_idle_time_breakdown(
        cls, t: Trace, consecutive_kernel_delay: float = 30, rank: int = 0, **options: Any
    ) -> tuple[pd.DataFrame, pd.DataFrame | None]:
        """Idle time of a rank's streams by cause."""
        options |= {"ranks": [rank], "consecutive_kernel_delay": consecutive_kernel_delay}
        return TraceAnalysis.of(t).get_idle_time_breakdown(**options)
