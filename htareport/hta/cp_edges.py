"""A mapping of the edges of a critical path's graph, as in networkx, that can change weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from htareport.hta.cp_types import CPEdge

NodePair = tuple[int, int]


class EdgeStore(Protocol):
    """A graph that has edges."""

    def edge(self, nodes: NodePair) -> CPEdge:
        """Return the edge between two nodes."""

    def pairs(self) -> Mapping[NodePair, int]:
        """Return the number of each edge."""

    def set_weight(self, edge: CPEdge | NodePair, weight: float) -> None:
        """Change how long an edge takes (µs)."""


class Edges(Mapping[NodePair, dict[str, Any]]):
    """Edges of a graph by (begin, end): {"weight": µs, "object": CPEdge}; a weight set here is set in the graph."""

    def __init__(self, store: EdgeStore) -> None:
        self._store = store

    def __getitem__(self, nodes: NodePair) -> dict[str, Any]:
        return _Attributes(self._store, self._store.edge(nodes))

    def __iter__(self) -> Iterator[NodePair]:
        return iter(self._store.pairs())

    def __len__(self) -> int:
        return len(self._store.pairs())


class _Attributes(dict[str, Any]):
    def __init__(self, store: EdgeStore, edge: CPEdge) -> None:
        super().__init__(weight=edge.weight, object=edge)
        self._store, self._edge = store, edge

    def __setitem__(self, name: str, value: Any) -> None:
        if name != "weight":
            raise KeyError(f"only the weight of an edge can be changed, not {name!r}")
        self._store.set_weight(self._edge, value)
        super().__setitem__(name, value)
