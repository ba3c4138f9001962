"""Copies that the device waits for."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from htareport.rules.host.copies import ExposedCopies, PageableCopies, TinyCopies

RULES = [PageableCopies(), ExposedCopies(), TinyCopies()]
PAGEABLE, PINNED = "HtoD (Pageable -> Device)", "HtoD (Pinned -> Device)"


def copying(kind, hidden=0, size=2_000_000, device="NVIDIA A100-SXM4-80GB"):
    """A copy of 200 µs in a step of 1000, of which a kernel hides so much."""
    trace = TraceBuilder().step(1, 0, 1000).memcpy(kind, 0, 200, bytes=size, launch=(0, 5))
    trace.kernel("a", 200 - hidden, 800, stream=9, launch=(6, 2))
    trace.metadata["deviceProperties"][0]["name"] = device
    return trace


def test_pageable_copies_by_the_trace_s_own(findings):
    """10 GB/s; a pinned copy of 2 MB in 50 µs, behind a kernel, shows 40: three quarters of 200 µs."""
    trace = copying(PAGEABLE).memcpy(PINNED, 300, 50, bytes=2_000_000, launch=(10, 2))
    told = findings(RULES, trace)
    assert {code: each.saving_ns for code, each in told.items()} == {"H16": 150_000}
    assert told["H16"].title.endswith("1.91\u202fMiB per step at 10.0\u202fGB/s")
    assert "40.0\u202fGB/s, as the trace's pinned copies do" in told["H16"].assumption


@pytest.mark.parametrize(
    ("device", "share"), [("NVIDIA H100 80GB HBM3", 1 - 10 / 50), ("NVIDIA A100-SXM4-80GB", 1 - 10 / 25),
                          ("Tesla V100-SXM2", 1 - 10 / 12)]
)  # fmt: skip
def test_pageable_copies_by_the_link(saved, device, share):
    assert saved(RULES, copying(PAGEABLE, device=device)) == {"H16": pytest.approx(200 * share, abs=0.001)}


def test_pageable_copies_that_are_small_or_hidden(saved):
    assert saved(RULES, copying(PAGEABLE, size=900_000)) == {}
    assert saved(RULES, copying(PAGEABLE, hidden=200)) == {}


@pytest.mark.parametrize("kind", [PINNED, "HtoD (Host -> Device)"])
def test_copies_that_are_not_overlapped(saved, kind):
    """150 of 200 are not hidden; on AMD it is not known which memory it is."""
    assert saved(RULES, copying(kind, hidden=50)) == {"H17": 150}
    assert saved(RULES, copying(kind, hidden=185)) == {}


def tiny(number, size=2048):
    """Copies of 2 µs every 10, each launched 1 before the one before has ended plus 7."""
    trace = TraceBuilder().step(1, 0, 1000)
    for place in range(number):
        trace.memcpy("DtoD (Device -> Device)", 10 * place, 2, bytes=size, launch=(10 * place - 3, 2))
    return trace


def test_tiny_copies(findings):
    """60 copies of 2; 59 gaps of 8, of which 7 until the launch returns."""
    told = findings(RULES, tiny(60))
    assert {code: each.saving_ns for code, each in told.items()} == {"H18": 60 * 2000 + 59 * 7000}
    assert told["H18"].title.endswith("60 of 2.00\u202fKiB each")


def test_fewer_or_larger_copies(saved):
    assert saved(RULES, tiny(40)) == {}
    assert saved(RULES, tiny(60, size=65_536)) == {}
