"""Takes nodes out of a graph that are on the way only: an edge in place of each way through them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from htareport.rank.replay.reduction import START, Graph

Floats = NDArray[np.float64]

_MAX_WAYS = 100  # Through a node that is taken out, more than there were edges.


def contracted(graph: Graph) -> Graph:
    """Return the same graph without inner nodes that few ways lead through."""
    into: list[dict[int, Floats]] = [{} for _ in graph.time]
    out: list[set[int]] = [set() for _ in graph.time]
    for source, target, delay in zip(graph.source, graph.target, graph.delays, strict=True):
        into[target][source] = delay
        out[source].add(target)
    fixed = {START, *graph.begin, *graph.end, *graph.steps}
    for node in range(len(graph.time)):
        if node not in fixed and len(into[node]) * len(out[node]) <= _MAX_WAYS + len(into[node]) + len(out[node]):
            _remove(node, into, out)
    return _numbered(graph, into, out, fixed)


def _remove(node: int, into: list[dict[int, Floats]], out: list[set[int]]) -> None:
    for target in out[node]:
        after = into[target].pop(node)
        for source, before in into[node].items():
            through, known = before + after, into[target].get(source)
            into[target][source] = through if known is None else np.maximum(known, through)
            out[source].add(target)
    for source in into[node]:
        out[source].discard(node)
    into[node], out[node] = {}, set()


def _numbered(graph: Graph, into: list[dict[int, Floats]], out: list[set[int]], fixed: set[int]) -> Graph:
    """The graph of the nodes that are left, in their order."""
    kept = [node for node in range(len(graph.time)) if node in fixed or into[node] or out[node]]
    number = {node: place for place, node in enumerate(kept)}
    result = Graph(time=[graph.time[node] for node in kept], collective=graph.collective)
    for node in kept:
        for source, delay in into[node].items():
            result.source.append(number[source])
            result.target.append(number[node])
            result.delays.append(delay)
    result.begin, result.end = [number[node] for node in graph.begin], [number[node] for node in graph.end]
    result.steps = [number[node] for node in graph.steps]
    return result
