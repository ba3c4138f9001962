"""Small kernels one by one, and steps that a CUDA graph could replay."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from htareport.rules.host.launch import GraphCandidate, LaunchBound
from htareport.rules.host.runtime import SlowLaunches

RULES = [LaunchBound(), GraphCandidate()]


def small(dur=5, every=100, number=10):
    """Kernels that start 10 after their launch, in a step of 1000."""
    trace = TraceBuilder().step(1, 0, 1000)
    for place in range(number):
        trace.kernel("a", every * place + 50, dur, launch=(every * place + 40, 5))
    return trace


def test_small_kernels(findings):
    """Nine gaps of 95; of each the launch returns after 90, and the first 94 count."""
    told = findings(RULES, small())["H2"]
    assert (told.saving_ns, told.severity, told.confidence) == (855_000, "high", "medium")
    assert "10 of 10 device events per step" in told.evidence
    assert "which one step cannot show" in told.evidence


@pytest.mark.parametrize("trace", [small(dur=15), small(every=600, number=2)], ids=["long kernels", "long gaps"])
def test_long_kernels_and_long_gaps_are_something_else(saved, trace):
    assert saved([LaunchBound()], trace) == {}


def test_small_kernels_that_are_queued_cost_nothing(saved):
    trace = TraceBuilder().step(1, 0, 1000)
    for place in range(100):
        trace.kernel("a", 500 + 5 * place, 4, launch=(5 * place, 2))
    assert saved(RULES, trace) == {}


def steps(dur, names="aaa", *, blocked=False):
    """Three steps of 1000, two kernels in each, from 100 and from 400, launched 10 before."""
    trace = TraceBuilder()
    for number, name in enumerate(names):
        begin = 1000 * number
        trace.step(number, begin, 1000).kernel(name, begin + 100, dur, launch=(begin + 90, 5))
        trace.kernel("b", begin + 400, dur, launch=(begin + 390, 5))
        if blocked:
            trace.cpu_op("aten::item", begin + 150, 20).runtime("cudaStreamSynchronize", begin + 155, 10)
    return trace


def test_equal_steps_can_be_replayed(findings):
    """From the end of the first kernel, 115, to the return of the next launch, 395. Between steps it stays idle."""
    told = findings(RULES, steps(15))
    assert list(told) == ["H3"]
    assert (told["H3"].saving_ns, told["H3"].confidence) == (280_000, "high")
    assert "3 of 3 steps launch the same 2 kernels and copies" in told["H3"].evidence


def test_small_kernels_in_equal_steps_are_one_finding(findings):
    """With kernels of 5 the gap within is 105 to 395; those between steps, of which 500 at most count, are too long.

    Before the first kernel the GPU waits from 0 to 95 in the first of three steps.
    """
    told = findings(RULES, steps(5))
    assert list(told) == ["H2"]
    assert (told["H2"].saving_ns, told["H2"].confidence) == (290_000 + round(95_000 / 3), "high")
    assert told["H2"].title.endswith("for launches that a CUDA graph could replay")


def test_a_wait_stands_in_the_way(findings):
    assert findings([GraphCandidate()], steps(15, blocked=True)) == {}
    told = findings(RULES, steps(5, blocked=True))["H2"]
    assert "Prevents CUDA graph capture: `aten::item` 1× per step" in told.evidence
    assert told.confidence == "medium"


def test_other_work_in_a_step(findings):
    assert findings([GraphCandidate()], steps(15, names="aac")) == {}
    assert "Steps differ: 2 of 3 launch the same" in findings(RULES, steps(5, names="aac"))["H2"].evidence


def test_two_steps_prove_nothing(findings):
    assert findings([GraphCandidate()], steps(15, names="aa")) == {}


def replays(trace, begin, kernels):
    """A replay from 600 of a step on, 100 behind its launch of 50, which the device waits for."""
    return trace.graph_launch(begin + 500, 50, [(name, begin + 600 + at, 5) for at, name in enumerate(kernels)])


def test_a_step_that_is_one_graph(findings):
    """The device waits for the launch of each replay and of no kernel: no other graph would spare it."""
    trace = TraceBuilder()
    for number in range(3):
        replays(trace.step(number, 1000 * number, 1000), 1000 * number, "abc")
    assert findings([*RULES, SlowLaunches()], trace) == {}


@pytest.mark.parametrize(("dur", "code"), [(15, "H3"), (5, "H2")])
def test_a_graph_in_each_step(findings, dur, code):
    """What is launched one by one counts as without the graph; behind a graph, 607 to 1095 is a gap short enough."""
    trace = steps(dur)
    for number in range(3):
        replays(trace, 1000 * number, "ccc")
    told = findings(RULES, trace)
    assert {each: finding.saving_ns for each, finding in told.items()} == {
        code: {15: 280_000, 5: 290_000 + round((95_000 + 2 * 488_000) / 3)}[dur]
    }
    assert "3 of 3 steps launch the same 2 kernels and copies" in told[code].evidence
