"""How long steps take, over steps and over ranks."""

from __future__ import annotations

import pytest
from builder import BASE_NS, TraceBuilder

from htareport.analyses.time.step_time import StepTime
from htareport.report import Status

US = 1000


def stepping(rank: int, *times: int, first: int = 10, offset: int = 0) -> TraceBuilder:
    """Return steps that follow one another and last so many µs."""
    trace, start = TraceBuilder(rank, world_size=2), offset
    for number, time in enumerate(times, first):
        trace.step(number, start, time)
        start += time
    return trace


def test_a_step_lasts_until_the_next_one_starts(run):
    """Rows of 60, 70 and 80 µs that start at 0, 100 and 210: the last one has its own end."""
    trace = TraceBuilder(0).step(1, 0, 60).step(2, 100, 70).step(3, 210, 80)
    section = run(StepTime(), trace)
    assert section.table("per_step")["time"].tolist() == [100 * US, 110 * US, 80 * US]
    assert section.table("steps")["start"].tolist() == [0, 100 * US, 210 * US]


def test_before_a_gap_in_the_numbers_a_step_has_its_own_end(run):
    """Steps 1 and 5 do not touch."""
    section = run(StepTime(), TraceBuilder(0).step(1, 0, 60).step(5, 1000, 70).step(6, 1080, 10))
    assert section.table("per_step")["time"].tolist() == [60 * US, 80 * US, 10 * US]
    assert section.table("steps")["step"].tolist() == [1, 5, 6]


def test_summary_is_of_the_slowest_rank(run):
    """Slowest ranks of the steps: 110, 130, 120, 140."""
    section = run(StepTime(), stepping(0, 100, 130, 90, 140), stepping(1, 110, 120, 120, 110))
    row = section.table("summary").iloc[0]
    assert row["steps"] == 4
    assert (row["median"], row["mean"], row["min"], row["max"]) == (125 * US, 125 * US, 110 * US, 140 * US)
    # Linear between the sorted 110, 120, 130, 140: positions 0.15 and 2.85.
    assert (row["p5"], row["p95"]) == pytest.approx((111.5 * US, 138.5 * US))
    fact = section.fact("step_time")
    assert fact.value == 125 * US
    assert "4 steps" in fact.detail


def test_steps_over_ranks(run):
    """Per step the slowest rank, and quantiles over the ranks."""
    table = run(StepTime(), stepping(3, 100, 130), stepping(17, 110, 120)).table("steps").set_index("step")
    assert table.loc[10, ["slowest", "slowest_rank", "median"]].tolist() == [110 * US, 17, 105 * US]
    assert table.loc[11, ["slowest", "slowest_rank", "median"]].tolist() == [130 * US, 3, 125 * US]
    assert table.loc[10, "p95"] == pytest.approx(109.5 * US)


def test_ranks_over_steps(run):
    """Median, mean and slowest step of each rank, and how often it was the slowest."""
    section = run(StepTime(), stepping(0, 100, 130, 90, 140), stepping(1, 110, 120, 120, 110))
    table = section.table("ranks").set_index("rank")
    assert table.loc[0].tolist() == [115 * US, 115 * US, 140 * US, 13, 2]
    assert table.loc[1].tolist() == [115 * US, 115 * US, 120 * US, 11, 2]


def test_start_counts_from_the_earliest_event_of_all_ranks(run):
    """Rank 1 starts 40 µs before rank 0's first step; offsets of 19-digit stamps stay exact."""
    late = TraceBuilder(0, base_ns=BASE_NS + 7).step(0, 40, 10).step(1, 50, 10)
    early = TraceBuilder(1, base_ns=BASE_NS).cpu_op("aten::mm", 0, 5).step(0, 45, 10).step(1, 60, 10)
    assert run(StepTime(), late, early).table("steps")["start"].tolist() == [40 * US + 7, 50 * US + 7]


def test_ranks_with_different_steps(run):
    """A step is judged by the ranks that have it."""
    section = run(StepTime(), stepping(0, 100, 130), stepping(1, 110, first=11))
    assert section.table("steps")["slowest"].tolist() == [100 * US, 130 * US]
    assert len(section.table("per_step")) == 3


def test_a_rank_without_steps_has_no_row(run):
    """And a note says so."""
    section = run(StepTime(), stepping(0, 100, 130), TraceBuilder(1).cpu_op("aten::mm", 0, 5))
    assert section.table("ranks")["rank"].tolist() == [0]
    assert any("rank 1" in note and "prof.step()" in note for note in section.notes)


