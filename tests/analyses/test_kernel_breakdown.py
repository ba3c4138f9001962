"""Time by kernel and by what runs at the same time."""

from __future__ import annotations

import numpy as np
import pytest
from builder import TraceBuilder

from htareport.analyses.kernels.kernel_breakdown import KernelBreakdown
from htareport.rank import kernel_stats
from htareport.report import Status

US = 1000
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
ALL = KernelBreakdown(num_kernels=100, duration_ratio=1.0)


def one_after_another(rank: int, *calls: tuple[str, int]) -> TraceBuilder:
    """Kernels that follow one another with 1 µs between."""
    trace, start = TraceBuilder(rank, world_size=2), 0
    for name, duration in calls:
        trace.kernel(name, start, duration)
        start += duration + 1
    return trace


def mixed() -> TraceBuilder:
    """Gemm 10, 20, 60; relu 5, 5; add 3; a collective of 40; a copy of 8 and a fill of 2."""
    calls = [("gemm", 10), ("relu", 5), ("gemm", 60), ("add", 3), (NCCL, 40), ("gemm", 20), ("relu", 5)]
    return one_after_another(0, *calls).memcpy("DtoH (Device -> Pinned)", 200, 8).memset(210, 2)


def test_statistics_are_of_single_calls(run):
    """Gemm: 10, 20 and 60 µs."""
    table = run(KernelBreakdown(), mixed()).table("kernels").set_index("name")
    row = table.loc["gemm"]
    assert (row["count"], row["sum"], row["mean"], row["min"], row["max"]) == (3, 90 * US, 30 * US, 10 * US, 60 * US)
    assert row["std"] == pytest.approx(np.sqrt(700) * US)  # ((−20)² + (−10)² + 30²) / 2.
    assert (row["p50"], row["p95"]) == pytest.approx((20 * US, 56 * US))  # 20 + 0.9 × 40.
    assert row["share"] == pytest.approx(90 / 153)
    assert table["share"].sum() == pytest.approx(1)
    assert table["kind"].to_dict() == {
        "gemm": "compute", "relu": "compute", "add": "compute", NCCL: "communication",
        "Memcpy DtoH (Device -> Pinned)": "memory", "Memset (Device)": "memory",
    }  # fmt: skip


def test_a_single_call_has_no_deviation(run):
    """Std is 0 there, not missing."""
    row = run(KernelBreakdown(), one_after_another(0, ("only", 7))).table("kernels").iloc[0]
    assert (row["count"], row["std"], row["p50"], row["p95"]) == (1, 0, 7 * US, 7 * US)


def test_top_and_others(run):
    """Gemm covers 90 of 103 µs of compute; others are the calls 5, 5 and 3."""
    table = run(KernelBreakdown(), mixed()).table("top").set_index(["kind", "name"])
    compute = table.loc["compute"]
    assert list(compute.index) == ["gemm", "others"]
    others = compute.loc["others"]
    assert (others["count"], others["sum"], others["min"], others["max"]) == (3, 13 * US, 3 * US, 5 * US)
    assert others["mean"] == pytest.approx(13 * US / 3)
    assert others["std"] == pytest.approx(np.sqrt(4 / 3) * US)
    assert others["p50"] == pytest.approx(5 * US, rel=0.01)
    assert compute["share"].tolist() == pytest.approx([90 / 103, 13 / 103])
    assert list(table.loc["memory"].index) == ["Memcpy DtoH (Device -> Pinned)", "others"]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"num_kernels": "2", "duration_ratio": "1"}, ["gemm", "relu", "others"]),
        ({"num_kernels": "9", "duration_ratio": "0.9"}, ["gemm", "relu", "others"]),  # 90 of 103 is too little.
        ({"num_kernels": "9", "duration_ratio": "1"}, ["gemm", "relu", "add"]),
        ({"num_kernels": "1"}, ["gemm", "others"]),
    ],
)
def test_the_options_bound_the_top(run, options, names):
    """Kernels of largest sum until they cover the ratio or are so many; no row without calls."""
    table = run(KernelBreakdown.configured(options), mixed()).table("top")
    assert table[table["kind"] == "compute"]["name"].tolist() == names


def test_the_top_does_not_change_the_statistics(run):
    """Whatever is listed, the rows of a kernel are the same."""
    few, many = (
        run(KernelBreakdown.configured({"num_kernels": number, "duration_ratio": "1"}), mixed()) for number in "19"
    )
    columns = ["count", "sum", "mean", "std", "p50", "p95"]
    one, other = (s.table("top").set_index("name").loc["gemm", columns].tolist() for s in (few, many))
    assert one == other
    assert few.table("kernels").equals(many.table("kernels"))


def test_types_are_exclusive_and_add_up_to_busy(run):
    """All three classes at once, in pairs and alone.

    Compute [0, 40], communication [20, 60], memory [30, 80] and, apart, [100, 110]:
    alone 20, 0 and 20 + 10; compute+comm [20, 30]; all three [30, 40]; comm+memory [40, 60]; busy 90.
    """
    trace = TraceBuilder(0).kernel("gemm", 0, 40).kernel(NCCL, 20, 40, stream=20)
    trace.memcpy("HtoD (Pinned -> Device)", 30, 50, stream=30).memset(100, 10, stream=30)
    table = run(KernelBreakdown(), trace).table("types").set_index("type")
    assert (table["time"] // US).to_dict() == {
        "memory": 30,
        "compute": 20,
        "communication overlapping memory": 20,
        "compute overlapping communication": 10,
        "compute overlapping communication overlapping memory": 10,
    }
    assert table["time"].sum() == 90 * US
    assert table["share"].sum() == pytest.approx(1)


