"""What launching costs, on paper values."""

from __future__ import annotations

import pandas as pd
import pytest
from builder import TraceBuilder

from htareport.analyses.host.launch_stats import LaunchStats, launch_rows
from htareport.errors import UsageError
from htareport.report import Status
from htareport.run.runner import analyze
from htareport.trace import RankTrace

US = 1000


def launched(trace: TraceBuilder, call: str, category: str = "cuda_runtime", at: int = 0) -> TraceBuilder:
    """Add a call of 4 µs and its kernel of 20 µs, which starts 6 µs after the call's end."""
    correlation = 100 + len(trace.events)
    trace.complete(category, call, trace.pid, trace.pid, (at, 4), {"correlation": correlation})
    args = {"device": 0, "stream": 7, "correlation": correlation}
    return trace.complete("kernel", f"of {call}", 0, 7, (at + 10, 20), args)


def three_launches(rank: int = 0) -> TraceBuilder:
    """Calls of 10, 6 and 12 µs; delays 15, 99 and none, since c starts 7 µs before its call ends; kernels 135 µs."""
    trace = TraceBuilder(rank, world_size=2).kernel("a", 25, 100, launch=(0, 10)).kernel("b", 125, 5, launch=(20, 6))
    return trace.kernel("c", 205, 30, launch=(200, 12))


def by_call(section) -> pd.DataFrame:
    return section.table("calls").set_index("call")


def rows_of(tmp_path, trace: TraceBuilder) -> pd.DataFrame:
    return launch_rows(RankTrace.load(0, trace.write(tmp_path / "rank0.json")))


def counts_of(section) -> list[int]:
    """Short kernels, long calls, excessive delays of the only rank."""
    return section.table("ranks").iloc[0][["short", "long_call", "long_delay"]].tolist()


def test_durations_and_delays_of_a_call(run):
    """Calls take 10 + 6 + 12 µs, kernels 100 + 5 + 30, delays are 15, 125 - 26 and 0."""
    section = run(LaunchStats(), three_launches())
    row = by_call(section).loc["cudaLaunchKernel"]
    assert row[["count", "events"]].tolist() == [3, 3]
    assert row[["cpu", "cpu_max", "gpu"]].tolist() == [28 * US, 12 * US, 135 * US]
    assert row["cpu_mean"] == pytest.approx(28 * US / 3)
    assert row[["delay_mean", "delay_max"]].tolist() == [38 * US, 99 * US]


def test_a_kernel_that_starts_before_its_launch_ends_has_no_delay(run, tmp_path):
    """One starts 7 µs before the end of the call, one just at it, one 3 µs before the call itself: never negative."""
    trace = TraceBuilder(0).kernel("within", 5, 30, launch=(0, 12)).kernel("at_end", 44, 5, launch=(40, 4))
    trace.kernel("before", 57, 5, launch=(60, 2)).kernel("a_ns_later", "74.001", 5, launch=(70, 4))
    assert rows_of(tmp_path, trace)["delay"].tolist() == [0, 0, 0, 1]
    row = by_call(run(LaunchStats(), trace)).loc["cudaLaunchKernel"]
    assert row[["delay_mean", "delay_max"]].tolist() == [0.25, 1]


@pytest.mark.parametrize(
    ("call", "category"),
    [
        ("cudaLaunchKernel", "cuda_runtime"),
        ("cudaLaunchKernelExC", "cuda_runtime"),
        ("cudaLaunchCooperativeKernel", "cuda_runtime"),
        ("cuLaunchKernel", "cuda_driver"),
        ("cuLaunchKernelEx", "cuda_driver"),
        ("hipLaunchKernel", "cuda_runtime"),
        ("hipModuleLaunchKernel", "cuda_runtime"),
        ("hipExtModuleLaunchKernel", "cuda_runtime"),
        ("hipLaunchCooperativeKernel", "hip_runtime"),
        ("runFunction - job_prep_and_submit_for_execution", "mtia_runtime"),
        ("cudaLaunchKernel", "Runtime"),  # As in 2021.
        ("a call of tomorrow", "privateuse1_runtime"),
    ],
)
def test_any_runtime_or_driver_call_with_device_work_is_a_launch(run, call, category):
    """Call 4 µs, delay 6, kernel 20."""
    row = by_call(run(LaunchStats(), launched(TraceBuilder(0), call, category))).loc[call]
    assert row[["count", "events", "cpu", "delay_max", "gpu"]].tolist() == [1, 1, 4 * US, 6 * US, 20 * US]


