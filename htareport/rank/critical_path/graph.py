"""The graph of a window: what must end before what can begin, and how long that takes.

Every event has two points, its start and its end. An edge's weight is the time between its points where that time is
work or the machine's own delay, and 0 where one only waits for the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from htareport.algorithms.critical_path import Edges, Graph, ordered
from htareport.rank.critical_path.activity import Activity
from htareport.rank.critical_path.device_edges import DeviceEdges
from htareport.rank.critical_path.host_edges import HostEdges
from htareport.rank.critical_path.points import Kind, Numbers, Points, Rules
from htareport.rank.critical_path.waits import SyncFinder, Syncs

__all__ = ["ActivityGraph", "Kind", "Rules", "activity_graph"]

_NO_EDGES = Edges.of(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64), Kind.HOST)


@dataclass(frozen=True)
class ActivityGraph:
    """Graph of a window. Point p of `place` (2 e: start of event e, 2 e + 1: its end) is node place[p].

    `stamps` are the times of the nodes (ns), put right where a device event starts before its launch; `shifted` counts
    those. `points` is the inverse of `place`. The last two points are the window's own ends, if `has_ends`.
    """

    activity: Activity
    graph: Graph
    place: Numbers
    points: Numbers
    stamps: Numbers
    shifted: int
    has_ends: bool


def activity_graph(activity: Activity, rules: Rules) -> ActivityGraph:
    """Build the graph of a window."""
    syncs = SyncFinder(activity).find() if len(activity.trace.device_events) else Syncs()
    has_ends = rules.python_time and not activity.span.is_whole
    points = Points(activity, syncs, has_ends=has_ends)
    parts = [_NO_EDGES, *HostEdges(points, rules).parts, *DeviceEdges(points, rules).parts]
    graph, place = ordered(points.times, points.levels, points.ties, parts)
    inverse = np.empty_like(place)
    inverse[place] = np.arange(len(place))
    return ActivityGraph(activity, graph, place, inverse, points.times[inverse], points.shifted, has_ends)
