"""Longest path through a graph whose nodes are in order of time, with slack and what-if: plain arrays, one pass each.

Nodes are numbered in topological order, so that every edge goes forward: `src < dst`. Weights are int64 ns, at least 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
NONE = -1


@dataclass(frozen=True)
class Graph:
    """Edges by (dst, src). `kind` and `owner` are the caller's: what an edge is, and whose time it is.

    `dropped` counts edges that would have gone backward in time, `clipped` weights that were negative. ValueError if an
    edge does not go forward, or a weight is below 0.
    """

    nodes: int
    src: Numbers
    dst: Numbers
    weight: Numbers
    kind: NDArray[np.int8]
    owner: Numbers
    dropped: int = 0
    clipped: int = 0
    _cache: dict[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.src) and not ((self.src < self.dst).all() and self.src.min() >= 0 and self.dst.max() < self.nodes):
            raise ValueError("an edge of the graph does not go forward")
        if len(self.weight) != len(self.src) or (len(self.weight) and self.weight.min() < 0):
            raise ValueError("an edge of the graph has a weight below 0, or none")

    def with_weights(self, weight: Numbers) -> Self:
        """Return the same graph with other weights (ns), one per edge, to see what the path would be."""
        return replace(self, weight=np.asarray(weight, np.int64), _cache={})

    @property
    def path(self) -> Path:
        """The longest path; of paths of equal length the one that stays latest in time."""
        if "path" not in self._cache:
            self._cache["path"] = _longest(self, *self._finish())
        path: Path = self._cache["path"]
        return path

    def length(self) -> int:
        """Length of the longest path (ns)."""
        return max(self._finish()[0], default=0)

    @property
    def slack(self) -> Numbers:
        """How much longer each edge could be (ns) before the longest path becomes longer; 0 on the path."""
        finish = np.array(self._finish()[0], np.int64)
        longest = finish[self.src] + self.weight + np.array(self._tail(), np.int64)[self.dst]
        return self.length() - longest

    def _finish(self) -> tuple[list[int], list[int]]:
        """Length of the longest path that ends at each node, and the edge by which it comes (-1: it starts there)."""
        if "finish" not in self._cache:
            finish, by = [0] * self.nodes, [NONE] * self.nodes
            edges = zip(self.src.tolist(), self.dst.tolist(), self.weight.tolist(), strict=True)
            for number, (src, dst, weight) in enumerate(edges):
                reach = finish[src] + weight
                if reach >= finish[dst]:
                    finish[dst] = reach
                    by[dst] = number
            self._cache["finish"] = finish, by
        found: tuple[list[int], list[int]] = self._cache["finish"]
        return found

    def _tail(self) -> list[int]:
        """Length of the longest path that starts at each node."""
        tail = [0] * self.nodes
        order = np.argsort(self.src, kind="stable")[::-1]
        edges = zip(self.src[order].tolist(), self.dst[order].tolist(), self.weight[order].tolist(), strict=True)
        for src, dst, weight in edges:
            reach = tail[dst] + weight
            tail[src] = max(tail[src], reach)
        return tail


def lengths_without(graph: Graph, classes: NDArray[np.integer[Any]], which: Sequence[int]) -> list[int]:
    """Length of the longest path if the edges of a class took no time, for each of some classes.

    Chains of edges without a fork become one edge first, which leaves a fraction of them.
    """
    src, dst, size = graph.src, graph.dst, len(graph.src)
    inner = (np.bincount(dst, minlength=graph.nodes) == 1) & (np.bincount(src, minlength=graph.nodes) == 1)
    into = np.zeros(graph.nodes, np.int64)
    into[dst] = np.arange(size)
    first = np.where(inner[src], into[src], np.arange(size))  # Of the chain; twice as far in each round.
    while ((further := first[first]) != first).any():
        first = further
    last = np.flatnonzero(~inner[dst])
    chains = Graph(graph.nodes, src[first[last]], dst[last], np.zeros(len(last), np.int64), graph.kind, graph.owner)
    lengths = []
    for number in which:
        weight = np.bincount(first, np.where(classes == number, 0, graph.weight), size)[first[last]]
        lengths.append(chains.with_weights(weight.astype(np.int64)).length())
    return lengths


@dataclass(frozen=True)
class Path:
    """A path: its nodes and its edges (numbers within the graph) from start to end, and its length in ns."""

    nodes: Numbers
    edges: Numbers
    length: int


def _longest(graph: Graph, finish: list[int], by: list[int]) -> Path:
    if not graph.nodes:
        return Path(np.zeros(0, np.int64), np.zeros(0, np.int64), 0)
    length = max(finish)
    node = graph.nodes - 1 - finish[::-1].index(length)
    src = graph.src
    nodes, edges = [node], []
    while by[node] != NONE:
        edges.append(by[node])
        node = int(src[by[node]])
        nodes.append(node)
    return Path(np.array(nodes[::-1], np.int64), np.array(edges[::-1], np.int64), length)


@dataclass(frozen=True)
class Edges:
    """Edges between points that are not in order yet; the columns are those of Graph."""

    src: Numbers
    dst: Numbers
    weight: Numbers
    kind: NDArray[np.int8]
    owner: Numbers

    @classmethod
    def of(cls, src: Numbers, dst: Numbers, weight: Numbers, kind: int, owner: Numbers | int = NONE) -> Self:
        """Edges of one kind; owners may be one for all."""
        size = len(src)
        owners = np.broadcast_to(np.asarray(owner, np.int64), size)
        return cls(src, dst, np.asarray(weight, np.int64), np.full(size, kind, np.int8), owners)


def ordered(stamps: Numbers, level: NDArray[np.int8], tie: Numbers, parts: list[Edges]) -> tuple[Graph, Numbers]:
    """Return the graph over points in order of stamp, level and tie, and the place of each point in that order.

    Edges that would go backward are left out and counted. Negative weights become 0 and are counted.
    """
    place = np.empty(len(stamps), np.int64)
    place[np.lexsort((tie, level, stamps))] = np.arange(len(stamps))
    columns = [np.concatenate([getattr(part, name) for part in parts]) for name in Edges.__dataclass_fields__]
    src, dst, weight, kind, owner = columns
    src, dst = place[src], place[dst]
    forward = src < dst
    clipped = int((weight[forward] < 0).sum())
    weight = np.maximum(weight, 0)
    order = np.lexsort((weight, src, dst))
    order = order[forward[order]]
    graph = Graph(
        len(stamps),
        src[order],
        dst[order],
        weight[order],
        kind[order],
        owner[order],
        dropped=int((~forward).sum()),
        clipped=clipped,
    )
    return graph, place
