"""Runs the command line in this process, in an empty folder, on small traces."""

from __future__ import annotations

import pytest
from builder import TraceBuilder


@pytest.fixture
def traces(tmp_path):
    """Two ranks of two steps each."""
    for rank in (0, 1):
        trace = TraceBuilder(rank, world_size=2)
        for step in (0, 1):
            start = 1000 * step
            trace.step(step, start, 900).cpu_op("aten::mm", start + 10, 50)
            trace.kernel("gemm", start + 100, 300 + 50 * rank, launch=(start + 20, 5))
            trace.collective(
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "allreduce", start + 350, 200, launch=(start + 40, 5)
            )
        trace.write(tmp_path / "traces" / f"rank{rank}.json", gzip=rank == 1)
    return tmp_path / "traces"
