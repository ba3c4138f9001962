"""`CPGraph`: the graph behind a critical path, with HTA's questions to it. Times are µs."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

import numpy as np
import pandas as pd

from htareport.algorithms.critical_path import Graph
from htareport.analyses.activity_graph import ActivityGraph, Kind
from htareport.analyses.path_summary import BOUNDS, bounds_of
from htareport.hta.cp_types import ATTRIBUTED, EVENT_COLUMNS, HTA_BOUNDS, TYPES, CPEdge, CPNode, events_frame
from htareport.hta.ranks import PER_US

_ARRAYS = ("src", "dst", "weight", "kind", "owner")
_VERSION = 1


class CPGraph:
    """Graph of a window of one rank.

    Events are rows of `trace_df` (s_name, cat, pid, tid, stream: -1 on the host, ts, dur: µs, index), which are counted
    within the window, host rows first. What if: `graph.set_weight(edge, µs)` or
    `graph.edges[begin, end]["weight"] = µs`, then `graph.critical_path()` again.
    """

    def __init__(self, graph: Graph, nodes: pd.DataFrame, bounds: np.ndarray[Any, Any], events: pd.DataFrame) -> None:
        """`nodes` has ev_idx (-1: an end of the window), is_start and ts (ns), `bounds` positions in BOUNDS by edge."""
        self.rank = 0
        self._graph, self._nodes, self._bounds = graph, nodes, bounds
        self._weights = graph.weight.copy()
        self.trace_df = events
        self.critical_path()

    @classmethod
    def of(cls, found: ActivityGraph, rank: int, zero_ns: int) -> CPGraph:
        """Take over the graph of a window."""
        event = found.points // 2
        nodes = pd.DataFrame(
            {
                "ev_idx": np.where(event < found.activity.size, event, -1),
                "is_start": found.points % 2 == 0,
                "ts": found.stamps - zero_ns,
            }
        )
        made = cls(found.graph, nodes, bounds_of(found), events_frame(found, zero_ns))
        made.rank = rank
        return made

    # --- the path ---------------------------------------------------------------------------

    def critical_path(self) -> bool:
        """Work out the longest path, with the weights that the edges have now. Always True: there are no cycles."""
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
        events = set(self._nodes["ev_idx"].to_numpy()[self._graph.path.nodes].tolist())
        return events - {-1}

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
                "event_idx": pd.Series(owner, dtype="Int64").where(pd.Series(attributed), pd.NA),
                "duration": graph.weight[edges] / PER_US,
                "type": [TYPES[Kind(number)].value for number in kind.tolist()],
            }
        )
        joined = frame.join(self.trace_df[["s_name", "cat", "pid", "tid", "stream", "index"]], on="event_idx")
        names = [HTA_BOUNDS[BOUNDS[number]] for number in self._bounds[edges].tolist()]
        free = np.isin(kind, (Kind.BETWEEN, Kind.SYNC)) & (graph.weight[edges] == 0)
        joined["bound_by"] = np.where(free, "", np.array(names, object)) if names else ""
        joined["ts"] = self._nodes["ts"].to_numpy()[graph.dst[edges]] / PER_US
        return joined

    def summary(self) -> pd.Series[float]:
        """Share of the path's length (%) by what bounds it."""
        sums = self._breakdown.groupby("bound_by")["duration"].sum()
        return sums / sums.sum() * 100

    def show_critical_path(self) -> pd.DataFrame:
        """Nodes of the path in order: node, ev_idx, is_start, ts (µs), s_name."""
        rows = self._nodes.iloc[self._graph.path.nodes]
        names = self.trace_df["s_name"].reindex(rows["ev_idx"]).to_numpy()
        return rows.assign(ts=rows["ts"] / PER_US, s_name=names).rename_axis("node").reset_index()

    @property
    def slack(self) -> pd.Series[float]:
        """How much longer each edge (begin, end) could be (µs) without making the path longer."""
        pairs = pd.MultiIndex.from_arrays([self._graph.src, self._graph.dst], names=["begin", "end"])
        return pd.Series(self._graph.slack / PER_US, pairs, name="slack")

    # --- look-ups ---------------------------------------------------------------------------

    @cached_property
    def node_list(self) -> list[CPNode]:
        """All nodes, in order of time."""
        columns = (self._nodes[name].tolist() for name in ("ev_idx", "ts", "is_start"))
        return [CPNode(i, e, t / PER_US, s) for i, (e, t, s) in enumerate(zip(*columns, strict=True))]

    @cached_property
    def _node_of(self) -> dict[tuple[int, bool], int]:
        pairs = zip(self._nodes["ev_idx"].tolist(), self._nodes["is_start"].tolist(), strict=True)
        return {pair: number for number, pair in enumerate(pairs)}

    def get_nodes_for_event(self, ev_id: int) -> tuple[CPNode | None, CPNode | None]:
        """Start and end node of an event, None where it has none."""
        found = [self._node_of.get((ev_id, is_start)) if ev_id >= 0 else None for is_start in (True, False)]
        start, end = (None if number is None else self.node_list[number] for number in found)
        return start, end

    def get_events_for_edge(self, edge: CPEdge) -> tuple[int, int]:
        """Events of the two nodes of an edge."""
        events = self._nodes["ev_idx"].to_numpy()
        return int(events[edge.begin]), int(events[edge.end])

    def get_event_attribution_for_edge(self, edge: CPEdge) -> int | None:
        """The event that an edge's time belongs to, None for launches, waits and the time between operators."""
        number = self._number(edge.begin, edge.end)
        owner = int(self._graph.owner[number])
        return owner if int(self._graph.kind[number]) in ATTRIBUTED and owner >= 0 else None

    def get_edges_attributed_to_event(self, ev_idx: int) -> list[CPEdge]:
        """Edges whose time belongs to an event."""
        mine = (self._graph.owner == ev_idx) & np.isin(self._graph.kind, ATTRIBUTED)
        return [self._edge(number) for number in np.flatnonzero(mine).tolist()]

    # --- weights ----------------------------------------------------------------------------

    @property
    def edges(self) -> Edges:
        """Edges by (begin, end), with their weight, for reading and changing."""
        return Edges(self)

    def set_weight(self, edge: CPEdge | tuple[int, int], weight: float) -> None:
        """Change how long an edge takes (µs, at least 0); `critical_path()` then takes it up."""
        begin, end = (edge.begin, edge.end) if isinstance(edge, CPEdge) else edge
        if not weight >= 0:
            raise ValueError(f"weight {weight}: an edge takes 0 µs or more")
        self._weights[self._number(begin, end)] = round(weight * PER_US)

    @cached_property
    def _numbers(self) -> dict[tuple[int, int], int]:
        pairs = zip(self._graph.src.tolist(), self._graph.dst.tolist(), strict=True)
        return {pair: number for number, pair in enumerate(pairs)}  # Of two between the same nodes the heavier is last.

    def _number(self, begin: int, end: int) -> int:
        try:
            return self._numbers[begin, end]
        except KeyError:
            raise KeyError(f"no edge from node {begin} to node {end}") from None

    def _edge(self, number: int) -> CPEdge:
        graph = self._graph
        kind, weight = TYPES[Kind(int(graph.kind[number]))], int(self._weights[number]) / PER_US
        return CPEdge(int(graph.src[number]), int(graph.dst[number]), kind, weight)

    # --- files ------------------------------------------------------------------------------

    def save(self, out_dir: str | Path) -> str:
        """Write `out_dir`.zip with the graph as arrays and JSON; return its path. restore_cpgraph reads it."""
        path = Path(f"{out_dir}.zip")
        path.parent.mkdir(parents=True, exist_ok=True)
        arrays = {name: getattr(self._graph, name) for name in _ARRAYS}
        arrays |= {"weight": self._weights, "bounds": self._bounds}
        arrays |= {f"node_{name}": self._nodes[name].to_numpy() for name in self._nodes}
        about = {"version": _VERSION, "rank": self.rank, "nodes": self._graph.nodes}
        events = {name: self.trace_df[name].tolist() for name in EVENT_COLUMNS}
        with ZipFile(path, "w", ZIP_DEFLATED) as archive:
            archive.writestr("graph.json", json.dumps(about | {"events": events}))
            for name, values in arrays.items():
                buffer = io.BytesIO()
                np.save(buffer, values, allow_pickle=False)
                archive.writestr(f"{name}.npy", buffer.getvalue())
        return str(path)


