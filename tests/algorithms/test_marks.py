"""Intervals as marks of a picture."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htareport.algorithms.marks import PIXELS, merged


def marks_of(lane, start, end, most=100):
    """The rows of each mark."""
    order, mark = merged(*(np.array(each, np.int64) for each in (lane, start, end)), most)
    return [order[mark == number].tolist() for number in range(mark.max() + 1)] if len(mark) else []


def test_small_ones_of_a_pixel_are_one_mark():
    """A span of 2,000 pixels of 10: two short ones in the first pixel, a long one, one short by itself."""
    long = 10 * PIXELS
    assert marks_of([0, 0, 0, 0], [0, 5, 100, 101], [3, 8, long, 105]) == [[0, 1], [2], [3]]


def test_lanes_apart():
    """The same pixel of another lane is another mark."""
    assert marks_of([0, 1, 0], [0, 1, 10 * PIXELS], [1, 2, 10 * PIXELS + 20]) == [[0], [2], [1]]


def test_too_many_become_larger():
    """Down to one mark for each lane."""
    start = np.arange(0, 1000, 10)
    assert len(marks_of(start * 0, start, start + 1, 10)) <= 10
    assert marks_of(start % 20, start, start + 1, 1) == [list(range(0, 100, 2)), list(range(1, 100, 2))]


def test_nothing():
    """No intervals, no marks."""
    assert marks_of([], [], []) == []


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 10**5), st.integers(0, 10**4)), min_size=1, max_size=60),
    st.integers(1, 40),
)
def test_marks(rows, most):
    """Each interval is in one mark of its lane; there are no more than asked for, or one a lane."""
    lane, start, length = (np.array(each, np.int64) for each in zip(*rows, strict=True))
    order, mark = merged(lane, start, start + length, most)
    assert sorted(order.tolist()) == list(range(len(rows)))
    assert set(np.diff(mark).tolist()) <= {0, 1}
    assert mark[-1] + 1 <= max(most, len(set(lane.tolist())))
    for number in range(mark[-1] + 1):
        assert len(set(lane[order[mark == number]].tolist())) == 1
