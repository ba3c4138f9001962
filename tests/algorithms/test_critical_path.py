from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htareport.algorithms.critical_path import Edges, Graph, lengths_without, ordered


def graph_of(nodes, edges):
    """Edges are (src, dst, weight)."""
    columns = np.array(sorted(edges, key=lambda e: (e[1], e[0])), np.int64).reshape(-1, 3).T
    size = columns.shape[1]
    return Graph(nodes, columns[0], columns[1], columns[2], np.zeros(size, np.int8), np.arange(size))


@st.composite
def graphs(draw, most=8):
    nodes = draw(st.integers(1, most))
    pairs = [(a, b) for b in range(nodes) for a in range(b)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return graph_of(nodes, [(a, b, draw(st.integers(0, 5))) for a, b in chosen])


def paths_from(graph, node):
    """Lengths of all paths that start at a node, by walking every one of them."""
    yield 0
    for edge in np.flatnonzero(graph.src == node).tolist():
        for rest in paths_from(graph, int(graph.dst[edge])):
            yield int(graph.weight[edge]) + rest


def brute_force(graph):
    return max(length for node in range(graph.nodes) for length in paths_from(graph, node))


@given(graphs())
def test_no_path_is_longer(graph):
    path = graph.path
    assert path.length == graph.length() == brute_force(graph)
    assert path.length == graph.weight[path.edges].sum()
    assert graph.src[path.edges].tolist() == path.nodes[:-1].tolist()
    assert graph.dst[path.edges].tolist() == path.nodes[1:].tolist()


@given(graphs(most=6))
def test_slack_is_what_an_edge_can_grow_by(graph):
    """Not more, not less; none on the path."""
    length, slack = graph.length(), graph.slack
    assert (slack >= 0).all()
    assert (slack[graph.path.edges] == 0).all()
    for edge in range(len(slack)):
        grown = graph.weight.copy()
        grown[edge] += slack[edge]
        assert graph.with_weights(grown).length() == length
        grown[edge] += 1
        assert graph.with_weights(grown).length() == length + 1


@given(st.lists(st.integers(0, 6), min_size=1, max_size=8), st.data())
def test_ordered_edges_go_forward_and_the_path_fits_the_window(stamps, data):
    """Where weights are the time between the points."""
    times = np.array(stamps, np.int64)
    point = st.integers(0, len(times) - 1)
    pairs = np.array(data.draw(st.lists(st.tuples(point, point))), np.int64).reshape(-1, 2).T
    parts = [Edges.of(pairs[0], pairs[1], times[pairs[1]] - times[pairs[0]], 0)]
    graph, place = ordered(times, np.zeros(len(times), np.int8), np.arange(len(times)), parts)
    assert sorted(place.tolist()) == list(range(len(times)))
    assert (graph.src < graph.dst).all()
    assert graph.dropped + len(graph.src) == len(pairs[0])
    assert graph.path.length <= times.max() - times.min()


@given(graphs(), st.lists(st.integers(0, 2), min_size=28, max_size=28))
def test_without_a_class_of_edges(graph, drawn):
    """As if its weights were 0."""
    classes = np.array(drawn[: len(graph.src)], np.int64)
    expected = [graph.with_weights(np.where(classes == number, 0, graph.weight)).length() for number in range(3)]
    assert lengths_without(graph, classes, range(3)) == expected


def test_of_equal_paths_the_latest():
    """0 → 1 → 3 and 0 → 2 → 3 take as long; what ends last is what was waited for."""
    graph = graph_of(4, [(0, 1, 1), (0, 2, 2), (1, 3, 2), (2, 3, 1)])
    assert graph.path.nodes.tolist() == [0, 2, 3]


def test_negative_weights_are_clipped_and_counted():
    parts = [Edges.of(np.array([0]), np.array([1]), np.array([-5]), 0)]
    graph, _ = ordered(np.array([0, 1]), np.zeros(2, np.int8), np.arange(2), parts)
    assert (graph.weight.tolist(), graph.clipped) == ([0], 1)


def test_what_is_refused():
    with pytest.raises(ValueError, match="forward"):
        graph_of(2, [(1, 0, 1)])
    with pytest.raises(ValueError, match="below 0"):
        graph_of(2, [(0, 1, -1)])


def test_nothing():
    empty = graph_of(0, [])
    assert (empty.length(), len(empty.path.nodes), len(empty.slack)) == (0, 0, 0)


def test_a_chain_of_many():
    """A hundred thousand edges, without recursion."""
    graph = graph_of(100_001, [(i, i + 1, 1) for i in range(100_000)])
    assert graph.path.length == 100_000
