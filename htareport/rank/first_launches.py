"""First launches of a process, which load modules."""

from __future__ import annotations

from htareport.rank.host_rows import by_lane
from htareport.rank.idle import Cause
from htareport.rank.interval_sets import Sets, common
from htareport.rank.rank import Rank

_SLOW_NS = 1_000_000  # A launch call that takes so long does more than launch.


def first_launches(rank: Rank) -> Sets:
    """Idle time in launch calls of 1 ms and more that are the first of their kernel in the recording."""
    events, calls = rank.device_events, rank.launches
    launch = events["launch"].to_numpy()
    rows = launch[(launch >= 0) & ~events["name"].duplicated().to_numpy()]
    chosen = rows[calls["dur"].to_numpy()[rows] >= _SLOW_NS]
    start, end, capture = (calls[name].to_numpy()[chosen] for name in ("ts", "end", "capture"))
    runs = by_lane(rank, start, end, capture)
    return common(rank.idle_by(Cause.LAUNCHING), runs)
