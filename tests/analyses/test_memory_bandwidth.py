"""Copies and fills, on paper values: 1 GB/s is 1,000 bytes in 1 µs."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from builder import TraceBuilder

from htareport.analyses.memory.memory_bandwidth import MemoryBandwidth
from htareport.report import Status
from htareport.run.runner import analyze

US = 1000
GB = 10**9
PINNED, PAGEABLE = "HtoD (Pinned -> Device)", "HtoD (Pageable -> Device)"
BACK = "DtoH (Device -> Pinned)"


def by_kind(section) -> pd.DataFrame:
    return section.table("kinds").set_index("kind")


def two_copies(rank: int = 0) -> TraceBuilder:
    """25,000 bytes in 1 µs (25 GB/s), 5,000 in 4 µs (1.25 GB/s)."""
    trace = TraceBuilder(rank, world_size=3).memcpy(PINNED, 10, 1, 25_000, 25.0, launch=(0, 2))
    return trace.memcpy(PAGEABLE, 30, 4, 5_000, 1.25, launch=(20, 2))


def test_effective_is_bytes_over_time(run):
    """30,000 bytes in 5 µs are 6 GB/s, the mean weighted by time as well (25 x 1 + 1.25 x 4 = 30 over 5)."""
    row = by_kind(run(MemoryBandwidth(), two_copies())).loc["Memcpy HtoD"]
    assert row[["count", "bytes", "time", "without_size"]].tolist() == [2, 30_000, 5 * US, 0]
    assert row[["effective", "mean", "peak"]].tolist() == pytest.approx([6 * GB, 6 * GB, 25 * GB])


def test_effective_does_not_go_by_the_bandwidth_of_the_trace(run):
    """10,000 bytes in 10 µs are 1 GB/s, whatever the trace says."""
    row = by_kind(run(MemoryBandwidth(), TraceBuilder(0).memcpy(PINNED, 0, 10, 10_000, 3.5))).loc["Memcpy HtoD"]
    assert row[["effective", "mean", "peak"]].tolist() == [1 * GB, 3.5 * GB, 3.5 * GB]


@pytest.mark.parametrize(
    ("bandwidth", "said"), [(3.5, "3.50 times as small"), (0.4, "2.50 times as large"), (1.1, ""), (math.nan, "")]
)
def test_a_bandwidth_that_does_not_fit_bytes_and_time(run, bandwidth, said):
    """10,000 bytes in 10 µs are 1 GB/s; of a copy of 2 µs the rounded time says nothing."""
    trace = TraceBuilder(0).memcpy(PINNED, 0, 10, 10_000, bandwidth).memcpy(PINNED, 20, 2, 90_000, 1.0)
    notes = run(MemoryBandwidth(), trace).notes
    assert len(notes) == bool(said)
    assert all(said in note for note in notes)


def test_kinds_are_kept_apart_the_longest_first(run):
    """Kinds by direction, whatever memory it is from; fills are one kind."""
    trace = TraceBuilder(0).memcpy(PINNED, 0, 1, 100).memcpy(PAGEABLE, 10, 2, 200).memcpy(BACK, 20, 9, 300)
    trace.memcpy("DtoD (Device -> Device)", 30, 4, 400).memcpy("PtoP (Device -> Device)", 40, 5, 500)
    table = by_kind(run(MemoryBandwidth(), trace.memset(50, 6, 600).memset(60, 1, 1)))
    assert table[["count", "bytes"]].to_numpy().tolist() == [[1, 300], [2, 601], [1, 500], [1, 400], [2, 300]]
    assert table["time"].to_dict() == {
        "Memcpy DtoH": 9 * US, "Memset": 7 * US, "Memcpy PtoP": 5 * US, "Memcpy DtoD": 4 * US, "Memcpy HtoD": 3 * US,
    }  # fmt: skip


def test_concurrent_copies_of_a_kind_add_up(run):
    """10 GB/s in [0, 10] and 20 in [5, 15] of another stream: 10, 30 and 20 for 5 µs each; the time is 20 µs."""
    trace = TraceBuilder(0).memcpy(PINNED, 0, 10, 100_000, 10.0).memcpy(PINNED, 5, 10, 200_000, 20.0, stream=9)
    row = by_kind(run(MemoryBandwidth(), trace)).loc["Memcpy HtoD"]
    assert row[["mean", "peak"]].tolist() == [20 * GB, 30 * GB]
    assert row[["time", "effective"]].tolist() == [20 * US, 15 * GB]


def test_copies_of_different_kinds_do_not_add_up(run):
    """At the same time, in opposite directions."""
    table = by_kind(run(MemoryBandwidth(), TraceBuilder(0).memcpy(PINNED, 0, 10, 1, 10.0).memcpy(BACK, 0, 10, 1, 7.0)))
    assert table["peak"].to_dict() == {"Memcpy DtoH": 7 * GB, "Memcpy HtoD": 10 * GB}


def test_touching_copies_are_not_concurrent(run):
    """One starts in the ns in which the other ends."""
    trace = TraceBuilder(0).memcpy(PINNED, 0, 10, 1, 0.1).memcpy(PINNED, 10, 10, 1, 0.2)
    row = by_kind(run(MemoryBandwidth(), trace)).loc["Memcpy HtoD"]
    assert row[["mean", "peak"]].tolist() == pytest.approx([0.15 * GB, 0.2 * GB], abs=1)


def test_the_mean_is_over_busy_time_only(run):
    """0.1, 0.2 and 0.3 GB/s overlap, whose floats don't cancel to 0; then 80 µs of nothing, then 0.6 for 10 µs."""
    trace = TraceBuilder(0).memcpy(PINNED, 0, 10, 1, 0.1).memcpy(PINNED, 0, 10, 1, 0.2).memcpy(PINNED, 0, 10, 1, 0.3)
    row = by_kind(run(MemoryBandwidth(), trace.memcpy(PINNED, 90, 10, 1, 0.6))).loc["Memcpy HtoD"]
    assert row["mean"] == pytest.approx(0.6 * GB)


