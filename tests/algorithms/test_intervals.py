"""Arithmetic on intervals, against a bitmap."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from htareport.algorithms import intervals

SIZE = 60
SHIFT = 1_750_000_000_000_000_000  # Stamps of today: nothing may pass through a float.
PAIRS = st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)), max_size=12)
SORTED_PAIRS = PAIRS.map(lambda pairs: [tuple(sorted(pair)) for pair in pairs])
PROPERTY = settings(derandomize=True, deadline=None, max_examples=100, database=None)


def bitmap(pairs):
    bits = np.zeros(SIZE, np.bool_)
    for start, end in pairs:
        bits[start:end] = True
    return bits


def union(pairs):
    starts, ends = (np.array([pair[i] + SHIFT for pair in pairs], np.int64) for i in (0, 1))
    return intervals.union(starts, ends)


def bits_of(found):
    return bitmap((found - SHIFT).tolist())


def assert_is_union(found):
    assert found.dtype == np.int64
    assert found.shape == (len(found), 2)
    assert (found[:, 0] < found[:, 1]).all()
    assert (found[1:, 0] > found[:-1, 1]).all()


@PROPERTY
@given(PAIRS)
def test_union(pairs):
    """A union covers what its intervals cover; those that end before they start, or at once, cover nothing."""
    found = union(pairs)
    assert_is_union(found)
    assert (bits_of(found) == bitmap(pairs)).all()
    assert intervals.total(found) == bitmap(pairs).sum()


@PROPERTY
@given(SORTED_PAIRS, SORTED_PAIRS)
def test_intersection_and_difference(one, other):
    """They are what the bitmaps say, and unions themselves; together they are the first union again."""
    first, second = union(one), union(other)
    both, rest = intervals.intersection(first, second), intervals.difference(first, second)
    assert_is_union(both)
    assert_is_union(rest)
    assert (bits_of(both) == (bitmap(one) & bitmap(other))).all()
    assert (bits_of(rest) == (bitmap(one) & ~bitmap(other))).all()
    assert intervals.total(both) + intervals.total(rest) == intervals.total(first)


@PROPERTY
@given(SORTED_PAIRS, SORTED_PAIRS, st.lists(st.integers(-5, SIZE + 5), max_size=8))
def test_cumulative_and_covered(pairs, windows, stamps):
    """Lengths before a stamp and within a window, at the edges and outside of everything too."""
    found, bits = union(pairs), bitmap(pairs)
    before = intervals.cumulative(found, np.array(stamps, np.int64) + SHIFT)
    assert before.tolist() == [bits[: max(stamp, 0)].sum() for stamp in stamps]
    starts, ends = (np.array([window[i] for window in windows], np.int64) for i in (0, 1))
    covered = intervals.covered(found, starts + SHIFT, ends + SHIFT)
    assert covered.tolist() == [bits[start:end].sum() for start, end in windows]
    touched = intervals.touching(found, starts + SHIFT, ends + SHIFT)
    assert (touched & (starts < ends)).tolist() == [bool(bits[start:end].any()) for start, end in windows]


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], []),
        ([(3, 3)], []),
        ([(0, 5), (5, 9)], [[0, 9]]),
        ([(0, 5), (6, 9)], [[0, 5], [6, 9]]),
        ([(0, 9), (1, 2), (3, 4)], [[0, 9]]),
        ([(7, 8), (0, 2)], [[0, 2], [7, 8]]),
    ],
)
def test_union_on_paper(pairs, expected):
    """Touching intervals merge, a gap of one stays, order does not matter."""
    assert (union(pairs) - SHIFT).tolist() == expected