def test_calls_of_different_names_are_kept_apart_the_most_expensive_first(run):
    """Two of the runtime: 8 µs; the others 4 µs each, in order of their names."""
    trace = TraceBuilder(0)
    calls = ("hipLaunchKernel", "cudaLaunchKernel", "cudaLaunchCooperativeKernel", "cudaLaunchKernel")
    for number, call in enumerate(calls):
        launched(trace, call, at=100 * number)
    launched(trace, "cuLaunchKernel", "cuda_driver", at=400)
    table = run(LaunchStats(), trace).table("calls")
    assert list(zip(table["call"], table["count"], table["cpu"] // US, strict=True)) == [
        ("cudaLaunchKernel", 2, 8),
        ("cuLaunchKernel", 1, 4),
        ("cudaLaunchCooperativeKernel", 1, 4),
        ("hipLaunchKernel", 1, 4),
    ]


def test_copies_and_fills_are_launches(run):
    """Each under the name of its call."""
    trace = TraceBuilder(0).memcpy("HtoD (Pinned -> Device)", 20, 10, 64, launch=(0, 5))
    table = by_call(run(LaunchStats(), trace.memset(40, 2, 64, launch=(30, 3))))
    assert table["delay_max"].to_dict() == {"cudaMemcpyAsync": 15 * US, "cudaMemsetAsync": 7 * US}


@pytest.mark.parametrize("call", ["cudaGraphLaunch", "hipGraphLaunch"])
def test_a_graph_launch_is_one_row(run, tmp_path, call):
    """Call [0, 8], first kernel at 20: delay 12; kernels of 5, 4 and 9 µs; the first one names the row."""
    trace = TraceBuilder(0).graph_launch(0, 8, [("b", 26, 4), ("a", 20, 5), ("c", 31, 9)])
    trace.events[0]["name"] = call
    [row] = rows_of(tmp_path, trace).to_dict("records")
    assert (row["call"], row["name"], row["graph"], row["events"]) == (call, "a", True, 3)
    assert (row["cpu"], row["delay"], row["gpu"]) == (8 * US, 12 * US, 18 * US)
    section = run(LaunchStats(), trace.kernel("d", 60, 1, launch=(50, 2)))
    assert section.table("ranks").iloc[0][["launches", "graphs", "unlinked"]].tolist() == [2, 1, 0]
    assert by_call(section).loc[call, ["count", "events"]].tolist() == [1, 3]


def test_rows_are_in_order_of_the_calls(tmp_path):
    """With correlation, kernel, device and stream; the file has them the other way around."""
    trace = TraceBuilder(0, devices=2).kernel("late", 50, 1, stream=9, device=1, launch=(40, 2))
    rows = rows_of(tmp_path, trace.kernel("early", 80, 1, launch=(30, 2)))
    columns = ["correlation", "name", "device", "stream", "graph"]
    assert rows[columns].to_numpy().tolist() == [[2, "early", 0, 7, False], [1, "late", 1, 9, False]]


def test_of_several_calls_of_one_id_the_earliest_counts(run):
    """The runtime call [0, 9] contains the driver call [2, 5] of the same correlation: delay 20 - 9."""
    trace = TraceBuilder(0).kernel("k", 20, 5, launch=(0, 9))
    trace.complete("cuda_driver", "cuLaunchKernel", trace.pid, trace.pid, (2, 3), {"correlation": 1})
    table = by_call(run(LaunchStats(), trace))
    assert table.index.tolist() == ["cudaLaunchKernel"]
    assert table.loc["cudaLaunchKernel", ["cpu", "delay_max"]].tolist() == [9 * US, 11 * US]


def test_calls_without_device_work_are_no_launches(tmp_path):
    """Neither a launch that lost its kernel nor a synchronisation; the report says how many lost it."""
    trace = three_launches().runtime("cudaLaunchKernel", 300, 80, 900).runtime("cudaDeviceSynchronize", 400, 500, 901)
    report = analyze(trace.write(tmp_path / "rank0.json"), analyses=[LaunchStats()])
    assert by_call(report["launch_stats"]).loc["cudaLaunchKernel", ["count", "cpu_max"]].tolist() == [3, 12 * US]
    assert counts_of(report["launch_stats"])[1] == 0  # Not even the call of 80 µs is long.
    assert any("rank 0: 1 of 4 launches have no device event" in warning for warning in report.warnings)


def test_device_events_without_launch_are_counted(run):
    """One with an id that no call has, and two of ids 0 and -1, which link nothing though calls have them as well."""
    trace = three_launches().kernel("lost", 300, 5)
    for correlation in (0, -1):
        trace.runtime("cudaLaunchKernel", 400, 5, correlation).kernel("k", 420, 5, correlation=correlation)
    section = run(LaunchStats(), trace)
    assert section.table("ranks").iloc[0][["launches", "unlinked"]].tolist() == [3, 3]


@pytest.mark.parametrize(
    ("cpu", "gpu", "cutoff", "counts"),
    [
        (5, 4, "50", [1, 0, 0]),
        (5, 5, "50", [0, 0, 0]),  # Not shorter than its call.
        (50, 4, "50", [1, 0, 0]),  # Just within the cut-off.
        ("50.001", 4, "50", [0, 1, 0]),  # Above it the call is long, and so the kernel not short.
        (5, 4, "4.5", [0, 1, 0]),
        (51, 100, "51", [0, 0, 0]),
    ],
)
def test_short_kernels_and_long_calls(run, cpu, gpu, cutoff, counts):
    """Short: the call is within the cut-off and longer than the kernel. Long: the call is above the cut-off."""
    trace = TraceBuilder(0).kernel("k", 60, gpu, launch=(0, cpu))
    assert counts_of(run(LaunchStats.configured({"runtime_cutoff": cutoff}), trace)) == counts


@pytest.mark.parametrize(
    ("start", "cutoff", "excessive"), [(110, "100", 0), ("110.001", "100", 1), (110, "99.9", 1), (12, "0", 1)]
)
def test_excessive_delays_are_above_their_cut_off(run, start, cutoff, excessive):
    """The call ends at 10."""
    trace = TraceBuilder(0).kernel("k", start, 20, launch=(0, 10))
    assert counts_of(run(LaunchStats.configured({"launch_delay_cutoff": cutoff}), trace)) == [0, 0, excessive]


def test_cut_offs_are_50_and_100_us_and_never_negative():
    """The message names the option."""
    assert LaunchStats.options() == {"runtime_cutoff": 50.0, "launch_delay_cutoff": 100.0}
    with pytest.raises(UsageError, match=r"runtime_cutoff: -1 is outside its range: at least 0"):
        LaunchStats.configured({"runtime_cutoff": "-1"})


def test_histograms_hold_each_launch_once_in_a_bin_around_it(run):
    """Short: call of 6 µs. Long: 70 and 71 µs, of one bin, and 900. Delays: 150 µs and 2000, on two ranks."""
    one = TraceBuilder(0, world_size=2).kernel("short", 10, 5, launch=(0, 6)).kernel("a", 350, 500, launch=(130, 70))
    two = TraceBuilder(1, world_size=2).kernel("b", 75, 5, launch=(0, 71)).kernel("c", 3000, 5, launch=(100, 900))
    charts = {chart.name: chart for chart in run(LaunchStats(), one, two).charts}
    assert list(charts) == ["short", "long_call", "long_delay"]
    for name, expected in {"short": {6: 1}, "long_call": {70: 2, 900: 1}, "long_delay": {150: 1, 2000: 1}}.items():
        frame = charts[name].frame
        assert frame["count"].sum() == sum(expected.values())
        for value, count in expected.items():
            assert frame[(frame["left"] <= value * US) & (value * US < frame["right"])]["count"].tolist() == [count]


def test_histograms_of_nothing_are_not_drawn(run):
    """One call of 5 µs, delay 5, kernel 20: nothing deserves a look. The captions name the cut-offs."""
    trace = TraceBuilder(0).kernel("k", 10, 20, launch=(0, 5))
    assert run(LaunchStats(), trace).charts == ()
    section = run(LaunchStats(runtime_cutoff=2.5, launch_delay_cutoff=3), trace)
    assert [chart.name for chart in section.charts] == ["long_call", "long_delay"]
    assert ["2.5 µs" in section.charts[0].caption, "3 µs" in section.charts[1].caption] == [True, True]


def test_ranks_are_pooled_by_call(run):
    """Delays of 15, 99 and 0 and one of 46 µs: their mean is 40; the longest call is that of 20 µs."""
    section = run(LaunchStats(), three_launches(0), TraceBuilder(1, 2).kernel("d", 66, 5, launch=(0, 20)))
    row = by_call(section).loc["cudaLaunchKernel"]
    assert row[["count", "events", "cpu", "gpu"]].tolist() == [4, 4, 48 * US, 140 * US]
    assert row[["cpu_mean", "cpu_max", "delay_mean", "delay_max"]].tolist() == [12 * US, 20 * US, 40 * US, 99 * US]
    ranks = section.table("ranks").set_index("rank")
    assert ranks[["launches", "cpu"]].to_numpy().tolist() == [[3, 28 * US], [1, 20 * US]]
    assert ranks["short"].tolist() == [1, 1]  # b: 6 µs for 5; d: 20 µs for 5.


def test_a_rank_without_launches_has_no_row(run):
    """And a note names it; ranks 0 and 5 are there, 1 to 4 are not."""
    lacking = TraceBuilder(5, world_size=6).kernel("k", 0, 5)
    section = run(LaunchStats(), three_launches(), lacking)
    assert section.table("ranks")["rank"].tolist() == [0]
    assert section.notes == (
        "Without rank 5: no launches are linked to GPU work: profile with ProfilerActivity.CPU as well",
    )


def test_captures_do_not_share_launches(tmp_path):
    """Both files count correlations from 1; delays 15, 99 and 0, and 50 in the second."""
    first = three_launches().write(tmp_path / "one.json")
    second = TraceBuilder(0, 2).kernel("d", 9055, 5, launch=(9000, 5)).write(tmp_path / "two.json")
    section = analyze({0: (first, second)}, analyses=[LaunchStats()])["launch_stats"]
    row = by_call(section).loc["cudaLaunchKernel"]
    assert row[["count", "cpu", "delay_mean"]].tolist() == [4, 33 * US, 41 * US]


def test_launches_of_the_chosen_steps_only(run):
    """The call of step 1 is left out although its kernel runs in step 2."""
    trace = TraceBuilder(0).step(1, 0, 100).step(2, 100, 100).kernel("a", 120, 10, launch=(90, 8))
    trace.kernel("b", 140, 10, launch=(110, 3))
    section = run(LaunchStats(), trace, steps="2")
    assert by_call(section).loc["cudaLaunchKernel", ["count", "cpu", "delay_max"]].tolist() == [1, 3 * US, 27 * US]


@pytest.mark.parametrize(
    "trace",
    [
        TraceBuilder(0).cpu_op("aten::mm", 0, 5),
        TraceBuilder(0).runtime("cudaLaunchKernel", 0, 5, 1),
        TraceBuilder(0).kernel("k", 0, 5),
    ],
    ids=["host only", "without kernels", "without calls"],
)
def test_not_applicable_without_linked_launches(run, trace):
    """The reason says what to record."""
    section = run(LaunchStats(), trace)
    assert section.status is Status.NOT_APPLICABLE
    assert "ProfilerActivity.CPU" in section.reason
