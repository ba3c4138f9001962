"""How much of the device's arithmetic a step uses, and where the rest goes."""

from __future__ import annotations

import pytest
from rules.computing import Work, states

from htareport.rules.compute.copies import Moves
from htareport.rules.compute.utilisation import LowUtilisation

THIN = [[16, 4096], [4096, 4096]]  # 5.4e8 operations, 1.7 µs; its 33.8 MB take 21.7 µs.


def test_slow_products(findings):
    """A product of 500 µs takes 10 at the peak; 150 µs are other work, and 350 of 1000 nothing."""
    told = findings([LowUtilisation()], Work().mm(500).busy(150))["C22"]
    assert told.title == (
        "1.00\u202f% of the GPU's peak arithmetic is used (MFU); the largest part of the step is kernels below the roof"
    )
    assert told.evidence == (
        "Parts of the step on rank 0: kernels below the roof 49.0\u202f%, idle time 35.0\u202f%, kernels of other work "
        "15.0\u202f%, the arithmetic itself 1.00\u202f%. The number of operations is known for 76.9\u202f% of the "
        "compute kernels' time."
    )
    assert (told.saving_ns, told.severity) == (None, "low")


def test_memory_is_the_limit(findings):
    """Ten thin products of 22 µs, 21.7 of which memory needs, one after the other."""
    trace = Work(420)
    for _ in range(10):
        trace.mm(22, THIN)
    told = findings([LowUtilisation()], trace)["C22"]
    assert "waiting for memory 47.7\u202f%" in told.evidence
    assert "kernels below the roof 0.60\u202f%" in told.evidence


def test_kernels_beside_each_other_count_once(findings):
    """Other work beside the product on a second stream: half of the time that kernels run is each one's."""
    trace = Work().mm(600)
    told = findings([LowUtilisation(known=0.4)], trace.kernel("other", 200, 600, stream=9, launch=(100, 1)))["C22"]
    assert "kernels of other work 30.0\u202f%, kernels below the roof 29.0\u202f%" in told.evidence


@pytest.mark.parametrize(
    ("trace", "state"),
    [
        (Work(230).mm(11).mm(11).mm(11).mm(11).mm(11).mm(11).mm(11), "fine"),
        (Work().mm(500).busy(250), "fine"),
        (Work().mm(490), "fine"),
        (Work(name="a device").mm(500), "not checked: the limits of a device are not known"),
    ],
    ids=["30 %", "too little is known", "idle", "peak unknown"],
)
def test_no_low_utilisation(tell, trace, state):
    assert states(tell([LowUtilisation(), Moves()], trace))["C22"] == state