class Edges(Mapping[tuple[int, int], dict[str, Any]]):
    """Edges of a graph by (begin, end): {"weight": µs, "object": CPEdge}; a weight set here is set in the graph."""

    def __init__(self, graph: CPGraph) -> None:
        self._of = graph

    def __getitem__(self, pair: tuple[int, int]) -> dict[str, Any]:
        return _Attributes(self._of, self._of._edge(self._of._number(*pair)))  # noqa: SLF001  one thing in two classes

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._of._numbers)  # noqa: SLF001

    def __len__(self) -> int:
        return len(self._of._numbers)  # noqa: SLF001


class _Attributes(dict[str, Any]):
    def __init__(self, graph: CPGraph, edge: CPEdge) -> None:
        super().__init__(weight=edge.weight, object=edge)
        self._of, self._edge = graph, edge

    def __setitem__(self, name: str, value: Any) -> None:
        if name != "weight":
            raise KeyError(f"only the weight of an edge can be changed, not {name!r}")
        self._of.set_weight(self._edge, value)
        super().__setitem__(name, value)


def restore_cpgraph(zip_filename: str | Path, t_full: Any = None, rank: int | None = None) -> CPGraph:
    """Read what CPGraph.save wrote; the trace is not needed. ValueError (naming the file) if it is something else."""
    del t_full
    try:
        with ZipFile(zip_filename) as archive:
            about = json.loads(archive.read("graph.json"))
            arrays = {
                Path(name).stem: np.load(io.BytesIO(archive.read(name)), allow_pickle=False)
                for name in archive.namelist()
                if name.endswith(".npy")
            }
        graph = Graph(int(about["nodes"]), *(arrays[name] for name in _ARRAYS))
        if len({len(arrays[name]) for name in (*_ARRAYS, "bounds")}) > 1:
            raise ValueError("its arrays are of different lengths")  # noqa: TRY301  said with the file's name below
        nodes = pd.DataFrame({name: arrays[f"node_{name}"] for name in ("ev_idx", "is_start", "ts")})
        events = pd.DataFrame(about["events"], columns=list(EVENT_COLUMNS))
        restored = CPGraph(graph, nodes, arrays["bounds"], events.assign(index=events.index))
        restored.rank = int(about["rank"]) if rank is None else rank
    except (BadZipFile, KeyError, ValueError, TypeError, EOFError) as error:
        raise ValueError(f"{zip_filename}: not a saved critical path: {error}") from error
    return restored
