"""Longest ways through graphs, on paper values and against a plain recursion."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htareport.algorithms.longest_paths import LongestPaths

NEVER = -np.inf


def times(edges, begin, averaged=None):
    source, target, *delays = zip(*edges, strict=True)
    graph = LongestPaths(len(begin), np.array(source), np.array(target))
    mask = None if averaged is None else np.isin(np.arange(len(begin)), averaged)
    return graph.times(np.array(delays, np.float64).T, np.array(begin, np.float64), mask).T.tolist()


def test_two_ways():
    """By node 1 it takes 3 + 4, by node 2 5 + 1; without the 4 the second way is longer."""
    edges = [(0, 1, 3, 3), (0, 2, 5, 5), (1, 3, 4, 0), (2, 3, 1, 1)]
    assert times(edges, [10, NEVER, NEVER, NEVER]) == [[10, 13, 15, 17], [10, 13, 15, 16]]


def test_the_mean_of_the_ways():
    edges = [(0, 1, 3), (0, 2, 5), (1, 3, 4), (2, 3, 1), (3, 4, 1)]
    assert times(edges, [0, NEVER, NEVER, NEVER, NEVER], averaged=[3]) == [[0, 3, 5, 6.5, 7.5]]


def test_a_way_that_is_gone():
    assert times([(0, 1, 3, NEVER), (0, 2, 1, 1), (2, 1, 1, 1)], [0, NEVER, NEVER]) == [[0, 3, 1], [0, 2, 1]]


def test_a_circle():
    graph = LongestPaths(5, np.array([0, 1, 2, 2, 0]), np.array([1, 2, 1, 3, 4]))
    assert graph.in_circle.tolist() == [False, True, True, True, False]


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(1, 7), st.integers(-5, 50)), min_size=1, max_size=30))
def test_any_graph(made):
    """Each edge leads to a higher node."""
    edges = [(source, source + step, delay) for source, step, delay in made if source + step < 8]
    if not edges:
        return
    known = [0.0 if node == 0 or all(target != node for _, target, _ in edges) else NEVER for node in range(8)]
    begin = list(known)
    for node in range(8):
        ways = [known[source] + delay for source, target, delay in edges if target == node]
        known[node] = max([known[node], *ways])
    assert times(edges, begin) == [pytest.approx(known)]