@pytest.mark.parametrize("rate", [math.inf, math.nan, "inf", None], ids=str)
def test_a_bandwidth_that_is_no_number_adds_nothing(run, rate):
    """Its bytes and time count all the same: 4,000 bytes in 4 µs."""
    args = {} if rate is None else {"memory bandwidth (GB/s)": rate}
    trace = TraceBuilder(0).memcpy(PINNED, 0, 2, 3_000, 1.5).memcpy(PINNED, 0, 2, 1_000, **args)
    row = by_kind(run(MemoryBandwidth(), trace)).loc["Memcpy HtoD"]
    assert row[["effective", "mean", "peak"]].tolist() == [1 * GB, 1.5 * GB, 1.5 * GB]


def test_a_copy_of_no_duration_adds_no_bandwidth(run):
    """What it says would be the peak; its bytes count in the sum: 3,000 in 2 µs."""
    trace = TraceBuilder(0).memcpy(PINNED, 0, 2, 2_000, 1.0).memcpy(PINNED, 1, 0, 1_000, 999.0)
    row = by_kind(run(MemoryBandwidth(), trace)).loc["Memcpy HtoD"]
    assert row[["count", "bytes", "time"]].tolist() == [2, 3_000, 2 * US]
    assert row[["effective", "mean", "peak"]].tolist() == [1.5 * GB, 1 * GB, 1 * GB]


def test_copies_that_take_no_time_at_all_have_no_rates(run):
    """Bytes over nothing is nothing to show; there is no bar of it, but one of the time."""
    section = run(MemoryBandwidth(), TraceBuilder(0).memcpy(PINNED, 0, 0, 1_000, 999.0))
    row = by_kind(section).loc["Memcpy HtoD"]
    assert row[["count", "bytes", "time"]].tolist() == [1, 1_000, 0]
    assert row[["effective", "mean", "peak"]].isna().all()
    assert [chart.name for chart in section.charts] == ["time"]


def test_a_copy_of_no_bytes_is_slow_not_unknown(run):
    """0 bytes in 2 µs are 0 GB/s; there is no time in which its bandwidth is above zero."""
    section = run(MemoryBandwidth(), TraceBuilder(0).memcpy(PINNED, 0, 2, 0, 0.0))
    row = by_kind(section).loc["Memcpy HtoD"]
    assert row[["bytes", "without_size", "effective"]].tolist() == [0, 0, 0]
    assert row[["mean", "peak"]].isna().all()
    assert section.notes == ()


