"""What analyses and rules share of a trace."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from htareport.rank.cached import cached_on_rank, cached_until_release
from htareport.rank.collective_calls import call_frames
from htareport.rank.collective_names import labels_of
from htareport.rank.window import Window
from htareport.trace import RankTrace


def test_each_trace_and_each_window_has_its_own(tmp_path):
    """Twice the same object of one trace; another window sees other events."""
    made = TraceBuilder(0).step(1, 0, 100).step(2, 100, 100)
    for number in range(3):
        made.collective("ncclDevKernel_AllReduce", "allreduce", 50 * number, 10, launch=(50 * number, 1))
    trace = RankTrace.load(0, made.write(tmp_path / "rank0.json"))
    assert labels_of(trace) is labels_of(trace)
    assert call_frames(trace)["calls"] is call_frames(trace)["calls"]
    assert len(labels_of(trace)) == 3
    assert len(labels_of(trace.narrowed(Window.parse("2")))) == 1
    assert labels_of.__doc__.startswith("What is known of each communication kernel")


@pytest.mark.parametrize("cached", [cached_on_rank, cached_until_release])
def test_each_argument_has_its_own(cached, tmp_path):
    """Each rank and each argument is computed once; what takes room until it is released."""
    computed = []

    @cached
    def numbers(rank, by, *, plus=0):
        computed.append((rank.rank, by, plus))
        return rank.rank * by + plus

    path = TraceBuilder(0).write(tmp_path / "rank0.json")
    ranks = [RankTrace.load(number, path) for number in (1, 10)]
    for _ in range(2):
        assert [numbers(rank, 2) for rank in ranks] == [2, 20]
        assert numbers(ranks[0], 3) == 3
        assert numbers(ranks[0], 3, plus=1) == 4
    assert computed == [(1, 2, 0), (10, 2, 0), (1, 3, 0), (1, 3, 1)]
    ranks[0].release()
    assert numbers(ranks[0], 3) == 3
    assert len(computed) == (5 if cached is cached_until_release else 4)
