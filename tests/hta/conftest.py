"""A run that HTA's modules are tried on."""

from __future__ import annotations

import pytest
from builder import TraceBuilder


def rank_of(rank: int) -> TraceBuilder:
    """Two steps of 100 µs: aten::linear [10, 40] around aten::mm [12, 30], a gemm launched within, a copy, a wait.

    The gemm of a step is launched at 15 and runs 50 to 70 on stream 7; the copy, launched at 35, runs 72 to 76 there.
    """
    trace = TraceBuilder(rank, world_size=2)
    for step in (4, 5):
        at = 100 * (step - 4)
        trace.step(step, at, 100)
        trace.cpu_op("aten::linear", at + 10, 30, **{"External id": 10 * step, "Input Dims": [[2, 3]]})
        trace.cpu_op("aten::mm", at + 12, 18, **{"External id": 10 * step + 1})
        trace.kernel("void gemm<float>(int)", at + 50, 20, launch=(at + 15, 4))
        trace.memcpy("HtoD (Pinned -> Device)", at + 72, 4, bytes=4000, bandwidth=1, launch=(at + 35, 2))
        trace.gpu_annotation(f"ProfilerStep#{step}", at + 50, 26)
        sync = {"stream": 7, "wait_on_stream": 7, "correlation": 900 + step}
        trace.complete("cuda_sync", "Stream Wait Event", 0, 7, (at + 80, 5), sync)
    return trace


@pytest.fixture
def run(tmp_path):
    """The folder of its two ranks."""
    for rank in (0, 3):
        rank_of(rank).write(tmp_path / "traces" / f"rank{rank}.json")
    return tmp_path / "traces"