def test_no_steps_at_all(run):
    """The reason says what to call."""
    section = run(StepTime(), TraceBuilder(0).kernel("a", 0, 5))
    assert section.status is Status.NOT_APPLICABLE
    assert "prof.step()" in section.reason


def test_the_device_twins_of_steps_are_no_steps(run):
    """Rows of gpu_user_annotation neither add steps nor change them."""
    trace = stepping(0, 100, 130).gpu_annotation("ProfilerStep#10", 0, 300).gpu_annotation("ProfilerStep#99", 0, 10)
    assert run(StepTime(), trace).table("per_step")["time"].tolist() == [100 * US, 130 * US]


def test_one_step(run):
    """All statistics are that step; there is nothing to draw."""
    section = run(StepTime(), stepping(0, 100))
    row = section.table("summary").iloc[0]
    assert row["steps"] == 1
    assert set(row.drop("steps")) == {100 * US}
    assert section.charts == ()
    assert section.fact("step_time").detail == "1 step"


def test_a_slowest_rank_is_named_if_notably_slower(run):
    """Medians 100, 100 and 110: rank 9 is 10 µs over the median; 1 µs would not be said."""
    section = run(StepTime(), stepping(0, 100, 100, 100), stepping(1, 100, 100, 100), stepping(9, 110, 110, 110))
    fact = section.fact("slowest_rank")
    assert fact.value == 9
    assert fact.detail.startswith("+10.0")


def test_ranks_in_step_name_none(run):
    """A rank 1 % over the median is not called slow."""
    section = run(StepTime(), stepping(0, 100, 100), stepping(1, 100, 100), stepping(2, 101, 101))
    assert section.fact("slowest_rank") is None


def test_charts_of_one_and_of_several_ranks(run):
    """One line of the only rank; else the median with its band beside the slowest rank, and a heatmap."""
    section = run(StepTime(), stepping(0, 100, 130), stepping(1, 110, 120))
    lines, heatmap = section.charts
    slowest = lines.frame[lines.frame["series"] == "slowest rank"]
    assert slowest["time"].tolist() == [110 * US, 130 * US]
    middle = lines.frame[lines.frame["series"] == "median"]
    assert middle["time"].tolist() == [105 * US, 125 * US]
    assert heatmap.frame.set_index(["rank", "step"])["value"].to_dict() == {
        (0, 10): 100 * US, (0, 11): 130 * US, (1, 10): 110 * US, (1, 11): 120 * US,
    }  # fmt: skip


def test_only_rank_chart(run):
    """One rank is neither compared nor called slowest."""
    section = run(StepTime(), stepping(0, 100, 130))
    (line,) = section.charts
    assert line.frame["slowest"].tolist() == [100 * US, 130 * US]
    assert section.table("ranks")["times_slowest"].tolist() == [0]


def test_chosen_steps(run):
    """Their lengths do not change when others are left out."""
    section = run(StepTime(), stepping(0, 100, 130, 90, 140), steps="11-12")
    assert section.table("per_step")["step"].tolist() == [11, 12]
    assert section.table("per_step")["time"].tolist() == [130 * US, 90 * US]


def test_a_slow_step_is_named_if_well_above_the_median(run):
    """Of 100, 100, 130 and 100 µs the third, with its time and what it has over the median; 110 would not be said."""
    fact = run(StepTime(), stepping(0, 100, 100, 130, 100)).fact("slow_step")
    assert fact.value == 12
    assert fact.detail.replace("\u202f", " ") == "130 µs, +30.0 µs over the median"
    assert run(StepTime(), stepping(0, 100, 100, 110, 100)).fact("slow_step") is None


def test_ranks_that_wait_for_each_other_are_not_called_slow(run):
    """With communication the time of a rank holds its wait for others: own time tells who is late."""
    ranks = [stepping(0, 100, 100, 100), stepping(9, 150, 150, 150)]
    ranks[1].kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20, 100, launch=(10, 1))
    assert run(StepTime(), *ranks).fact("slowest_rank") is None


def test_two_steps_name_no_rank(run):
    """Nothing is significant yet."""
    assert run(StepTime(), stepping(0, 100, 100), stepping(9, 150, 150)).fact("slowest_rank") is None
