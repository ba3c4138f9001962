"""How memory is used: room that is left, what is allocated again and again, and peaks of a moment."""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from rules.test_memory import CAPACITY, GIB, holding

from htareport.rules.host.launch import LaunchBound
from htareport.rules.memory.use import Churn, Headroom, Spike


def launching(peak, *, kernel=5, capacity=CAPACITY):
    """A step of 1000 µs: ten kernels, each behind 80 µs in which the host dispatches; tensors take `peak` GiB."""
    trace = TraceBuilder().step(1, 0, 1000).memory(50, peak * GIB, 1, peak * GIB, peak * GIB)
    trace.metadata["deviceProperties"][0]["totalGlobalMem"] = capacity
    for number in range(11):
        start = 10 + 90 * number
        trace.cpu_op("aten::add", start - 9, 8).kernel("add", start, kernel, launch=(start - 3, 1))
    return trace


def test_headroom(findings):
    """85 of 100 GiB hold 20 some 4.25 times; the host dispatches in ten gaps of 85 µs, but for 2 each of the start."""
    told = findings([LaunchBound(), Headroom()], launching(20))["M2"]
    assert told.title == "Only 20.0\u202f% of the memory is used: a batch 4.2 times as large fits"
    assert "tensors take 20.0\u202fGiB of 100\u202fGiB at the peak" in told.evidence
    assert "the GPU is idle for 83.8\u202f% of the step while the CPU dispatches" in told.evidence
    assert f"saves {round(838 * (1 - 1 / 4.25))}\u202fµs of that per step" in told.evidence
    assert (told.saving_ns, told.severity) == (None, "medium")


def test_only_training_has_a_learning_rate(findings):
    """A backward pass or an optimizer tells that it is."""
    rules = [LaunchBound(), Headroom()]
    serving, training = launching(20), launching(20).annotation("Optimizer.step#AdamW.step", 900, 10)
    told = [findings(rules, trace)["M2"] for trace in (serving, training)]
    assert ["adjust the learning rate" in each.advice for each in told] == [False, True]
    assert [bool(each.snippet) for each in told] == [False, True]


@pytest.mark.parametrize(
    ("rules", "trace"),
    [
        ([LaunchBound(), Headroom()], launching(50)),
        ([LaunchBound(), Headroom()], launching(20, kernel=84)),
        ([LaunchBound(), Headroom()], launching(20, capacity=None)),
        ([Headroom()], launching(20)),
    ],
    ids=["half full", "busy", "size unknown", "kernels not looked at"],
)
def test_no_headroom(findings, rules, trace):
    assert "M2" not in findings(rules, trace)


def churning(times, *, empty=40):
    """A step that allocates and frees a GiB again and again; before the second kernel the host is in aten::empty."""
    trace = TraceBuilder().step(1, 0, 1000).kernel("a", 10, 400, launch=(5, 1)).kernel("b", 500, 100, launch=(498, 1))
    trace.cpu_op("aten::empty_strided", 450, empty)
    for number in range(times):
        trace.memory(20 + 2 * number, GIB, 1, GIB, 4 * GIB).memory(21 + 2 * number, -GIB, 1, 0, 4 * GIB)
    return trace


def test_churn(findings):
    told = findings([Churn()], churning(21))["M4"]
    assert told.saving_ns == 40_000
    assert "21 allocations take 21.0\u202fGiB in all per step, 21 times the peak of 1.00\u202fGiB" in told.evidence


@pytest.mark.parametrize("trace", [churning(20), churning(21, empty=9)], ids=["20 times", "0.9 %"])
def test_no_churn(findings, trace):
    assert findings([Churn()], trace) == {}


def test_spike(findings):
    """80 GiB for 4 of 100 rows of 100 µs, 60 at most before and behind."""
    levels = [(60, 85)] * 50 + [(80, 85)] * 4 + [(55, 85)] * 47
    trace = holding(*levels).cpu_op("aten::cross_entropy_loss", 5040, 30)
    told = findings([Spike()], trace)["M7"]
    assert told.title == "Memory peaks at 80.0\u202fGiB for a moment; nearly all the time it is 60.0\u202fGiB at most"
    assert "hold more than that for only 4.00\u202f% of the time" in told.evidence
    assert told.evidence.endswith("The last allocation before the peak is in `aten::cross_entropy_loss`.")


@pytest.mark.parametrize(
    "levels",
    [
        [(60, 85)] * 50 + [(80, 85)] * 6 + [(55, 85)] * 45,
        [(65, 85)] * 50 + [(80, 85)] * 4 + [(55, 85)] * 47,
        [(30, 50)] * 50 + [(50, 50)] * 4 + [(30, 50)] * 47,
    ],
    ids=["6 %", "19 % above", "room enough"],
)
def test_no_spike(findings, levels):
    assert findings([Spike()], holding(*levels)) == {}


def test_a_spike_outside_of_steps_does_not_count(findings):
    levels = [(60, 85)] * 10 + [(80, 85)] + [(60, 85)] * 30
    trace = holding(*levels)
    assert "M7" in findings([Spike()], trace)
    assert findings([Spike()], trace.step(1, 1200, 2500)) == {}
