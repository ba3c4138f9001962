"""Gaps on devices and streams, and their causes."""

from __future__ import annotations

import pandas as pd
import pytest
from builder import BASE_NS, TraceBuilder

from htareport.analyses.kernels.kernel_breakdown import KernelBreakdown
from htareport.analyses.time.idle_time import IdleTime
from htareport.errors import UsageError
from htareport.rank.idle_gaps import CAUSES
from htareport.report import Status

US = 1000


def two_streams(rank: int = 0, **options) -> TraceBuilder:
    """Every cause on stream 7, one long gap on stream 9.

    s7: a [100, 110]; b [112, 120], launched 101: gap 2, kernel wait; c [170, 180], launched 130: 50, host wait;
    d [230, 240], launched 175: 50, other; e [245, 250] without launch: 5, other; f [248, 260] overlaps e: none;
    g [290, 291], launched at 260, when f ends: 30, so neither late nor short: other.
    s9: x [115, 175]; y [300, 310], launched 299: 125, host wait.
    """
    trace = TraceBuilder(rank, **options).kernel("a", 100, 10, launch=(0, 5)).kernel("b", 112, 8, launch=(101, 2))
    trace.kernel("x", 115, 60, stream=9, launch=(104, 2)).kernel("c", 170, 10, launch=(130, 2))
    trace.kernel("d", 230, 10, launch=(175, 2)).kernel("e", 245, 5).kernel("f", 248, 12, launch=(246, 1))
    return trace.kernel("g", 290, 1, launch=(260, 2)).kernel("y", 300, 10, stream=9, launch=(299, 1))


def by_cause(table: pd.DataFrame, **where) -> dict[str, tuple[int, int]]:
    """Return idle time in µs and number of gaps by cause, of the rows that match."""
    for column, value in where.items():
        table = table[table[column] == value]
    return {row["category"]: (row["idle"] / US, row["count"]) for _, row in table.iterrows()}


def test_streams_by_cause(run):
    """A gap belongs to one cause; the ratio is the share of the stream's idle time; no row where there is no gap."""
    table = run(IdleTime(), two_streams()).table("streams")
    assert by_cause(table, stream=7) == {"host wait": (50, 1), "kernel wait": (2, 1), "other": (85, 3)}
    assert by_cause(table, stream=9) == {"host wait": (125, 1)}
    ratios = table[table["stream"] == 7].set_index("category")["ratio"]
    assert ratios["host wait"] == pytest.approx(50 / 137)
    assert ratios.sum() == pytest.approx(1)


def test_devices_by_cause(run):
    """Of a device only what no stream covers: gaps of 2, 50 (d), 5, 30 and 9 µs before y."""
    section = run(IdleTime(), two_streams())
    assert by_cause(section.table("devices")) == {"host wait": (9, 1), "kernel wait": (2, 1), "other": (85, 3)}
    fact = section.fact("host_wait_share")
    assert fact.value == pytest.approx(9 / 96)


def test_idle_of_the_device_is_span_less_busy(run):
    """The same 96 µs as in the temporal breakdown."""
    from htareport.analyses.time.temporal_breakdown import TemporalBreakdown

    idle = run(IdleTime(), two_streams()).table("devices")["idle"].sum()
    assert run(TemporalBreakdown(), two_streams()).table().iloc[0]["idle"] == idle == 96 * US


