"""Sums over call trees: on paper values, and against adding up by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from htareport.algorithms.call_tree import around_points, depths, grafted, self_times, work_under

PROPERTY = settings(derandomize=True, deadline=None, max_examples=100, database=None)


def array(*values):
    return np.array(values, np.int64)


def test_on_paper():
    """0 holds 1 and 3, 1 holds 2; 2 launches [10, 15) and [30, 32), 3 launches [20, 27); 4 is alone."""
    work = work_under(array(-1, 0, 1, 0, -1), array(2, 3, 2, -1), array(10, 20, 30, 0), array(15, 27, 32, 99))
    assert work.num_kernels.tolist() == [3, 2, 2, 1, 0]
    assert work.kernel_dur_sum.tolist() == [14, 7, 7, 7, 0]
    assert work.first_kernel_start.tolist() == [10, 10, 10, 20, -1]
    assert work.last_kernel_end.tolist() == [32, 32, 32, 27, -1]
    assert work.kernel_span.tolist() == [22, 22, 22, 7, 0]
    assert work.height.tolist() == [3, 2, 1, 1, 1]


def test_nothing():
    work = work_under(array(), array(), array(), array())
    assert [len(each) for each in work] == [0] * 5


def test_ten_thousand_levels():
    """A chain: everything is under its top."""
    size = 10_000
    work = work_under(np.arange(-1, size - 1), array(size - 1, 0), array(5, 7), array(6, 9))
    assert work.num_kernels[[0, 1, size - 1]].tolist() == [2, 1, 1]
    assert work.height[0] == size
    assert depths(np.arange(-1, size - 1)).tolist() == list(range(size))


def test_absolute_stamps_stay_exact():
    """Nanoseconds since the epoch have more digits than a float holds."""
    start = 1_750_000_000_123_456_789
    work = work_under(array(-1, 0), array(1), array(start), array(start + 3))
    assert work.first_kernel_start.tolist() == [start, start]
    assert work.kernel_span.tolist() == [3, 3]


def test_grafting():
    """A backward call 2, with 3 below it, counts under its forward call 1 and all around that."""
    moved = grafted(array(-1, 0, -1, 2), array(2), array(1))
    assert moved.tolist() == [-1, 0, 1, 2]
    assert depths(moved).tolist() == [0, 1, 2, 3]
    assert work_under(moved, array(3, 1), array(0, 5), array(4, 6)).kernel_dur_sum.tolist() == [5, 5, 4, 4]


def test_self_times():
    """0 is [0, 100) with [10, 30) and, outlasting it, [90, 120); that of no length takes none."""
    starts, ends = array(0, 10, 15, 90), array(100, 30, 15, 120)
    assert self_times(starts, ends, array(-1, 0, 1, 0)).tolist() == [70, 20, 0, 30]


def test_around_points():
    """[0, 100) holds [10, 20) and [20, 30) on row 0; the same on row 1 only [0, 5)."""
    starts, ends, rows = array(0, 10, 20, 0), array(100, 20, 30, 5), array(0, 0, 0, 1)
    points = array(5, 10, 19, 20, 30, 99, 100, 4, 5)
    found = around_points(starts, ends, rows, points, array(0, 0, 0, 0, 0, 0, 0, 1, 1))
    assert found.tolist() == [0, 1, 1, 2, 0, 0, -1, 3, -1]


@PROPERTY
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9), st.integers(0, 1)), max_size=8), st.integers(0, 30))
def test_around_any_points(intervals, shift):
    """The last to begin of those that are open, however they overlap."""
    intervals = sorted(intervals, key=lambda each: (each[0], -each[1]))
    starts, lengths, rows = (array(*(each[i] for each in intervals)) for i in range(3))
    points = np.arange(64) % 32
    found = around_points(starts + shift, starts + lengths + shift, rows, points, np.arange(64) // 32)
    for point, row, index in zip(points.tolist(), np.arange(64) // 32, found.tolist(), strict=True):
        within = [
            i for i, (start, length, on) in enumerate(intervals)
            if on == row and start + shift <= point < start + length + shift
        ]  # fmt: skip
        assert index == max(within, default=-1)


@PROPERTY
@given(st.data())
def test_the_same_as_adding_up(data):
    """For any tree in any order."""
    size = data.draw(st.integers(1, 15))
    parent = [data.draw(st.integers(-1, i - 1)) for i in range(size)]
    order = data.draw(st.permutations(range(size)))
    shuffled = [0] * size
    for old, new in enumerate(order):
        shuffled[new] = -1 if parent[old] < 0 else order[parent[old]]
    kernels = data.draw(
        st.lists(st.tuples(st.integers(-1, size - 1), st.integers(0, 50), st.integers(0, 9)), max_size=12)
    )
    owner, start, dur = (array(*(kernel[i] for kernel in kernels)) for i in range(3))
    work = work_under(array(*shuffled), owner, start, start + dur)
    for node in range(size):
        mine = []
        for by, begin, lasting in kernels:
            at = by
            while at not in {-1, node}:
                at = shuffled[at]
            if at == node and by >= 0:
                mine.append((begin, begin + lasting))
        assert work.num_kernels[node] == len(mine)
        assert work.kernel_dur_sum[node] == sum(end - begin for begin, end in mine)
        assert work.first_kernel_start[node] == min((begin for begin, _ in mine), default=-1)
        assert work.last_kernel_end[node] == max((end for _, end in mine), default=-1)
