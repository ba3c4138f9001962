"""What steps cost, and how much is done per second."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from htareport.analyses.time.cost import Cost
from htareport.report import Status

SECOND = 1_000_000  # In µs, as traces are written.


def rank(number: int, busy: float, step: float = 2 * SECOND) -> TraceBuilder:
    """Two steps; in each the device computes for so many µs from the start, then is idle."""
    trace = TraceBuilder(number, world_size=2)
    for index in (0, 1):
        trace.step(index + 1, index * step, step).kernel("gemm", index * step, busy)
    return trace


def by_part(section, column: str) -> dict[str, float]:
    return section.table("parts").set_index("part")[column].to_dict()


def test_nothing_unless_asked(run):
    """The reason names the switches."""
    section = run(Cost(), rank(0, SECOND))
    assert section.status is Status.NOT_APPLICABLE
    assert "--gpu-hour" in section.reason
    assert "--samples-per-step" in section.reason


def test_price_of_each_part(run):
    """Two GPUs at 9 an hour cost 18; they compute 1 and 1.5 of 2 s: 62.5 %. A step of 2 s costs 18 / 1800 = 0.01."""
    section = run(Cost(gpu_hour=9), rank(0, SECOND), rank(1, 1.5 * SECOND))
    assert by_part(section, "hour") == pytest.approx(
        {"compute": 11.25, "exposed communication": 0, "exposed memory": 0, "idle": 6.75}
    )
    assert by_part(section, "steps")["compute"] == pytest.approx(6.25)
    fact = section.fact("cost")
    assert fact.value == pytest.approx(10)
    assert fact.detail == "3.75 of it not computing"


def test_slowest_rank_sets_the_pace(run):
    """Steps of 2 and 4 s: the job takes 4, so 64 samples are 16 a second."""
    section = run(Cost(samples_per_step=64), rank(0, SECOND), rank(1, SECOND, 4 * SECOND))
    row = section.table("throughput").iloc[0]
    assert (row["what"], row["per_second"]) == ("samples", 16)
    assert section.fact("samples_per_second").value == 16
    assert not len(section.table("parts"))


def test_cost_of_a_million_tokens(run):
    """One GPU at 36 an hour is 0.01 a second; 2 s for 1000 tokens: 20 for a million."""
    row = run(Cost(tokens_per_step=1000, gpu_hour=36), rank(0, SECOND)).table("throughput").iloc[0]
    assert row["cost"] == pytest.approx(20)


def test_more_gpus_than_traces(run):
    """Eight at 9 an hour, one of them recorded."""
    section = run(Cost(gpu_hour=9, num_gpus=8), rank(0, SECOND))
    assert sum(by_part(section, "hour").values()) == pytest.approx(72)


def test_without_steps_by_the_span(run):
    """From 0 to 4 s, of which 3 s compute; nothing is said per step."""
    trace = TraceBuilder(0).kernel("a", 0, SECOND).kernel("b", 2 * SECOND, 2 * SECOND)
    section = run(Cost(gpu_hour=4, samples_per_step=8), trace)
    assert by_part(section, "hour")["compute"] == pytest.approx(3)
    assert section.table("parts")["steps"].isna().all()
    assert not len(section.table("throughput"))
    assert section.fact("cost").value == pytest.approx(4)


def test_host_only(run):
    """Throughput needs steps, money needs a device."""
    trace = TraceBuilder(0).step(1, 0, SECOND).cpu_op("aten::mm", 0, SECOND)
    assert run(Cost(gpu_hour=4), trace).status is Status.NOT_APPLICABLE
    section = run(Cost(gpu_hour=4, samples_per_step=8), trace)
    assert section.fact("samples_per_second").value == 8
    assert not len(section.table("parts"))


def test_a_rank_without_device_costs_nothing(run):
    """It has no GPU that is paid for."""
    section = run(Cost(gpu_hour=9), rank(0, SECOND), TraceBuilder(1).step(1, 0, SECOND).cpu_op("aten::mm", 0, 1))
    assert sum(by_part(section, "hour").values()) == pytest.approx(9)