def test_copies_without_size_are_counted_and_left_out_of_the_rate(run):
    """4,000 bytes in 2 µs; the 98 µs of the copy without size are only in the time."""
    trace = TraceBuilder(0).memcpy(PINNED, 0, 2, 4_000).memcpy(PINNED, 2, 98)
    row = by_kind(run(MemoryBandwidth(), trace)).loc["Memcpy HtoD"]
    assert row[["count", "bytes", "time", "without_size"]].tolist() == [2, 4_000, 100 * US, 1]
    assert row["effective"] == 2 * GB


def test_without_any_size_a_note_says_so(run):
    """As in old traces of AMD: counts and times only."""
    section = run(MemoryBandwidth(), TraceBuilder(0).memcpy(PINNED, 0, 2).memcpy(PINNED, 2, 98).memset(200, 3))
    table = by_kind(section)
    assert table[["count", "time", "without_size"]].to_numpy().tolist() == [[2, 100 * US, 2], [1, 3 * US, 1]]
    assert table[["bytes", "effective", "mean", "peak"]].isna().all(axis=None)
    assert "no bytes" in section.notes[0]


def test_copies_of_hip(run):
    """Of its calls, on stream 0; kernels that copy are kernels, by their category."""
    trace = TraceBuilder(0).runtime("hipMemcpyWithStream", 0, 2, 5).runtime("hipMemsetAsync", 3, 2, 6)
    trace.memcpy("HtoD (Host -> Device)", 10, 4, 8_000, 2.0, stream=0, correlation=5)
    trace.memset(20, 1, 500, stream=0, correlation=6).kernel("__amd_rocclr_copyBuffer", 30, 50, stream=0)
    table = by_kind(run(MemoryBandwidth(), trace))
    assert table["bytes"].to_dict() == {"Memcpy HtoD": 8_000, "Memset": 500}
    assert table["effective"].tolist() == pytest.approx([2 * GB, 0.5 * GB])


def test_directions_that_differ_late_in_their_names_are_kept_apart(run):
    """As ROCm's tracer called copies: all begin with Copy, and two with CopyDeviceTo."""
    trace = TraceBuilder(0)
    for number, name in enumerate(("CopyHostToDevice", "CopyDeviceToHost", "CopyDeviceToDevice")):
        args = {"device": 0, "stream": 0, "correlation": number + 1, "bytes": 1_000}
        trace.complete("gpu_memcpy", name, 0, 0, (10 * number, number + 1), args)
    table = run(MemoryBandwidth(), trace).table("kinds")
    assert (table["count"].tolist(), table["time"].tolist()) == ([1, 1, 1], [3 * US, 2 * US, 1 * US])


def test_an_unknown_direction_is_a_kind_of_its_own(run):
    """Kineto's own word for it, and another, beside 30,000 bytes to the device."""
    trace = two_copies().memcpy("Unknown (Unknown -> Device)", 100, 2, 50).memcpy("Other", 110, 1, 1)
    table = by_kind(run(MemoryBandwidth(), trace))
    assert table.loc["Memcpy HtoD", "count"] == 2
    assert sorted(table["bytes"]) == [1, 50, 30_000]


def test_rows_of_the_categories_of_2021(run):
    """Memcpy and Memset, not gpu_memcpy and gpu_memset."""
    args = {"device": 0, "stream": 7, "bytes": 2_000}
    trace = TraceBuilder(0).complete("Memcpy", f"Memcpy {BACK}", 0, 7, (0, 2), args)
    trace.complete("Memset", "Memset (Device)", 0, 7, (5, 1), args)
    assert by_kind(run(MemoryBandwidth(), trace))["effective"].tolist() == [1 * GB, 2 * GB]


def test_ranks_are_pooled_by_kind(run):
    """Rank 0: 30,000 bytes in 5 µs; rank 2: 10,000 in 5 µs, 2 GB/s each at once on two devices, so 4 of peak."""
    other = TraceBuilder(2, world_size=3, devices=2).memcpy(PINNED, 0, 3, 6_000, 2.0).memcpy(BACK, 9, 1, 10, 0.01)
    other.memcpy(PINNED, 1, 2, 4_000, 2.0, device=1)
    section = run(MemoryBandwidth(), two_copies(), other)
    row = by_kind(section).loc["Memcpy HtoD"]
    assert row[["count", "bytes", "time", "effective"]].tolist() == [4, 40_000, 10 * US, 4 * GB]
    # Busy for 5 and 3 µs: 25 x 1 + 1.25 x 4, and 2 x 1 + 4 x 2.
    assert row[["mean", "peak"]].tolist() == pytest.approx([40 / 8 * GB, 25 * GB])
    ranks = section.table("ranks").set_index(["rank", "kind"])
    assert ranks["effective"].to_dict() == pytest.approx(
        {(0, "Memcpy HtoD"): 6 * GB, (2, "Memcpy DtoH"): 0.01 * GB, (2, "Memcpy HtoD"): 2 * GB}
    )


