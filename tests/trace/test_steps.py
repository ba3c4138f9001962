"""Steps and windows of hand-made traces."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from htareport.rank.capability import Capability
from htareport.rank.window import Window
from htareport.trace import RankTrace

TODAY = 1_750_000_000_123_456_789  # More digits than a float holds.


def test_steps_end_where_the_next_begins(load):
    """Not across a gap in the numbers; stamps stay exact; the twin on the GPU is no step."""
    builder = TraceBuilder(base_ns=TODAY)
    for number, start in ((2, 0), (3, 100), (5, "200.001"), (6, 300)):
        builder.step(number, start, 40).gpu_annotation(f"ProfilerStep#{number}", 1, 900)
    steps = load(builder.annotation("ProfilerStep#x", 1, 1).annotation("my ProfilerStep#9", 1, 1)).steps
    assert steps["number"].tolist() == [2, 3, 5, 6]
    assert (steps["start"] - TODAY).tolist() == [0, 100_000, 200_001, 300_000]
    assert (steps["end"] - TODAY).tolist() == [100_000, 140_000, 300_000, 340_000]
    assert steps["next"].tolist() == [True, False, True, False]
    assert steps.dtypes.astype(str).tolist() == ["int64"] * 4 + ["bool", "int64", "int64"]


def test_steps_that_overlap(load):
    """What happens then counts for the one that starts later, and it is said; steps that touch are none."""
    made = TraceBuilder().step(1, 0, 60).step(2, 50, 60).step(3, 110, 40).kernel("k", 70, 5, launch=(55, 1))
    trace = load(made)
    assert trace.device_events["step"].tolist() == [2]
    (warning,) = trace.warnings
    assert warning.endswith(
        "1 step goes on when the next begins (by up to 10.0\u202fµs); that time counts for the next"
    )
    assert load(TraceBuilder().step(1, 0, 50).step(2, 50, 60)).warnings == ()


@pytest.mark.parametrize("category", ["user_annotation", "cpu_op", "Operator", "anything"])
def test_steps_of_any_host_category(category, load, row):
    """The first of several rows of a number counts; numbers beyond 31 bits are none."""
    builder = TraceBuilder(base_ns=0)
    for number, start in ((1, 50), (1, 10), (0, 0), (10**15, 5), (1, 60)):
        builder.event(row(category, f"ProfilerStep#{number}", ts=start, dur=7))
    steps = load(builder).steps
    assert steps[["number", "start", "end"]].to_numpy().tolist() == [[0, 0, 10_000], [1, 10_000, 17_000]]


def test_steps_of_several_captures(load):
    """A step does not last into the next capture, even if its number follows."""
    trace = load(*(TraceBuilder(base_ns=TODAY).step(n, 1000 * n, 100).kernel("k", 1000 * n + 5, 5) for n in range(3)))
    assert (trace.steps["end"] - trace.steps["start"]).tolist() == [100_000] * 3
    assert trace.steps["capture"].tolist() == [0, 1, 2]
    assert trace.device_events["step"].tolist() == [0, 1, 2]
    assert trace.all_step_numbers == (0, 1, 2)


@pytest.fixture
def stepped():
    """Three steps of 100 µs; kernels launched before, in and behind each; the last step loses its work."""
    builder = TraceBuilder()
    for number in range(3):
        builder.step(number, 100 * number, 95)
    builder.kernel("a", 5, 150, launch=(1, 2)).kernel("b", 160, 10, launch=(99, 2)).kernel("c", 171, 9, launch=(100, 2))
    builder.kernel("d", 210, 9, launch=(205, 2)).kernel("no launch", 250, 9)
    return builder.runtime("cudaLaunchKernel", 294, 1, 99)


@pytest.mark.parametrize(
    ("window", "names", "steps"),
    [
        (Window(), ["a", "b", "c", "d", "no launch"], [0, 1, 2]),
        (Window.parse("all"), ["a", "b", "c", "d", "no launch"], [0, 1, 2]),
        (Window.parse("1"), ["c"], [1]),
        (Window.parse("0,2-9"), ["a", "b", "d", "no launch"], [0, 2]),
        (Window.parse("7"), [], []),
        (Window.parse("complete"), ["a", "b", "c"], [0, 1]),
        (Window(without_last_step=True), ["a", "b", "c"], [0, 1]),
    ],
)
def test_windows(window, names, steps, stepped, load):
    """What belongs to a window: the step in which the launch starts counts, without launch the own start."""
    trace = load(stepped, window=window)
    assert trace.device_events["name"].tolist() == names
    assert trace.steps["number"].tolist() == steps
    assert trace.all_step_numbers == (0, 1, 2)
    assert (Capability.STEPS in trace.capabilities) == bool(steps)
    assert load(stepped).narrowed(window).device_events.equals(trace.device_events)


def test_a_window_of_steps_without_steps(load):
    """Then everything is in it; of a single step, nothing is taken away."""
    for builder in (
        TraceBuilder().kernel("k", 10, 5),
        TraceBuilder().step(3, 0, 100).kernel("k", 10, 5, launch=(1, 2)),
    ):
        for window in (Window(without_last_step=True), Window(complete_only=True)):
            assert len(load(builder, window=window).device_events) == 1


def test_numbers_that_start_again_are_counted_on(tmp_path):
    """Three captures with the steps 1 and 2 each give the steps 1 to 6, and a warning says so."""
    files = []
    for capture in range(3):
        at = 1_000 * capture
        builder = TraceBuilder(0).step(1, at, 100).step(2, at + 100, 100).kernel("k", at + 10, 50, launch=(at + 5, 1))
        files.append(builder.write(tmp_path / f"rank0.{capture}.json"))
    trace = RankTrace.load(0, files)
    assert trace.steps["number"].tolist() == [1, 2, 3, 4, 5, 6]
    assert trace.steps["written"].tolist() == [1, 2] * 3
    assert trace.device_events["step"].tolist() == [1, 3, 5]
    assert any("start again" in warning for warning in trace.warnings)


def test_numbers_that_go_on_stay(tmp_path):
    """Cycles of one profiler count on by themselves."""
    files = [
        TraceBuilder(0).step(number, 1_000 * number, 100).write(tmp_path / f"rank0.{number}.json") for number in (7, 9)
    ]
    trace = RankTrace.load(0, files)
    assert trace.steps["number"].tolist() == [7, 9]
    assert trace.warnings == ()
