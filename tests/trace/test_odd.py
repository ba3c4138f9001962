"""Odd things that traces hold: none is lost, none passes for something else, and what cannot be is said."""

from __future__ import annotations

import json

import pytest
from builder import TraceBuilder

from htareport import analyze
from htareport.report import Status
from htareport.trace import RankTrace, Trace

HOUR = 3600 * 10**6


def test_some_files_without_a_base_time(tmp_path):
    """Their ranks are on no common clock, which is said; ranks need not begin at 0."""
    TraceBuilder(3, 8).kernel("gemm", 0, 10).write(tmp_path / "3.json")
    TraceBuilder(5, 8, baseTimeNanoseconds=None).kernel("gemm", 0, 10).write(tmp_path / "5.json")
    report = analyze(tmp_path)
    said = "some files give a base time and others do not: times cannot be compared between their ranks"
    assert said in report.warnings
    assert report["temporal_breakdown"].table()["rank"].tolist() == [3, 5]
    assert all(section.status is not Status.FAILED for section in report.sections)


@pytest.mark.parametrize("base", [0, 1_700_000_000_000_000_000])
def test_events_far_from_all_others(base, load):
    """Two days before or after: they are recorded, so they count, but they are named."""
    made = TraceBuilder(base_ns=base)
    for at in (100 * HOUR, 100 * HOUR + 20, 148 * HOUR, 52 * HOUR):
        made.kernel("gemm", at, 10)
    trace = load(made)
    assert len(trace.device_events) == 4
    (warning,) = trace.warnings
    assert warning == (
        "h.10000000000.pt.trace.json: 2 events lie more than an hour from all others, and the time between counts as "
        "recorded"
    )