def test_ranks_with_and_without_sizes(run):
    """The rate is of rank 0 only; rank 1 has neither bytes nor rate."""
    section = run(MemoryBandwidth(), two_copies(), TraceBuilder(1, world_size=3).memcpy(PINNED, 0, 90))
    row = by_kind(section).loc["Memcpy HtoD"]
    assert row[["count", "bytes", "time", "without_size"]].tolist() == [3, 30_000, 95 * US, 1]
    assert row["effective"] == pytest.approx(6 * GB)
    assert section.table("ranks").set_index("rank").loc[1, ["bytes", "effective"]].isna().all()
    assert section.notes == ()


def test_a_rank_without_copies_has_no_row(run):
    """And a note names it; rank 2 is not there at all."""
    section = run(MemoryBandwidth(), two_copies(), TraceBuilder(1, world_size=3).kernel("k", 0, 5))
    assert section.table("ranks")["rank"].tolist() == [0]
    assert section.notes == ("Without rank 1: no memory copies or fills ran while the profiler was on",)


def test_captures_are_pooled(tmp_path):
    """2 GB/s for 10 µs, and 4 for 10 µs 9 ms later: mean 3, peak 4."""
    one = TraceBuilder(0).memcpy(PINNED, 0, 10, 20_000, 2.0).write(tmp_path / "one.json")
    two = TraceBuilder(0).memcpy(PINNED, 9000, 10, 40_000, 4.0).write(tmp_path / "two.json")
    row = by_kind(analyze({0: (one, two)}, analyses=[MemoryBandwidth()])["memory_bandwidth"]).loc["Memcpy HtoD"]
    assert row[["count", "bytes", "effective", "mean", "peak"]].tolist() == [2, 60_000, 3 * GB, 3 * GB, 4 * GB]


def test_charts_hold_time_and_rate_of_each_kind(run):
    """A kind without sizes has no bar of its rate."""
    time, effective = run(MemoryBandwidth(), two_copies().memset(100, 9)).charts
    assert time.frame.set_index("kind")["time"].to_dict() == {"Memset": 9 * US, "Memcpy HtoD": 5 * US}
    assert effective.frame.set_index("kind")["effective"].to_dict() == pytest.approx({"Memcpy HtoD": 6 * GB})


def test_copies_of_the_chosen_steps_only(run):
    """Launched in step 2, though the other runs in it."""
    trace = TraceBuilder(0).step(1, 0, 100).step(2, 100, 100).memcpy(PINNED, 120, 10, 10_000, launch=(90, 2))
    trace.memcpy(PINNED, 150, 5, 20_000, launch=(110, 2))
    row = by_kind(run(MemoryBandwidth(), trace, steps="2")).loc["Memcpy HtoD"]
    assert row[["count", "bytes", "effective"]].tolist() == [1, 20_000, 4 * GB]


def test_not_applicable_to_steps_without_copies(run):
    """The trace has one, but the chosen step none."""
    trace = TraceBuilder(0).step(1, 0, 100).step(2, 100, 100).memcpy(PINNED, 20, 10, 10_000, launch=(5, 2))
    section = run(MemoryBandwidth(), trace.kernel("k", 120, 5, launch=(110, 2)), steps="2")
    assert (section.status, section.reason[:16]) == (Status.NOT_APPLICABLE, "no memory copies")


@pytest.mark.parametrize(
    "trace", [TraceBuilder(0).cpu_op("aten::copy_", 0, 5), TraceBuilder(0).kernel("k", 0, 5)], ids=["host", "kernels"]
)
def test_not_applicable_without_copies(run, trace):
    """The reason says so."""
    section = run(MemoryBandwidth(), trace)
    assert section.status is Status.NOT_APPLICABLE
    assert "no memory copies" in section.reason
