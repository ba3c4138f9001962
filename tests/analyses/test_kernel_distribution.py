"""How the durations of calls spread."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from builder import TraceBuilder

from htareport.analyses.kernels.kernel_distribution import KernelDistribution
from htareport.rank import kernel_stats

US = 1000
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def calls(rank: int, name: str, *durations: int, start: int = 0) -> TraceBuilder:
    trace = TraceBuilder(rank, world_size=2)
    for duration in durations:
        trace.kernel(name, start, duration)
        start += duration + 1
    return trace


def test_ranks_are_compared_by_their_means(run):
    """Means of 10, 20 and 40 µs: the largest exceeds the smallest by 300 %, and the slowest rank is the last."""
    section = run(KernelDistribution(), calls(0, "gemm", 5, 15), calls(5, "gemm", 20, 20), calls(9, "gemm", 30, 40, 50))
    row = section.table("distribution").iloc[0]
    assert (row["count"], row["mean"], row["min"], row["max"]) == (7, 180 * US / 7, 5 * US, 50 * US)
    assert row["spread"] == pytest.approx(3)
    assert row["slowest_rank"] == 9
    by_rank = section.table("by_rank").set_index("rank")
    assert by_rank.loc[9, ["count", "mean", "min", "max"]].tolist() == [3, 40 * US, 30 * US, 50 * US]


def test_one_rank_is_not_compared(run):
    """No spread and no slowest rank then."""
    row = run(KernelDistribution(), calls(0, "gemm", 5, 15)).table("distribution").iloc[0]
    assert pd.isna(row["spread"])
    assert pd.isna(row["slowest_rank"])


def test_quantiles_are_within_one_percent(run):
    """201 calls of 1 to 201 µs: the quantile q is 1 + 200 q."""
    row = run(KernelDistribution(), calls(0, "gemm", *range(1, 202))).table("distribution").iloc[0]
    expected = [1 + 200 * q for q in (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)]
    found = row[["p5", "p25", "p50", "p75", "p95", "p99"]] / US
    np.testing.assert_allclose(found.astype(float), expected, rtol=0.01)


def test_quantiles_of_whole_microseconds_are_exact(run):
    """Bins of one duration each: 2 µs and not 2.01, on two ranks together."""
    row = run(KernelDistribution(), calls(0, "gemm", 1, 2, 2, 2), calls(1, "gemm", 2, 2, 2, 9)).table().iloc[0]
    assert row[["p25", "p50", "p75"]].tolist() == [2 * US, 2 * US, 2 * US]
    assert row["p95"] == pytest.approx((2 + 0.65 * 7) * US)


def test_quantiles_stay_within_the_calls(run):
    """Of equal calls all quantiles are that duration."""
    row = run(KernelDistribution(), calls(0, "gemm", 7, 7, 7)).table("distribution").iloc[0]
    assert set(row[["min", "p5", "p50", "p99", "max"]]) == {7 * US}


def test_the_number_of_kernels_is_by_class(run):
    """The two largest of each class."""
    trace = calls(0, "a", 30).kernel("b", 100, 20).kernel("c", 200, 10).kernel(NCCL, 300, 5)
    table = run(KernelDistribution.configured({"num_kernels": "2"}), trace).table("distribution")
    assert table["name"].tolist() == ["a", "b", NCCL]
    assert table["kind"].tolist() == ["compute", "compute", "communication"]


def test_a_kernel_of_no_length(run):
    """Has quantiles of 0 and no spread over ranks."""
    row = run(KernelDistribution(), calls(0, "empty", 0, 0), calls(1, "empty", 0)).table("distribution").iloc[0]
    assert set(row[["min", "p5", "p50", "p99", "max"]]) == {0}
    assert pd.isna(row["spread"])


def test_the_histogram_counts_every_call(run):
    """Of every kernel, listed or not; a call lies in its bin. That of no length goes on to the first of the others."""
    trace = calls(0, "gemm", *range(1, 101)).kernel(NCCL, 10_000, 5).kernel("zero", 10_100, 0)
    section = run(KernelDistribution(num_kernels=1), trace, calls(1, "gemm", 50))
    chart = next(chart for chart in section.charts if chart.name == "durations")
    assert chart.frame["count"].sum() == 103
    assert chart.frame.groupby("kind")["count"].sum().to_dict() == {"compute": 102, "communication": 1}
    none, *others = chart.frame.sort_values("left")[["left", "right", "count"]].to_numpy().tolist()
    assert none == [0, others[0][0], 1]
    assert US / 2 < others[0][0] <= US
    row = chart.frame[chart.frame["kind"] == "communication"].iloc[0]
    assert row["left"] <= 5 * US < row["right"]


def test_small_kernels_of_a_rank_count_too(run):
    """65 kernels of rank 0 take more time than its call of k, which rank 1 calls longest: sums and means are exact.

    Its percentiles are those of the calls of rank 1, and a note says so.
    """
    trace = TraceBuilder(0, 2)
    for number in range(65):
        trace.kernel(f"other {number:02}", 100 * number, 50)
    trace.kernel("k", 10_000, 10)
    section = run(KernelDistribution(), trace, calls(1, "k", 2_000))
    row = section.table("distribution").set_index("name").loc["k"]
    assert row[["count", "mean", "min", "max"]].tolist() == [2, 1_005 * US, 10 * US, 2_000 * US]
    assert row[["spread", "slowest_rank"]].tolist() == [199, 1]
    assert section.table("by_rank").query("name == 'k'")["mean"].tolist() == [10 * US, 2_000 * US]
    assert row["p5"] == pytest.approx(2_000 * US, rel=0.01)
    [note] = section.notes
    assert note == (
        "Percentiles of 1 of the kernels lack calls (up to 50.0\u202f%): those on ranks where the kernel is not "
        "among the 60 of largest sum in its class."
    )


def test_more_kernels_than_a_rank_sends(run, monkeypatch):
    """3 names a rank: the fourth of rank 0 is missing from the sum, which is told."""
    monkeypatch.setattr(kernel_stats, "MOST_NAMES", 3)
    trace = calls(0, "a", 30).kernel("b", 100, 20).kernel("c", 200, 10).kernel("k", 300, 5)
    section = run(KernelDistribution(), trace, calls(1, "k", 100))
    assert section.table("distribution").set_index("name").loc["k", "count"] == 1
    [note] = section.notes
    assert note == (
        "The table of calls adds up, of each rank, the 3 rows of largest sum in each class; 1 of 2 ranks have "
        "more, and what they leave out is missing from the sums."
    )


@pytest.mark.parametrize(("ranks", "expected"), [(1, None), (2, 2), (9, 1)])
def test_the_chart_of_ranks(run, ranks, expected):
    """None of one rank, a mark for each of a few, and the median with its range of many."""
    traces = [calls(rank, "gemm", 10 + rank) for rank in range(ranks)]
    section = run(KernelDistribution(), *traces)
    chart = next((chart for chart in section.charts if chart.name == "ranks"), None)
    assert (chart and len(chart.frame)) == expected
    if ranks == 9:
        row = chart.frame.iloc[0]
        assert (row["median"], row["min"], row["max"]) == (14 * US, 10 * US, 18 * US)
        assert "9 ranks" in chart.caption


def test_the_box_chart_holds_the_quantiles(run):
    """Its columns are those of the table."""
    section = run(KernelDistribution(), calls(0, "gemm", 10, 20, 30))
    chart = next(chart for chart in section.charts if chart.name == "calls")
    row = chart.frame.iloc[0]
    assert row[chart.low] <= row[chart.q1] <= row[chart.y] <= row[chart.q3] <= row[chart.high]