def test_a_long_recording_is_not_odd(load):
    """Hours without a pause of an hour."""
    made = TraceBuilder()
    for part in range(12):
        made.kernel("gemm", part * HOUR // 2, 10)
    assert load(made).warnings == ()


def test_unknown_categories_that_look_like_device_work(load, row):
    """They are host rows, since nobody knows better, and are named; those without a stream are just host rows."""
    made = TraceBuilder().event(row("gpu_dance", "waltz", stream=3)).event(row("host_dance", "polka", steps=3))
    made.kernel("gemm", 0, 5)
    trace = load(made)
    assert trace.device_events["name"].tolist() == ["gemm"]
    (warning,) = trace.warnings
    assert warning == (
        "h.10000000000.pt.trace.json: rows of unknown categories have a stream: gpu_dance; they are taken for host "
        "rows, not for device work"
    )


def test_thousands_of_metadata_events(load):
    """They cost no other event, and are counted."""
    made = TraceBuilder()
    for number in range(4000):
        args = {"name": f"thread {number}", "sort_index": number}
        made.event({"ph": "M", "name": "thread_name", "pid": 1, "tid": number, "ts": 0, "args": args})
        if number % 100 == 0:
            made.kernel("gemm", number, 5)
    trace = load(made)
    assert len(trace.device_events) == 40
    assert trace.loaded.counts["ph M"] == 4000


def test_a_rank_of_metadata_only(tmp_path):
    """Has no events, and takes no part in averages."""
    TraceBuilder(0, 2).kernel("gemm", 0, 10).write(tmp_path / "0.json")
    TraceBuilder(1, 2).event({"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "x"}}).write(
        tmp_path / "1.json"
    )
    report = analyze(tmp_path)
    table = report["temporal_breakdown"].table().set_index("rank")
    assert table.loc[0, "span"] == 10_000
    assert 1 not in table.index or table.loc[1, "num_device_events"] == 0
    assert all(section.status is not Status.FAILED for section in report.sections)
    assert "1.json: no event of any duration is in it, so it adds nothing to the numbers of its rank" in report.warnings


def test_what_the_profiler_dropped(load):
    """As its own log says, which Kineto writes behind the events."""
    counts = "INFO:2024-04-11 13:30:09 7:7 CuptiActivityProfiler.cpp:400] Record counts: Out-of-range = {}, "
    log = [(counts + "Blocklisted runtime = 9, CUPTI stopped early? = {}").format(*each) for each in ((12, 0), (4, 1))]
    dropped, stopped = load(TraceBuilder(INFO=log).kernel("k", 0, 5)).warnings
    assert dropped.endswith("the profiler dropped 16 records that lay outside of its window, as its own log says")
    assert "stopped early" in stopped
    for fine in ([counts.format(0) + "CUPTI stopped early? = 0"], "Out-of-range = 3", [5], None):
        assert load(TraceBuilder(INFO=fine).kernel("k", 0, 5)).warnings == ()


def test_events_without_categories(tmp_path):
    """As PyTorch's profiler of 2020 wrote them: read, but it is said what that is worth."""
    rows = [{"name": "aten::add", "ph": "X", "ts": 1, "dur": 2, "tid": 1, "pid": "CPU functions", "args": {}}]
    path = tmp_path / "old.json"
    path.write_text(json.dumps(rows))
    report = analyze(path)
    (warning,) = report.warnings
    assert warning.startswith("old.json: none of its events has a category, as where PyTorch's old profiler")
    rows.append(rows[0] | {"cat": "cpu_op"})
    path.write_text(json.dumps(rows))
    assert analyze(path).warnings == ()


def test_launches_without_any_device_event(tmp_path):
    """Are lost records, and not an idle device."""
    made = TraceBuilder(0)
    for number in range(5):
        made.runtime("cudaLaunchKernel", 10 * number, 5, correlation=number + 1)
    report = analyze(made.write(tmp_path / "a.json"))
    assert "GPU activity is missing: 5 launches have no device event" in " ".join(report.warnings)
    assert "idle" not in report.verdict
    assert report["temporal_breakdown"].status is Status.NOT_APPLICABLE


def test_ranks_of_files_with_different_bases(tmp_path):
    """Are on one clock: the same stamp with a base an hour later is an hour later."""
    for rank, base in enumerate((1_700_000_000 * 10**9, 1_700_003_600 * 10**9)):
        TraceBuilder(rank, 2, base_ns=base).kernel("gemm", "0.001", 10).write(tmp_path / f"{rank}.json")
    traces = [RankTrace.load(rank, path) for rank, path in Trace.open(tmp_path).files.items()]
    assert traces[1].start_ns - traces[0].start_ns == 3600 * 10**9


@pytest.mark.parametrize(
    ("category", "runtime", "args"),
    [
        ("kernel", "cuda_runtime", {"device": 0, "stream": 7}),
        ("kernel", "cuda_driver", {"device": 0, "stream": 0}),
        ("kernel", "xpu_runtime", {"device": 0, "sycl queue": 5}),
        ("mtia_ccp_events", "mtia_runtime", {"device": 1}),
        ("kernel", "privateuse1_runtime", {"device": 0, "stream": "0x0"}),
        ("Kernel", "Runtime", {"device": 0, "stream": 7}),
        ("kernel", "cuda_runtime", {"device": 0, "stream": 94_371_234_567_890_123}),
        ("kernel", "cuda_runtime", {"device": 0, "stream": 2**63 + 5}),
    ],
)
def test_every_family_of_devices(category, runtime, args, load, row):
    """A kernel with its launch, whatever the device and the age of the profiler."""
    made = TraceBuilder().event(row(runtime, "launch", 0, 5, 1, 1, correlation=9))
    trace = load(made.event(row(category, "gemm", 10, 5, correlation=9, **args)))
    (event,) = trace.device_events.to_dict("records")
    assert (event["name"], event["launch"], event["ts"] - trace.start_ns) == ("gemm", 0, 10_000)
    stream = next((args[key] for key in ("stream", "sycl queue") if key in args), 7)
    assert str(event["stream"]) == str(stream)
