"""When collectives are issued: on the stream of compute, and when parameters are needed."""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from rules.parallel import ALL_GATHER, ALL_REDUCE, GEMM, US, findings, one, plain


def serial(stream=7, name=ALL_REDUCE, free=300):
    """A step of 1000 µs: gemm, all-reduce 300-600 on stream 7, gemm."""
    return (
        TraceBuilder(0, 2)
        .step(1, 0, 1000)
        .kernel(GEMM, 300 - free, free, launch=(0, 1))
        .collective(name, "allreduce", 300, 300, stream=stream, launch=(2, 1))
        .kernel(GEMM, 600, 20, launch=(4, 1))
    )


def test_on_the_compute_stream(tmp_path):
    """300 µs are exposed, and 320 computed without."""
    found = one(tmp_path, [serial()], "N14")
    assert found.saving_ns == 300 * US
    assert "1 collective per step on stream 7, which also computes" in found.evidence


def test_no_more_than_there_is_to_compute(tmp_path):
    assert one(tmp_path, [serial(free=80)], "N14").saving_ns == 100 * US


@pytest.mark.parametrize("options", [{"stream": 20}, {"name": "void vllm::cross_device_reduce_1stage<float>"}])
def test_not_serialised(tmp_path, options):
    """A stream of its own, and an all-reduce of vLLM's own, which is meant to run there."""
    assert one(tmp_path, [serial(**options)], "N14") is None


def sharded(*, group_name="fsdp", prefetched=False, annotated=False, gap=0):
    """Three units of 200 µs, each behind an all-gather of 100; prefetched, they run under the unit before."""
    trace = TraceBuilder(0, 2).step(1, 0, 2000)
    if annotated:
        trace.annotation("FSDP::pre_forward (layer)", 0, 100)
    for number in range(3):
        start = 200 * number if prefetched else 300 * number
        trace.collective(ALL_GATHER, "_allgather_base", start, 100, group_name=group_name, launch=(2 * number, 1),
                         **{"Process Group Description": group_name})  # fmt: skip
        begin = 100 + 200 * number if prefetched else 300 * number + 100 + gap
        trace.kernel(GEMM, begin, 200 - gap, launch=(2 * number + 1, 1))
    return trace


@pytest.mark.parametrize("options", [{}, {"group_name": "dp_shard"}, {"group_name": "9", "annotated": True}])
def test_gathered_late(tmp_path, options):
    """The first has nothing before it; the second and third could run under 200 µs each."""
    found = one(tmp_path, [sharded(**options)], "N13")
    assert found.saving_ns == 200 * US
    assert "2 of 3 all-gathers per step" in plain(found.evidence)
    assert (found.spans[0].start, found.spans[0].end) == (300 * US, 400 * US)


@pytest.mark.parametrize("options", [{"prefetched": True}, {"group_name": "mesh_tp"}, {"group_name": "9"}, {"gap": 60}])
def test_not_gathered_late(tmp_path, options):
    """Prefetched; of another kind of parallelism; of a group that says nothing; something else is waited for."""
    assert not findings(tmp_path, [sharded(**options)], "N13").findings
