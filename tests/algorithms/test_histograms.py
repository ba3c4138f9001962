"""Log histograms keep quantiles to within 1 %."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from htareport.algorithms import histograms

WANTED = np.array([0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0])
DURATIONS = st.one_of(st.integers(0, 20), st.integers(0, 10**6), st.integers(0, 10**15), st.just(0))


@settings(derandomize=True, deadline=None, max_examples=150, database=None)
@given(st.lists(DURATIONS, min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_quantiles_like_numpy(durations, random):
    """Within 1 % of numpy's, whatever the order of the bins, also where several rows have the same bin."""
    values = np.array(durations, np.int64)
    rows = histograms.bins_of(values).tolist()
    random.shuffle(rows)
    bins, counts = np.unique(rows[: len(rows) // 2 + 1], return_counts=True)
    bins, counts = (
        np.concatenate(pair)
        for pair in ((bins, rows[len(rows) // 2 + 1 :]), (counts, np.ones(len(rows) - counts.sum(), np.int64)))
    )
    found = histograms.quantiles(bins, counts, WANTED)
    np.testing.assert_allclose(found, np.quantile(values, WANTED), rtol=0.01, atol=0)


@settings(derandomize=True, deadline=None, max_examples=100, database=None)
@given(st.integers(1, 2**62))
def test_a_duration_lies_between_the_edges_of_its_bin(duration):
    """As near as floats of logarithms come to that."""
    left, right = histograms.edges(histograms.bins_of(np.array([duration], np.int64)))
    assert left[0] * (1 - 1e-9) <= duration <= right[0] * (1 + 1e-9)


def test_zero_has_a_bin_of_its_own():
    """And is a quantile of 0, not of the smallest duration."""
    bins = histograms.bins_of(np.array([0, 0, 1], np.int64))
    assert bins.tolist() == [histograms.ZERO, histograms.ZERO, 0]
    assert [edge[0] for edge in histograms.edges(bins)] == [0.0, 1.0]
    assert histograms.quantiles(bins, np.ones(3, np.int64), np.array([0.5])).tolist() == [0.0]


def test_a_bin_of_one_duration_is_exact():
    """2,000 and 3,000 lie beside the middles of their bins, 5,000 and 5,010 share one."""
    bins = histograms.bins_of(np.array([2_000, 3_000, 5_000], np.int64))
    extremes = np.array([2_000, 3_000, 5_000]), np.array([2_000, 3_000, 5_010])
    found = histograms.quantiles(bins, np.array([1, 1, 1]), np.array([0.0, 0.25, 0.5, 1.0]), extremes)
    assert found[:3].tolist() == [2_000, 2_500, 3_000]
    assert 5_000 <= found[3] <= 5_010


def test_zero_takes_no_room_in_a_picture():
    """Its bin goes on to the first of the others; alone it has to end somewhere."""
    bins = np.array([histograms.ZERO, 48, 24])
    left, right = histograms.coarse_edges(bins)
    assert (left[0], right[0]) == (0, left[2])
    assert left[2] == pytest.approx(1000)
    assert [edge.tolist() for edge in histograms.coarse_edges(bins[:1])] == [[0], [1]]


def test_nothing_has_no_quantiles():
    """Nan for each that was wanted."""
    found = histograms.quantiles(np.zeros(0, np.int32), np.zeros(0, np.int64), WANTED)
    assert len(found) == len(WANTED)
    assert np.isnan(found).all()
