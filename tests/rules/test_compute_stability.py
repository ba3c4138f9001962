"""Kernels of unequal times for equal work, by themselves and beside collectives."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from builder import TraceBuilder
from rules.computing import states

from htareport.rules.compute.stability import SlowedByCommunication, UnstableKernels

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def stepped(times: Callable[[int, int], int], steps: int = 5, calls: int = 2) -> TraceBuilder:
    """Steps of 1 ms with a gemm every 200 µs, launched before them all; the host waits for them."""
    trace = TraceBuilder()
    for step in range(steps):
        at = 1000 * (step + 1)
        trace.step(step, at, 1000).runtime("cudaDeviceSynchronize", at + 20, 900)
        for call in range(calls):
            trace.kernel("gemm", at + 100 + 200 * call, times(step, call), launch=(at + 1 + call, "0.1"))
    return trace


UNSTABLE = UnstableKernels()


def test_unstable(findings):
    """At the first place 40, 40, 40, 120, 120 and at the second 100 five times: 80 twice above the best quarter."""
    trace = stepped(lambda step, call: 100 if call else 120 if step > 2 else 40)
    told = findings([UNSTABLE], trace)["C13"]
    assert told.saving_ns == 2 * 80_000 / 5
    assert "`gemm` 32.0\u202fµs per step" in told.evidence


def test_equal_places_are_no_reason(tell):
    """Long at one place and short at another, but in each step the same."""
    assert states(tell([UNSTABLE], stepped(lambda _, call: 40 + 80 * call))) == {"C13": "fine"}


@pytest.mark.parametrize(
    "trace",
    [
        stepped(lambda step, _: 120 if step > 1 else 40, steps=4, calls=3),
        stepped(lambda step, _: 120 if step > 2 else 40, calls=1),
        stepped(lambda step, call: 100 if call else 50 if step > 2 else 40),
        stepped(lambda step, _: 120 if step > 2 else 40).kernel("gemm", 5600, 40),
    ],
    ids=["four steps", "five calls", "little", "not in each step as many"],
)
def test_not_unstable(tell, trace):
    assert states(tell([UNSTABLE], trace)) == {"C13": "fine"}


def test_unstable_beside_others(tell):
    """What a copy overlaps has a reason."""
    trace = stepped(lambda step, call: 100 if call else 120 if step > 2 else 40)
    for at in (4000, 5000):
        trace.memcpy("HtoD", at + 110, 100, stream=9)
    assert states(tell([UNSTABLE], trace)) == {"C13": "fine"}


def test_other_shapes_are_other_work(tell):
    trace = TraceBuilder()
    for step in range(5):
        at = 1000 * (step + 1)
        trace.step(step, at, 1000)
        for call in range(2):
            length = 512 if step > 2 and not call else 64
            trace.cpu_op("aten::mm", at + 4 * call, 3, **{"Input Dims": [[length, 8]], "Input type": ["float"]})
            launch = (at + 1 + 4 * call, "0.1")
            trace.kernel("gemm", at + 200 * (call + 1), 120 if length == 512 else 40, launch=launch)
    assert states(tell([UNSTABLE], trace)) == {"C13": "fine"}


SLOWED = SlowedByCommunication()


def overlapped(beside: int = 60, alone: int = 40, count: int = 5, hidden: bool = True) -> TraceBuilder:  # noqa: FBT001, FBT002
    """A step of 1 ms with gemms alone, then as many beside a collective, which ends before the last or behind it."""
    trace, at = TraceBuilder(0, 2).step(1, 0, 1000), 100
    for number in range(count):
        trace.kernel("gemm", at, alone, launch=(1 + number, "0.1"))
        at += alone
    length = count * beside - 20 if hidden else count * beside + 20
    trace.collective(NCCL, "allreduce", at, length, launch=(40, "0.1"))
    for number in range(count):
        trace.kernel("gemm", at, beside, launch=(50 + number, "0.1"))
        at += beside
    return trace


def test_slowed(findings):
    """20 of 60 µs five times; they are still launched well ahead."""
    told = findings([SLOWED], overlapped(), TraceBuilder(1, 2).step(1, 0, 1000).kernel("gemm", 0, 10))["C14"]
    assert (told.saving_ns, told.low_ns, told.ranks) == (100_000, 0, (0,))
    assert "take 1.50 times as long while collectives run: `gemm` 100\u202fµs more per step" in told.evidence
    assert "In return, overlap hides 280\u202fµs of communication per step, which is more" in told.evidence


@pytest.mark.parametrize(
    "trace",
    [overlapped(hidden=False), overlapped(45), overlapped(count=4), overlapped().step(2, 1000, 20_000)],
    ids=["the collective outlasts it", "12 %", "four calls", "little"],
)
def test_not_slowed(tell, trace):
    assert states(tell([SLOWED], trace)) == {"C14": "fine"}


def test_what_a_copy_slows_is_not_compared(tell):
    """Those beside the copy are neither alone nor beside collectives: four are left."""
    assert states(tell([SLOWED], overlapped().memcpy("HtoD", 110, 20, stream=9))) == {"C14": "fine"}


def test_without_collectives(tell):
    assert not tell([SLOWED], TraceBuilder().kernel("gemm", 0, 10, launch=(0, 1))).tables


def test_only_what_is_slowed_is_listed(findings):
    """Others take as long beside the collective as without."""
    trace = overlapped()
    for number in range(10):
        trace.kernel("other", 20 * number if number < 5 else 250 + 20 * number, 2, launch=(60 + number, "0.1"))
    told = findings([SLOWED], trace, TraceBuilder(1, 2).step(1, 0, 1000).kernel("gemm", 0, 10))["C14"]
    assert "while collectives run: `gemm`" in told.evidence
    assert "`other`" not in told.evidence
