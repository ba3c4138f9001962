"""What analyses and rules share of a trace."""

from __future__ import annotations

from types import SimpleNamespace

from builder import TraceBuilder

from htareport.rank.cached import kept
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


def test_each_argument_has_its_own():
    asked = []

    @kept
    def times(owner, by, *, plus=0):
        asked.append((by, plus))
        return owner.size * by + plus

    owners = [SimpleNamespace(size=size, made={}) for size in (1, 10)]
    for _ in range(2):
        assert [times(owner, 2) for owner in owners] == [2, 20]
        assert times(owners[0], 3) == 3
        assert times(owners[0], 3, plus=1) == 4
    assert asked == [(2, 0), (2, 0), (3, 0), (3, 1)]
