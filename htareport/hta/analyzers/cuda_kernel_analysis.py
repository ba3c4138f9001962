"""Launches and sequences of kernels, as class methods."""

from __future__ import annotations

from htareport.hta.analyzers.delegate import of_trace
from htareport.hta.trace_analysis import TraceAnalysis


class CudaKernelAnalysis:
    """See the methods of TraceAnalysis."""

    get_frequent_cuda_kernel_sequences = of_trace(TraceAnalysis.get_frequent_cuda_kernel_sequences)
    get_aten_op_kernels_and_delay = of_trace(TraceAnalysis.get_aten_op_kernels_and_delay)
    cuda_kernel_launch_stats = of_trace(TraceAnalysis.get_cuda_kernel_launch_stats)
