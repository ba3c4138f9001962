"""A trace to copy."""

from __future__ import annotations

import pytest
from builder import TraceBuilder


@pytest.fixture
def two_steps():
    """Two steps of 100 µs: an operator (20), a gemm launched at 5 that runs 30 to 70, a wait for it until 80, a copy.

    The gemm of step n waits on stream 7; the copy, launched at 85, runs 90 to 95 at 8 GB/s on stream 9.
    """
    trace = TraceBuilder(0)
    for step in range(2):
        at = 100 * step
        trace.step(step, at, 100).cpu_op("aten::mm", at, 20)
        trace.kernel("gemm", at + 30, 40, launch=(at + 5, 2))
        trace.runtime("cudaDeviceSynchronize", at + 20, 60, 100 + step)
        trace.memcpy("HtoD (Pinned -> Device)", at + 90, 5, bytes=40_000, bandwidth=8, stream=9, launch=(at + 85, 1))
    return trace
