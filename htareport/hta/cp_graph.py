"""`CPGraph`: the graph of a critical path, its breakdown and summary, under HTA's names. Times are µs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from htareport.export.critical_path import Arrow, PathMarks, Point
from htareport.hta import cp_files
from htareport.hta.cp_lookups import PathLookups
from htareport.hta.cp_types import ATTRIBUTED, HTA_BOUNDS, SHOWN, TYPES, CPEdge, CPEdgeType, events_frame
from htareport.hta.units import PER_US
from htareport.rank.critical_path.graph import ActivityGraph, Kind
from htareport.rank.critical_path.summary import BOUNDS, bounds_of

if TYPE_CHECKING:
    from htareport.hta.common.trace import Trace

_INSIDE_NS = 1  # An arrow from the end of an event begins this long before it, so that viewers link it to the event.


class CPGraph(PathLookups):
    """Graph of a window of one rank.

    Events are the rows of `trace_df` (index, s_name, cat, pid, tid, stream: -1 on the host, ts, dur: µs); their index
    is that of the same event in `Trace.get_trace`. What if: `graph.set_weight(edge, µs)` or
    `graph.edges[begin, end]["weight"] = µs`, then `graph.critical_path()` again.
    """

    def __init__(self, saved: cp_files.Saved, t_full: Trace | None = None) -> None:
        """`saved.nodes` has event (row of the events, -1: an end of the window), is_start and ts (ns)."""
        self._graph, self._nodes, self._bounds, events, self._location = saved
        self.rank = self._location["rank"]
        self.trace_df = events.set_index("index", drop=False).rename_axis(None)
        self.t_full = t_full
        self._index = np.append(events["index"].to_numpy(np.int64), -1)  # Event -1 takes the last.
        self._weights = self._graph.weight.copy()
        self.critical_path()

    @classmethod
    def from_activity(cls, graph: ActivityGraph, rank: int, zero_ns: int, t_full: Trace | None = None) -> CPGraph:
        """Return the graph of a window of a rank."""
        events, span = graph.points // 2, graph.activity.span
        events = np.where(events < graph.activity.size, events, -1)
        nodes = pd.DataFrame({"event": events, "is_start": graph.points % 2 == 0, "ts": graph.stamps - zero_ns})
        capture_number = span.capture or 0
        first_event = sum(capture.events for capture in graph.activity.trace.captures[:capture_number])
        location = {"rank": rank, "start_ns": zero_ns, "capture": capture_number, "first_event": first_event}
        frame = events_frame(graph, zero_ns)
        return cls(cp_files.Saved(graph.graph, nodes, bounds_of(graph), frame, location), t_full)

    @property
    def full_trace_df(self) -> pd.DataFrame:
        """All events of the rank. ValueError for a graph that was restored without its trace."""
        if self.t_full is None:
            raise ValueError("this graph was restored without its trace: give t_full to restore_cpgraph")
        return self.t_full.get_trace(self.rank)

    # --- the path ---------------------------------------------------------------------------

    def critical_path(self) -> bool:
        """Compute the longest path with the current weights of edges. Always True, as there are no cycles."""
        self._graph = self._graph.with_weights(self._weights)
        self._weights = self._graph.weight.copy()
        self.__dict__.pop("_breakdown", None)
        self.__dict__.pop("critical_path_edges_set", None)
        return True

    @property
    def critical_path_length(self) -> float:
        """Length of the path (µs)."""
        return self._graph.path.length / PER_US

    @property
    def critical_path_nodes(self) -> list[int]:
        """Nodes of the path, in order."""
        nodes: list[int] = self._graph.path.nodes.tolist()
        return nodes

    @property
    def critical_path_events_set(self) -> set[int]:
        """Events whose start or end is on the path."""
        return set(self._events[self._graph.path.nodes].tolist()) - {-1}

    @cached_property
    def critical_path_edges_set(self) -> set[CPEdge]:
        """Edges of the path."""
        return {self._edge(number) for number in self._graph.path.edges.tolist()}

    def get_critical_path_breakdown(self) -> pd.DataFrame:
        """One row per edge of the path, in order, with the event that its time belongs to.

        Columns: event_idx, duration (µs), type, s_name, cat, pid, tid, stream, index, bound_by, and ts (µs) at which
        the edge ends. Edges without weight, and those between events, are bound by nothing.
        """
        return self._breakdown.copy()

    @cached_property
    def _breakdown(self) -> pd.DataFrame:
        graph, edges = self._graph, self._graph.path.edges
        kind, owner = graph.kind[edges], graph.owner[edges]
        attributed = np.isin(kind, ATTRIBUTED) & (owner >= 0)
        frame = pd.DataFrame(
            {
                "event_idx": pd.Series(self._index[owner], dtype="Int64").where(pd.Series(attributed), pd.NA),
                "duration": graph.weight[edges] / PER_US,
                "type": [TYPES[Kind(number)].value for number in kind.tolist()],
            }
        )
        joined = frame.join(self.trace_df[["s_name", "cat", "pid", "tid", "stream", "index"]], on="event_idx")
        names = [HTA_BOUNDS[BOUNDS[number]].value for number in self._bounds[edges].tolist()]
        free = np.isin(kind, (Kind.BETWEEN, Kind.SYNC)) & (graph.weight[edges] == 0)
        joined["bound_by"] = np.where(free, "", np.array(names, object)) if names else ""
        joined["ts"] = self._nodes["ts"].to_numpy()[graph.dst[edges]] / PER_US
        return joined

    def _repr_html_(self) -> str:
        """Show the summary in a notebook."""
        return str(self.summary().rename("% of the path").to_frame().round(2).to_html())

    def bound_by(self, row: Mapping[str, Any] | pd.Series[Any]) -> str:
        """What limits the time of a row of the breakdown."""
        return str(row["bound_by"])

    def summary(self) -> pd.Series[float]:
        """Share of the path's length (%) by what limits it."""
        sums = self._breakdown.groupby("bound_by")["duration"].sum()
        return sums / sums.sum() * 100

    def show_critical_path(self) -> pd.DataFrame:
        """Nodes of the path in order: node, ev_idx, is_start, ts (µs), s_name."""
        nodes = self._graph.path.nodes
        events, stamps = self._events[nodes], self._nodes["ts"].to_numpy()[nodes] / PER_US
        names = self.trace_df["s_name"].reindex(events).to_numpy()
        columns = {"node": nodes, "ev_idx": events, "is_start": self._nodes["is_start"].to_numpy()[nodes]}
        return pd.DataFrame({**columns, "ts": stamps, "s_name": names})

    @property
    def slack(self) -> pd.Series[float]:
        """How much longer each edge (begin, end) could take (µs) without a longer path."""
        pairs = pd.MultiIndex.from_arrays([self._graph.src, self._graph.dst], names=["begin", "end"])
        return pd.Series(self._graph.slack / PER_US, pairs, name="slack")

    # --- files ------------------------------------------------------------------------------

    def marks(
        self, *, all_edges: bool = False, zero_launches: bool = False, types: Collection[CPEdgeType] = SHOWN
    ) -> PathMarks:
        """Return the marks of the path in a copy of its trace: its events, and arrows for edges of some types.

        With `all_edges` the argument `critical` of arrows says whether they are on the path.
        """
        graph, first_event = self._graph, self._location["first_event"]
        points, on_path = self._points(), set(graph.path.edges.tolist())
        arrows = []
        for number in range(len(graph.src)) if all_edges else sorted(on_path):
            edge = self._edge(number)
            is_free_launch = edge.type is CPEdgeType.KERNEL_LAUNCH_DELAY and not edge.weight
            if (
                edge.type in types
                and (zero_launches or not is_free_launch)
                and min(self.get_events_for_edge(edge)) >= 0
            ):
                args = {"type": edge.type.value, "weight": edge.weight, "critical": number in on_path}
                arrows.append(Arrow(points[edge.begin], points[edge.end], args))
        events = frozenset(event - first_event for event in self.critical_path_events_set)
        return PathMarks(self._location["capture"], events, arrows)

    def _points(self) -> list[Point]:
        """Time and thread of each node in the file; the end of an event counts as within it."""
        event, stamps = self._nodes["event"].to_numpy(), self._nodes["ts"].to_numpy() + self._location["start_ns"]
        pids, tids, durations = ([*self.trace_df[name].tolist(), 0] for name in ("pid", "tid", "dur"))
        inside = ~self._nodes["is_start"].to_numpy() & (np.array(durations)[event] > 0)
        rows = zip(event.tolist(), (stamps - inside * _INSIDE_NS).tolist(), strict=True)
        return [Point(stamp, pids[row], tids[row]) for row, stamp in rows]

    def save(self, out_dir: str | Path) -> str:
        """Write `out_dir`.zip with the graph as arrays and JSON; return its path. restore_cpgraph reads it."""
        path = Path(f"{out_dir}.zip")
        graph = self._graph.with_weights(self._weights)
        events = self.trace_df.reset_index(drop=True)
        cp_files.save(path, cp_files.Saved(graph, self._nodes, self._bounds, events, self._location))
        return str(path)


def restore_cpgraph(zip_filename: str | Path, t_full: Trace | None = None, rank: int | None = None) -> CPGraph:
    """Read what CPGraph.save wrote; the trace is not needed. ValueError (naming the file) if it is something else."""
    restored = CPGraph(cp_files.load(zip_filename), t_full)
    restored.rank = restored.rank if rank is None else rank
    return restored