def test_types_of_two_devices_are_summed(run):
    """Compute on one device and communication on the other do not overlap."""
    trace = TraceBuilder(0, devices=2).kernel("gemm", 0, 40).kernel(NCCL, 0, 30, device=1)
    table = run(KernelBreakdown(), trace).table("types").set_index("type")
    assert table["time"].to_dict() == {"compute": 40 * US, "communication": 30 * US}


def test_ranks_are_pooled_call_by_call(run):
    """Rank 3: 10, 20; rank 17: 60. Together mean 30 and the deviation of all three calls."""
    section = run(ALL, one_after_another(3, ("gemm", 10), ("gemm", 20)), one_after_another(17, ("gemm", 60)))
    row = section.table("kernels").iloc[0]
    assert (row["count"], row["sum"], row["mean"], row["min"], row["max"]) == (3, 90 * US, 30 * US, 10 * US, 60 * US)
    assert row["std"] == pytest.approx(np.sqrt(700) * US)
    by_rank = section.table("by_rank").set_index("rank")
    assert by_rank.loc[3, ["count", "sum", "p50"]].tolist() == [2, 30 * US, 15 * US]
    assert by_rank.loc[17, ["count", "sum", "p50", "std"]].tolist() == [1, 60 * US, 60 * US, 0]


def test_percentiles_over_ranks_are_within_one_percent(run):
    """21 calls of 100 to 2100 µs in turns on two ranks: p50 is 1100, p95 2000."""
    calls = [("gemm", 100 * number) for number in range(1, 22)]
    section = run(ALL, one_after_another(0, *calls[::2]), one_after_another(1, *calls[1::2]))
    row = section.table("kernels").iloc[0]
    assert (row["p50"], row["p95"]) == pytest.approx((1100 * US, 2000 * US), rel=0.01)


def test_percentiles_over_ranks_of_few_calls_are_within_one_percent(run):
    """Calls of 10 and of 1000 µs: p50 lies between the two, as it does within one rank."""
    section = run(ALL, one_after_another(0, ("gemm", 10)), one_after_another(1, ("gemm", 1000)))
    row = section.table("kernels").iloc[0]
    assert (row["p50"], row["p95"]) == pytest.approx((505 * US, 950.5 * US), rel=0.01)


def test_one_name_of_two_classes(run):
    """A kernel of one name with and without collective arguments is two rows."""
    trace = TraceBuilder(0).kernel("fused", 0, 10).collective("fused", "allreduce", 20, 30)
    table = run(ALL, trace).table("kernels").set_index("kind")
    assert table["sum"].to_dict() == {"communication": 30 * US, "compute": 10 * US}


def test_more_names_than_are_sent(run, monkeypatch):
    """Beyond so many names the smallest go together as one row a class, so that no time is lost."""
    monkeypatch.setattr("htareport.rank.kernel_stats.MOST_NAMES", 400)
    calls = [(f"kernel_{number}", 1000 - number) for number in range(450)]
    section = run(KernelBreakdown(), one_after_another(0, *calls))
    table = section.table("kernels")
    assert table["sum"].sum() == sum(duration for _, duration in calls) * US
    assert table["count"].sum() == 450
    small = table[table["name"] == "(kernels of small sums)"].iloc[0]
    assert small["count"] == 50
    assert "kernels of small sums" in section.notes[0]
    assert (small["min"], small["max"]) == (551 * US, 600 * US)


def test_what_stands_for_the_rest_is_text():
    """Half a surrogate pair is none: where pyarrow holds the names, nothing can be compared with it."""
    assert kernel_stats.REST.encode().decode() == kernel_stats.REST


def test_kernels_of_no_length(run):
    """They are listed, and have no share."""
    row = run(ALL, TraceBuilder(0).kernel("empty", 0, 0)).table("kernels").iloc[0]
    assert (row["count"], row["sum"], row["share"], row["std"]) == (1, 0, 0, 0)


def test_only_the_window_counts(run):
    """A kernel belongs to the step in which it is launched, wherever it runs."""
    trace = TraceBuilder(0).step(1, 0, 100).step(2, 100, 100).kernel("early", 10, 10, launch=(5, 1))
    trace.kernel("crosses", 120, 30, launch=(90, 1)).kernel("late", 160, 20, launch=(150, 1))
    table = run(ALL, trace, steps="1").table("kernels")
    assert table.set_index("name")["sum"].to_dict() == {"crosses": 30 * US, "early": 10 * US}


def test_charts(run):
    """The bars are the tables, largest first."""
    section = run(KernelBreakdown(), mixed())
    top, types = section.charts
    assert top.frame["name"].tolist()[:2] == ["gemm", NCCL]
    assert top.frame["sum"].tolist() == section.table("kernels")["sum"].tolist()
    assert "6 largest of 6" in top.caption
    assert types.frame["time"].sum() == section.table("types")["time"].sum()


def test_not_applicable_without_device_events(run):
    """The reason says what to record."""
    section = run(KernelBreakdown(), TraceBuilder(0).cpu_op("aten::mm", 0, 5))
    assert section.status is Status.NOT_APPLICABLE
    assert "ProfilerActivity.CUDA" in section.reason
