"""Device events that do not fit, ranks that differ, and options that were not recorded."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from htareport.rules.quality.events import ImpossibleTimes, Orphans
from htareport.rules.quality.job import Clocks, MissingOptions, MixedDevices


def test_work_without_a_launch(findings):
    """Two of those behind the first with a launch; what runs before was launched before the recording."""
    trace = TraceBuilder().kernel("a", 0, 5).kernel("b", 10, 5, launch=(8, 1)).kernel("c", 20, 5, stream=9)
    trace.kernel("d", 30, 5, launch=(25, 1)).kernel("c", 40, 5, stream=9)
    told = findings([Orphans()], trace)["Q5"]
    assert told.title == "66.7\u202f% of the GPU's work has no launch in the trace"
    assert "2 on stream 9" in told.evidence
    assert findings([Orphans(share=0.7)], trace) == {}


def test_work_launched_before_the_recording(findings):
    trace = TraceBuilder().kernel("a", 0, 5).kernel("a", 5, 5).kernel("b", 10, 5, launch=(8, 1))
    assert findings([Orphans()], trace) == {}


def overlapping(by, launch_name="cudaLaunchKernel"):
    trace = TraceBuilder().kernel("a", 0, 50, launch=(0, 1))
    return trace.kernel("b", 50 - by, 50, launch=(1, 1), launch_name=launch_name).kernel("c", 30, 50, stream=9)


def test_a_stream_in_two_places_at_once(findings):
    """10 of 150 µs; other streams may well run at the same time."""
    told = findings([ImpossibleTimes()], overlapping(10))["Q6"]
    assert told.evidence.startswith("1 event overlaps another of the same stream, by 10.0\u202fµs in all")
    assert findings([ImpossibleTimes()], overlapping(1)) == {}


def test_launches_that_may_begin_early(findings):
    assert findings([ImpossibleTimes()], overlapping(10, "cudaLaunchKernelExC")) == {}
    graph = TraceBuilder().graph_launch(0, 5, [("a", 10, 50), ("b", 40, 50)])
    assert findings([ImpossibleTimes()], graph) == {}


@pytest.mark.parametrize(("last", "number"), [(6000, 1), (4000, 0)])
def test_an_event_that_is_unlike_the_others(findings, last, number):
    """Ten of 10 and one of 6000 or 4000, with one of another name: in 12 000 from first to last."""
    trace = TraceBuilder()
    for begin in range(0, 1000, 100):
        trace.kernel("a", begin, 10)
    trace.kernel("a", 1000, last + 10).kernel("b", 11_000, 1000)
    assert len(findings([ImpossibleTimes()], trace)) == number


def ranks(*names):
    made = [TraceBuilder(rank, len(names)).kernel("a", 0, 10, launch=(0, 1)) for rank in range(len(names))]
    for trace, name in zip(made, names, strict=True):
        trace.metadata["deviceProperties"][0]["name"] = name
    return made


def test_mixed_devices(findings):
    told = findings([MixedDevices()], *ranks("H100", "A100", "A100", "H100"))["Q7"]
    assert told.evidence == "A100 on ranks 1, 2 and H100 on ranks 0, 3."
    assert findings([MixedDevices()], *ranks("A100", "A100")) == {}
    assert findings([MixedDevices()], *ranks("A100", "")) == {}


def collectives(*offsets, dur=100):
    """Three all-reduces, which every rank leaves at the same time by its own clock, so many µs off."""
    made = []
    for rank, offset in enumerate(offsets):
        trace = TraceBuilder(rank, len(offsets))
        for begin in (10_000, 20_000, 30_000):
            trace.collective(
                "ncclDevKernel_AllReduce", "allreduce", begin + offset, dur, launch=(begin + offset - 5, 1)
            )
        made.append(trace)
    return made


def test_clocks_that_differ(findings):
    told = findings([Clocks()], *collectives(0, 5, 60))["Q8"]
    assert told.title == "The clocks of the ranks are up to 60.0\u202fµs apart"
    assert "aligned by the ends of 3 collectives" in told.evidence
    assert told.ranks == (2,)


def test_clocks_within_what_cannot_be_told(findings):
    assert findings([Clocks()], *collectives(0, 5, 50)) == {}
    assert findings([Clocks()], *collectives(0, 0, 60, dur=1300)) == {}  # 5 % of it are 65.
    assert findings([Clocks()], *collectives(0)) == {}


def test_options_that_would_tell_more(findings):
    """The device is idle for most of the time, nothing but the launches is recorded of the host."""
    trace = TraceBuilder().kernel("a", 0, 10, launch=(0, 1)).kernel("b", 90, 10, launch=(80, 1))
    told = findings([MissingOptions()], trace)["Q9"]
    options = "`ProfilerActivity.CPU`, `record_shapes=True`, `profile_memory=True` and `with_stack=True`"
    assert told.title == f"More findings are possible with {options}"
    for option in ("record_shapes=True,", "profile_memory=True,", "with_stack=True,", "schedule(wait=5, warmup=3"):
        assert option in told.snippet


def test_all_options(findings):
    trace = TraceBuilder().kernel("a", 0, 10, launch=(0, 1)).kernel("b", 90, 10, launch=(80, 1))
    trace.cpu_op("aten::mm", 20, 30, **{"Input Dims": [[2, 2], [2, 2]]}).memory(25, 512, 1, 512, 1024)
    assert "Q9" in findings([MissingOptions()], trace)
    trace.python_function("f", 0, 90)
    assert findings([MissingOptions()], trace) == {}