def test_largest_gaps(run):
    """Longest first, with their place, what ended last before them and what comes next."""
    gaps = run(IdleTime(), two_streams()).table("gaps")
    assert (gaps["duration"] // US).tolist() == [50, 30, 9, 5, 2]
    assert (gaps["start"] // US).tolist() == [180, 260, 291, 240, 110]
    assert gaps["before"].tolist() == ["c", "f", "g", "d", "a"]
    assert gaps["after"].tolist() == ["d", "g", "y", "e", "b"]
    assert gaps["category"].tolist() == ["other", "other", "host wait", "other", "kernel wait"]


def test_gaps_of_rounded_stamps_are_counted_but_not_shown(run):
    """Events that follow directly, with 1 ns between: three, beside one of 2 ns."""
    trace, end = TraceBuilder(0).kernel("k", 0, 1), 1.0
    for gap in (0.001, 0.001, 0.002, 0.001):
        trace.kernel("k", end + gap, 1)
        end += gap + 1
    section = run(IdleTime(), trace)
    row = section.table("devices").set_index("category").loc["other"]
    assert row[["idle", "count"]].tolist() == [5, 4]
    assert section.table("gaps")["duration"].tolist() == [2]
    assert next(chart for chart in section.charts if chart.name == "histogram").frame["count"].tolist() == [1]
    assert any(note.startswith("3 of the devices' 4 gaps last 1 ns") for note in section.notes)


def test_streams_are_in_order_of_their_numbers(run):
    """Whichever starts first, on whichever rank."""
    ranks = []
    for rank, streams in ((0, (22, 7)), (1, (84, 7, 24))):
        trace = TraceBuilder(rank, world_size=2)
        for place, stream in enumerate(streams):
            trace.kernel("k", place, 1, stream=stream).kernel("k", 20 + place, 1, stream=stream)
        ranks.append(trace)
    section = run(IdleTime(), *ranks)
    assert section.table("streams")["stream"].tolist() == [7, 22, 7, 24, 84]
    chart = next(chart for chart in section.charts if chart.name == "streams")
    assert chart.frame["stream"].drop_duplicates().tolist() == ["stream 7", "stream 22", "stream 24", "stream 84"]


def test_steps_of_gaps_are_whole_numbers(run):
    """The step in which the next event is launched; nothing outside of steps, and never 3.0."""
    trace = TraceBuilder(0).step(3, 0, 100).kernel("a", 10, 10, launch=(5, 1)).kernel("b", 40, 10, launch=(30, 1))
    trace.kernel("c", 150, 5, launch=(140, 1))
    section = run(IdleTime(), trace)
    steps = section.table("gaps").set_index("after")["step"]
    assert steps["b"] == 3
    assert isinstance(steps["b"], int)
    assert pd.isna(steps["c"])


def test_gaps_count_from_the_zero_of_the_report(run):
    """Rank 1 starts first: its start is the zero for the gaps of rank 0, to the nanosecond."""
    late = TraceBuilder(0, base_ns=BASE_NS + 3).kernel("a", 10, 10).kernel("b", 40, 10)
    early = TraceBuilder(1, base_ns=BASE_NS).cpu_op("aten::mm", 5, 1)
    assert run(IdleTime(), late, early).table("gaps")["start"].tolist() == [15 * US + 3]


def test_only_the_twenty_largest_of_all_ranks(run):
    """25 gaps on each of two ranks, of 1 to 25 and of 101 to 125 µs."""
    ranks = []
    for rank in (0, 1):
        trace, start = TraceBuilder(rank, world_size=2).kernel("k", 0, 1), 1
        for gap in range(1, 26):
            start += gap + 100 * rank
            trace.kernel("k", start, 1)
            start += 1
        ranks.append(trace)
    gaps = run(IdleTime(), *ranks).table("gaps")
    assert set(gaps["rank"]) == {1}
    assert (gaps["duration"] // US).tolist() == list(range(125, 105, -1))


def test_interval_statistics(run):
    """Other gaps of stream 7: 50, 5 and 30 µs; quantiles are linear, the deviation is that of a sample."""
    table = run(IdleTime(), two_streams()).table("intervals").set_index(["stream", "category"])
    row = table.loc[(7, "other")]
    assert row["count"] == 3
    assert (row["mean"], row["std"]) == pytest.approx((85 * US / 3, 22.5462 * US), rel=1e-5)
    assert row[["min", "p25", "p50", "p75", "max"]].tolist() == [5 * US, 17.5 * US, 30 * US, 40 * US, 50 * US]
    assert set(table.index) == {(7, "host wait"), (7, "kernel wait"), (7, "other"), (9, "host wait")}
    assert table.loc[(9, "host wait"), ["count", "mean", "std"]].tolist() == [1, 125 * US, 0]


def test_deviation_of_one_is_that_of_kernels(run):
    """One gap and one call: 0 both."""
    trace = TraceBuilder(0).kernel("a", 0, 10).kernel("b", 15, 10)
    assert run(IdleTime(), trace).table("intervals")["std"].tolist() == [0]
    assert run(KernelBreakdown(), trace).table("kernels")["std"].tolist() == [0, 0]


def test_labels_say_on_which_side_of_the_gap(run):
    """Gap of 5 µs between a and b."""
    section = run(IdleTime(), TraceBuilder(0).kernel("a", 0, 10).kernel("b", 15, 10))
    table = next(table for table in section.tables if table.spec.name == "gaps")
    row, label = table.frame.iloc[0], {column.name: column.label for column in table.spec.columns}
    assert {label[name]: row[name] for name in ("before", "after")} == {"Ran before": "a", "Runs next": "b"}


@pytest.mark.parametrize(
    ("delay", "kernel_wait", "other"), [("30", 2, 85), ("30.001", 32, 55), ("60", 82, 5), ("2", 0, 87)]
)
def test_the_delay_is_in_microseconds(run, delay, kernel_wait, other):
    """Gaps below it are kernel wait; gaps of just that length are not, nor those without launch."""
    section = run(IdleTime.configured({"consecutive_kernel_delay": delay}), two_streams())
    causes = by_cause(section.table("streams"), stream=7)
    assert (causes.get("kernel wait", (0, 0))[0], causes["other"][0]) == (kernel_wait, other)


def test_a_delay_that_is_no_number():
    """The message names the option."""
    with pytest.raises(UsageError, match="consecutive_kernel_delay: 'soon' is not a number"):
        IdleTime.configured({"consecutive_kernel_delay": "soon"})


def test_touching_and_nested_events_leave_no_gap(run):
    """Touching, nested and empty events: one gap of 5 µs, after the latest end so far."""
    trace = TraceBuilder(0).kernel("a", 0, 30).kernel("b", 5, 5).kernel("c", 30, 10).kernel("z", 20, 0)
    trace.kernel("d", 45, 5)
    section = run(IdleTime(), trace)
    assert by_cause(section.table("devices")) == {"host wait": (0, 0), "kernel wait": (0, 0), "other": (5, 1)}
    assert by_cause(section.table("streams")) == {"other": (5, 1)}
    assert section.table("gaps")["before"].tolist() == ["c"]


def test_an_event_of_no_length_splits_a_gap(run):
    """Gaps are between events, so one at 20 within [10, 50] makes two."""
    trace = TraceBuilder(0).kernel("a", 0, 10).kernel("z", 20, 0).kernel("b", 50, 10)
    assert by_cause(run(IdleTime(), trace).table("devices"))["other"] == (40, 2)


def test_time_between_captures_is_no_gap(tmp_path):
    """Nor does the end of one capture reach into the next."""
    from htareport.run.runner import analyze

    one = TraceBuilder(0).kernel("a", 0, 10).kernel("b", 15, 10).write(tmp_path / "one.json")
    two = TraceBuilder(0).kernel("c", 9000, 10).kernel("d", 9020, 10).write(tmp_path / "two.json")
    section = analyze({0: (one, two)}, analyses=[IdleTime()])["idle_time"]
    assert by_cause(section.table("devices"))["other"] == (5 + 10, 2)
    assert by_cause(section.table("streams"))["other"] == (5 + 10, 2)


def test_devices_do_not_mix(run):
    """Equal stream numbers on two devices are two streams."""
    trace = TraceBuilder(4, devices=2).kernel("a", 0, 10).kernel("b", 5, 20, device=1)
    trace.kernel("a", 30, 10).kernel("b", 40, 10, device=1)
    section = run(IdleTime(), trace)
    for table in (section.table("devices"), section.table("streams")):
        assert by_cause(table, device=0)["other"] == (20, 1)
        assert by_cause(table, device=1)["other"] == (15, 1)


def test_one_kernel_has_no_gaps(run):
    """Its rows are zero, its ratios unknown, and there is no fact."""
    section = run(IdleTime(), TraceBuilder(0).kernel("a", 0, 5))
    table = section.table("devices")
    assert table["category"].tolist() == list(CAUSES)
    assert table["idle"].tolist() == [0, 0, 0]
    assert table["ratio"].isna().all()
    assert section.table("gaps").empty
    assert section.fact("host_wait_share") is None


def test_a_rank_without_device_events_has_no_row(run):
    """And a note names it."""
    section = run(IdleTime(), two_streams(0), TraceBuilder(1).cpu_op("aten::mm", 0, 5))
    assert set(section.table("devices")["rank"]) == {0}
    assert any("rank 1" in note for note in section.notes)


def test_not_applicable_without_device_events(run):
    """The reason says what to record."""
    assert run(IdleTime(), TraceBuilder(0).cpu_op("aten::mm", 0, 5)).status is Status.NOT_APPLICABLE


def test_charts(run):
    """Device bars hold the causes; the histogram counts every device gap once, in a bin that holds it."""
    section = run(IdleTime(), two_streams())
    charts = {chart.name: chart for chart in section.charts}
    assert charts["devices"].frame.set_index("part")["value"].to_dict() == {
        "host wait": 9 * US, "kernel wait": 2 * US, "other": 85 * US,
    }  # fmt: skip
    streams = charts["streams"].frame
    assert streams[streams["stream"] == "stream 9"]["idle"].sum() == 125 * US
    histogram = charts["histogram"].frame
    assert histogram["count"].sum() == 5
    fifty = histogram[(histogram["left"] <= 50 * US) & (histogram["right"] > 50 * US)]
    assert fifty["count"].tolist() == [1]


def test_work_launched_in_the_window_only(run):
    """Gaps lie between the events of the chosen steps."""
    trace = TraceBuilder(0).step(1, 0, 100).step(2, 100, 100).kernel("a", 10, 10, launch=(5, 1))
    trace.kernel("b", 30, 10, launch=(6, 1)).kernel("c", 110, 10, launch=(105, 1)).kernel("d", 127, 3, launch=(106, 1))
    assert by_cause(run(IdleTime(), trace, steps="2").table("devices"))["kernel wait"] == (7, 1)
