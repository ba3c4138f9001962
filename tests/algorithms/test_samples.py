"""Is a difference real: values worked out by counting, and properties."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htareport.algorithms.samples import _resampled, difference_interval, mann_whitney, ratio_interval, smallest_p

SAMPLES = st.lists(st.integers(1, 9), min_size=1, max_size=5).map(lambda values: np.array(values, np.float64))


def test_smallest_p():
    """Of C(8, 3) = 56 ways to deal, two are as extreme as the most extreme one."""
    assert smallest_p(3, 5) == 2 / 56
    assert smallest_p(5, 5) == 2 / 252
    assert smallest_p(1, 1) == 1
    assert smallest_p(0, 9) == 1


def test_apart_is_the_smallest_p():
    assert mann_whitney(np.array([1.0, 2, 3]), np.array([4.0, 5, 6, 7, 8])) == pytest.approx(2 / 56)


def test_equal_samples():
    same = np.array([3.0, 1, 2])
    assert mann_whitney(same, same) == 1
    assert ratio_interval(same, same) == difference_interval(same + 1, same + 1).__class__(1.0, 1.0)


@given(SAMPLES, SAMPLES)
def test_exact_p_is_that_of_counting(base, new):
    """Every way to deal the values, with mean ranks for ties."""
    both = np.concatenate((base, new))
    ranks = np.array([(both < value).sum() + ((both == value).sum() + 1) / 2 for value in both])
    middle = len(base) * (len(both) + 1) / 2
    ours = abs(ranks[: len(base)].sum() - middle)
    sums = [ranks[list(chosen)].sum() for chosen in itertools.combinations(range(len(both)), len(base))]
    expected = sum(abs(each - middle) >= ours - 1e-9 for each in sums) / len(sums)
    assert mann_whitney(base, new) == pytest.approx(expected)


def test_normal_approximation_is_close_to_counting():
    """At the border between the two, on the same values with one more on either side."""
    values = np.random.default_rng(5).normal(size=48)
    base, new = values[:24], values[24:] + 0.7
    more = mann_whitney(np.append(base, np.median(base)), np.append(new, np.median(new)))
    assert mann_whitney(base, new) == pytest.approx(more, rel=0.35)
    assert more < 0.1


def test_a_small_and_a_large_sample_are_counted():
    """Of C(103, 3) ways to deal, two are as extreme as this; the normal distribution would say 0.003."""
    p = mann_whitney(np.arange(3.0), np.arange(3.0, 103))
    assert p == pytest.approx(2 / math.comb(103, 3))
    assert mann_whitney(np.arange(3.0, 103), np.arange(3.0)) == pytest.approx(p)


def test_large_samples_of_one_value():
    assert mann_whitney(np.full(30, 7.0), np.full(40, 7.0)) == 1


@given(SAMPLES, SAMPLES)
def test_swapping_mirrors(base, new):
    assert mann_whitney(base, new) == pytest.approx(mann_whitney(new, base))
    one, other = ratio_interval(base, new), ratio_interval(new, base)
    assert (one is None) == (other is None) == (min(len(base), len(new)) < 2)
    if one and other:
        assert other.low == pytest.approx(1 / one.high)
        assert other.high == pytest.approx(1 / one.low)


@pytest.mark.parametrize(("values", "share"), [([1.0, 2], 1 / 4), ([1.0, 2, 3], 7 / 27), ([1.0, 2, 3, 4], 13 / 256)])
def test_medians_are_those_of_drawn_values(values, share):
    """The least is the median if both of two draws are the least, two of three, or three of four."""
    drawn = _resampled(np.array(values), median=True)
    assert (drawn == 1).mean() == pytest.approx(share, abs=0.02)


def test_interval_holds_the_truth():
    """In nearly all of 60 pairs of samples whose medians differ by a tenth."""
    source, hits = np.random.default_rng(1), 0
    for _ in range(60):
        base, new = source.normal(100, 3, 15), source.normal(110, 3, 15)
        found = ratio_interval(base, new)
        assert found
        hits += 1.1 in found
    assert hits >= 50


@pytest.mark.parametrize("size", [5, 300])
def test_intervals_of_means_hold_the_truth_for_few_values_too(size):
    """In about 95 of 100 pairs; plain resampling of five values would give 87."""
    source = np.random.default_rng(2)
    pairs = [(source.normal(100, 1, size), source.normal(100, 1, size)) for _ in range(200)]
    assert 0.91 <= np.mean([0.0 in difference_interval(*pair) for pair in pairs]) <= 0.99
    assert 0.91 <= np.mean([1.0 in ratio_interval(*pair, median=False) for pair in pairs]) <= 0.99


def test_no_interval_of_one_value():
    assert ratio_interval(np.array([1.0]), np.array([1.0, 2])) is None
    assert difference_interval(np.array([1.0, 2]), np.array([1.0])) is None
    assert ratio_interval(np.array([0.0, 1]), np.array([1.0, 2])) is None
    assert ratio_interval(np.array([0.0, 1]), np.array([1.0, 2]), median=False) is None


def test_difference_of_means():
    found = difference_interval(np.array([10.0, 10, 10]), np.array([13.0, 13, 13]))
    assert found
    assert math.isclose(found.low, 3)
    assert math.isclose(found.high, 3)
