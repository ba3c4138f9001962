"""Finds nodes, events and edges in the graph of a critical path, and the event that an edge's time belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms.critical_path import Graph
from htareport.hta.cp_edges import Edges, NodePair
from htareport.hta.cp_types import ATTRIBUTED, TYPES, CPEdge, CPNode
from htareport.hta.units import PER_US
from htareport.rank.critical_path.graph import Kind


class PathLookups:
    """The nodes and edges of a graph, under HTA's names.

    `_nodes` has event (row of `trace_df`, -1: an end of the window), is_start and ts (ns) by node, `_index` the index
    of each event and -1 at its end, `_weights` the weights (ns) that the next `critical_path()` uses.
    """

    trace_df: pd.DataFrame
    _graph: Graph
    _nodes: pd.DataFrame
    _index: NDArray[np.int64]
    _weights: NDArray[np.int64]

    @cached_property
    def _events(self) -> NDArray[np.int64]:
        """The event of each node, -1 for an end of the window."""
        events: NDArray[np.int64] = self._index[self._nodes["event"].to_numpy()]
        return events

    @cached_property
    def node_list(self) -> list[CPNode]:
        """All nodes, in order of time."""
        waits = self._graph.dst[self._graph.kind == Kind.SYNC]
        on_host = np.append((self.trace_df["stream"] == -1).to_numpy(), False)[self._nodes["event"].to_numpy()]
        blocking = np.isin(np.arange(len(self._nodes)), waits) & on_host & ~self._nodes["is_start"].to_numpy()
        stamps = self._nodes["ts"].to_numpy() / PER_US
        columns = (self._events, stamps, self._nodes["is_start"].to_numpy(), blocking)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [CPNode(number, *row) for number, row in enumerate(rows)]

    @cached_property
    def _node_of(self) -> dict[tuple[int, bool], int]:
        keys = zip(self._events.tolist(), self._nodes["is_start"].tolist(), strict=True)
        return {key: number for number, key in enumerate(keys) if key[0] >= 0}

    @property
    def event_to_start_node_map(self) -> dict[int, int]:
        """Node of the start of each event."""
        return {event: node for (event, is_start), node in self._node_of.items() if is_start}

    @property
    def event_to_end_node_map(self) -> dict[int, int]:
        """Node of the end of each event."""
        return {event: node for (event, is_start), node in self._node_of.items() if not is_start}

    def get_nodes_for_event(self, ev_id: int) -> tuple[CPNode | None, CPNode | None]:
        """Start and end node of an event, None where it has none."""
        numbers = [self._node_of.get((ev_id, is_start)) for is_start in (True, False)]
        start, end = (None if number is None else self.node_list[number] for number in numbers)
        return start, end

    def get_events_for_edge(self, edge: CPEdge) -> tuple[int, int]:
        """Events of the two nodes of an edge."""
        return int(self._events[edge.begin]), int(self._events[edge.end])

    def get_event_attribution_for_edge(self, edge: CPEdge) -> int | None:
        """The event that an edge's time belongs to, None for launches, waits and the time between operators."""
        self._number((edge.begin, edge.end))
        return self.edge_to_event_map.get((edge.begin, edge.end))

    @cached_property
    def edge_to_event_map(self) -> dict[NodePair, int]:
        """The event that an edge's time belongs to, by (begin, end), for edges that have one."""
        graph = self._graph
        is_attributed = np.isin(graph.kind, ATTRIBUTED) & (graph.owner >= 0)
        node_pairs = zip(graph.src[is_attributed].tolist(), graph.dst[is_attributed].tolist(), strict=True)
        return dict(zip(node_pairs, self._index[graph.owner[is_attributed]].tolist(), strict=True))

    def get_edges_attributed_to_event(self, ev_idx: int) -> list[CPEdge]:
        """Edges whose time belongs to an event."""
        graph = self._graph
        is_attributed = (graph.owner >= 0) & (self._index[graph.owner] == ev_idx) & np.isin(graph.kind, ATTRIBUTED)
        return [self._edge(number) for number in np.flatnonzero(is_attributed).tolist()]

    @property
    def edges(self) -> Edges:
        """Edges by (begin, end), with their weight, for reading and changing."""
        return Edges(self)

    @property
    def nodes(self) -> range:
        """Numbers of all nodes."""
        return range(self._graph.nodes)

    def set_weight(self, edge: CPEdge | NodePair, weight: float) -> None:
        """Change how long an edge takes (µs, at least 0), for the next `critical_path()`."""
        if not weight >= 0:
            raise ValueError(f"weight {weight}: an edge takes 0 µs or more")
        nodes = (edge.begin, edge.end) if isinstance(edge, CPEdge) else edge
        self._weights[self._number(nodes)] = round(weight * PER_US)

    @cached_property
    def _numbers(self) -> dict[NodePair, int]:
        keys = zip(self._graph.src.tolist(), self._graph.dst.tolist(), strict=True)
        return {key: number for number, key in enumerate(keys)}  # Of two with the same nodes the heavier is last.

    def pairs(self) -> Mapping[NodePair, int]:
        """Return the number of each edge by (begin, end)."""
        return self._numbers

    def edge(self, nodes: NodePair) -> CPEdge:
        """Return the edge between two nodes. KeyError if there is none."""
        return self._edge(self._number(nodes))

    def _number(self, nodes: NodePair) -> int:
        try:
            return self._numbers[nodes]
        except KeyError:
            raise KeyError(f"no edge from node {nodes[0]} to node {nodes[1]}") from None

    def _edge(self, number: int) -> CPEdge:
        graph = self._graph
        kind, weight = TYPES[Kind(int(graph.kind[number]))], int(self._weights[number]) / PER_US
        return CPEdge(int(graph.src[number]), int(graph.dst[number]), kind, weight)
