"""The memory of devices: full, fragmented, growing, and whose it is."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from htareport.rules.memory.fragmentation import Fragmentation
from htareport.rules.memory.held import Growth, NearCapacity, PeakOwner

GIB = 2**30
CAPACITY = 100 * GIB


def holding(*levels, steps=0, **metadata):
    """Rows every 100 µs with bytes allocated and reserved in GiB, on a device of 100 GiB."""
    trace = TraceBuilder(**metadata)
    trace.metadata["deviceProperties"][0]["totalGlobalMem"] = CAPACITY
    before = 0
    for place, (allocated, reserved) in enumerate(levels):
        size = (allocated - before) * GIB
        trace.memory(100 * place + 50, size, 1000 + place, allocated * GIB, reserved * GIB)
        before = allocated
    for number in range(steps):
        trace.step(number, 100 * number, 100)
    return trace


def test_nearly_full(findings):
    trace = holding((50, 60), (80, 91), (20, 91)).cpu_op("autograd::engine::evaluate_function: MmBackward0", 10, 5)
    told = findings([NearCapacity()], trace)["M1"]
    assert told.title == "Memory is nearly full: 91.0\u202f% of 100\u202fGiB are reserved"
    assert "tensors take 80.0\u202fGiB at the peak" in told.evidence
    assert (told.severity, told.saving_ns) == ("medium", None)


def test_an_engine_for_inference_may_want_it(findings):
    told = findings([NearCapacity()], holding((50, 60), (80, 91)))["M1"]
    assert told.severity == "low"
    assert "gpu_memory_utilization" in told.advice


def test_room_left_or_size_unknown(findings):
    assert findings([NearCapacity()], holding((80, 90))) == {}
    unknown = holding((80, 91))
    unknown.metadata["deviceProperties"] = []
    assert findings([NearCapacity(), PeakOwner(), Fragmentation()], unknown) == {}
    assert findings([NearCapacity()], TraceBuilder().memory(0, GIB, 1, GIB, device=None)) == {}


def test_fragmented(findings):
    """30 of 80 GiB hold nothing at the peak; for 100 of the 300 µs recorded as much is unused."""
    told = findings([Fragmentation()], holding((60, 70), (70, 80), (50, 80), (70, 80)))
    assert told == {}  # The peak itself is well used.
    told = findings([Fragmentation()], holding((45, 80), (50, 80), (50, 80)))["M3"]
    assert told.title.startswith("37.5\u202f% of the reserved memory holds no tensors")
    assert "for 100\u202f% of the time" in told.evidence


def test_a_moment_of_it_or_room_enough_is_no_fragmentation(findings):
    assert findings([Fragmentation()], holding((60, 60), (60, 60), (60, 60), (60, 60), (61, 85), (60, 60))) == {}
    assert findings([Fragmentation()], holding((30, 60), (30, 60))) == {}


def test_growth(findings):
    """4 GiB more after each of four steps, and 84 left: full after 21 more."""
    told = findings([Growth()], holding(*((4 * n, 4 * n) for n in (1, 2, 3, 4)), steps=4))["M5"]
    assert told.title == "Memory grows by 4.00\u202fGiB with every step"
    assert "full after 21 more steps" in told.evidence
    assert told.severity == "high"


@pytest.mark.parametrize(
    ("levels", "steps"), [((4, 8, 12), 3), ((4, 8, 8, 12), 4), ((4, 8, 6, 12), 4), ((1, 1, 1, 1), 4)]
)
def test_few_steps_and_what_comes_back_are_no_growth(findings, levels, steps):
    assert findings([Growth()], holding(*((level, level) for level in levels), steps=steps)) == {}


def test_growth_names_who_keeps_it(findings):
    trace = holding(*((4 * n, 4 * n) for n in (1, 2, 3, 4)), steps=4).cpu_op("aten::cat", 120, 300)
    assert "was allocated in `aten::cat`" in findings([Growth()], trace)["M5"].evidence


def test_who_holds_the_peak(findings):
    """40 of 75 GiB were allocated in one operator."""
    trace = holding((35, 40), (75, 80)).cpu_op("aten::bmm", 140, 30)
    told = findings([PeakOwner()], trace)["M6"]
    assert told.title == "`aten::bmm` holds 53.3\u202f% of the memory at the peak"
    assert "40.0\u202fGiB of 75.0\u202fGiB" in told.evidence


def test_no_owner_is_named_where_it_is_nobody_or_there_is_room(findings):
    assert findings([PeakOwner()], holding((35, 40), (75, 80))) == {}
    assert findings([PeakOwner()], holding((35, 40), (55, 60)).cpu_op("aten::bmm", 140, 30)) == {}


def test_the_fullest_rank_is_told(findings):
    first = holding((90, 92), rank=0, world_size=2)
    second = holding((94, 95), rank=1, world_size=2)
    assert "95.0\u202f% of" in findings([NearCapacity()], first, second)["M1"].title
