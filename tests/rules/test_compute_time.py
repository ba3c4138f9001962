"""Where shorter device work runs alone, on paper values."""

from __future__ import annotations

import numpy as np
import pytest
from builder import TraceBuilder

from htareport.rank.compute_time import shortened
from htareport.rank.interval_sets import total
from htareport.trace import RankTrace


@pytest.fixture
def gain(tmp_path):
    """Return the intervals in µs if the events, in order of start, take so many µs less."""

    def gained(trace, saving):
        rank = RankTrace.load(0, trace.write(tmp_path / "rank0.json"))
        sets = shortened(rank, np.array(saving, np.float64) * 1000)
        assert all(len(rows) for rows in sets.values())
        zero = rank.captures[0].base_ns
        return [((rows - zero) / 1000).tolist() for rows in sets.values()]

    return gained


def test_work_that_runs_alone(gain):
    """The first 40 of 100 µs, launched long before; all of the next."""
    trace = TraceBuilder().kernel("a", 100, 100, launch=(0, 1)).kernel("b", 200, 30, launch=(2, 1))
    assert gain(trace, [40, 50]) == [[[100, 140], [200, 230]]]


def test_what_others_cover_is_no_gain(gain):
    """Of 100 µs 60 run alone: 10 before and 50 behind the copy."""
    trace = TraceBuilder().kernel("a", 100, 100, launch=(0, 1)).memcpy("HtoD", 110, 40, stream=9, launch=(2, 1))
    assert gain(trace, [30, 0]) == [[[100, 110], [150, 170]]]
    assert gain(trace, [100, 40]) == [[[100, 110], [150, 200]]]


def test_within_the_steps(gain):
    """50 µs of the kernel lie behind the step."""
    trace = TraceBuilder().step(1, 0, 150).kernel("a", 100, 100, launch=(0, 1))
    assert gain(trace, [80]) == [[[100, 150]]]


def test_devices_and_captures_each_on_their_own(gain):
    trace = TraceBuilder(devices=2).kernel("a", 100, 100, launch=(0, 1))
    trace.kernel("b", 120, 50, device=1, launch=(2, 1))
    assert gain(trace, [30, 20]) == [[[100, 130]], [[120, 140]]]


def test_parts_of_a_ns_are_not_lost(tmp_path):
    """Three times a third."""
    trace = TraceBuilder().kernel("a", 0, 100).kernel("a", 100, 100).kernel("a", 200, 100)
    rank = RankTrace.load(0, trace.write(tmp_path / "rank0.json"))
    assert total(shortened(rank, np.full(3, 100_000 / 3))) == 100_000
