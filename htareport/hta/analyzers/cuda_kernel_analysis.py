"""Launches and sequences of kernels, as class methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from htareport.hta.common.trace import Trace
from htareport.hta.trace_analysis import TraceAnalysis


class CudaKernelAnalysis:
    """See TraceAnalysis for what each answers."""

    @classmethod
    def get_frequent_cuda_kernel_sequences(
        cls, t: Trace, operator_name: str, output_dir: str = "", **options: Any
    ) -> pd.DataFrame:
        """Sequences of kernels under an operator."""
        return TraceAnalysis.of(t).get_frequent_cuda_kernel_sequences(operator_name, output_dir, **options)

    @classmethod
    def get_aten_op_kernels_and_delay(
        cls, trace: Trace, ranks: list[int] | None = None, sort_by: Sequence[str] | None = None
    ) -> dict[int, pd.DataFrame]:
        """Kernels launched by each aten:: operator, with delays."""
        return TraceAnalysis.of(trace).get_aten_op_kernels_and_delay(ranks, sort_by)

    @classmethod
    def cuda_kernel_launch_stats(cls, t: Trace, **options: Any) -> dict[int, pd.DataFrame]:
        """Launches with the durations of both sides, and their delay."""
        return TraceAnalysis.of(t).get_cuda_kernel_launch_stats(**options)
