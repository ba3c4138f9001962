"""Who calls whom on a thread, against the definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from htareport.algorithms import nesting

PROPERTY = settings(derandomize=True, deadline=None, max_examples=200, database=None)
CALLS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 12), st.integers(0, 2)), max_size=15)


def ordered(spans):
    """By (start, -end)."""
    return sorted(spans, key=lambda span: (span[0], -span[1]))


def brute_parents(spans):
    """The last interval before each that is still open when it starts."""
    return [max((j for j in range(i) if spans[j][1] > start), default=-1) for i, (start, _) in enumerate(spans)]


def parents(spans):
    return nesting.parents(*(np.array([span[i] for span in spans], np.int64) for i in (0, 1))).tolist()


@PROPERTY
@given(CALLS)
def test_parents(calls):
    """The innermost interval around each, also with partial overlaps, equal intervals and those of no length."""
    spans = ordered((start, start + length) for start, length, _ in calls)
    assert parents(spans) == brute_parents(spans)


@PROPERTY
@given(CALLS)
def test_self_times(calls):
    """Time outside direct children, thread by thread, whatever the order of the rows."""
    starts, lengths, threads = (np.array([call[i] for call in calls], np.int64) for i in range(3))
    own, outermost = nesting.self_times(starts, starts + lengths, threads.astype(np.int32))
    for thread in range(3):
        rows = sorted(np.flatnonzero(threads == thread).tolist(), key=lambda r: (starts[r], -lengths[r]))
        spans = [(int(starts[row]), int(starts[row] + lengths[row])) for row in rows]
        around = brute_parents(spans)
        expected = [end - start for start, end in spans]
        for child, parent in enumerate(around):
            if parent >= 0:
                expected[parent] -= min(spans[child][1], spans[parent][1]) - spans[child][0]
        assert own[rows].tolist() == [max(each, 0) for each in expected]
        assert outermost[rows].tolist() == [parent == -1 for parent in around]


def brute_innermost(spans, size):
    """At each time the call that was last begun and is open; whatever ends takes with it what began within it."""
    found, open_calls = [], []
    for time in range(size):
        for place, (_, end) in enumerate(open_calls):
            if end <= time:
                del open_calls[place:]
                break
        open_calls += [(call, end) for call, (start, end) in enumerate(spans) if start == time < end]
        found.append(open_calls[-1][0] if open_calls else -1)
    return found


@PROPERTY
@given(CALLS)
def test_own_pieces(calls):
    """Each time belongs to the innermost call then, and to no other; a call ends with the one it is in."""
    spans = ordered((start, start + length) for start, length, _ in calls)
    own = nesting.own_pieces(*(np.array([span[i] for span in spans], np.int64) for i in (0, 1)))
    found = [-1] * 40
    for start, end, row in zip(own.start.tolist(), own.end.tolist(), own.row.tolist(), strict=True):
        assert found[start:end] == [-1] * (end - start)
        found[start:end] = [row] * (end - start)
    assert found == brute_innermost(spans, 40)


def test_on_paper():
    """A call in a call, one after it, one that outlasts its parent, and one behind all."""
    assert parents([(0, 10), (1, 4), (2, 3), (5, 12), (11, 12), (12, 13)]) == [-1, 0, 1, 0, 3, -1]


def test_ten_thousand_levels():
    """Depth costs no recursion; each level keeps the two ns at its edges."""
    depth = 10_000
    starts = np.arange(depth, dtype=np.int64)
    ends = 3 * depth - starts
    assert nesting.parents(starts, ends).tolist() == list(range(-1, depth - 1))
    own, outermost = nesting.self_times(starts, ends, np.zeros(depth, np.int32))
    assert own[:-1].tolist() == [2] * (depth - 1)
    assert outermost.sum() == 1


def test_nothing():
    """No intervals, no parents."""
    empty = np.zeros(0, np.int64)
    assert nesting.parents(empty, empty).tolist() == []
    assert [len(each) for each in nesting.self_times(empty, empty, empty.astype(np.int32))] == [0, 0]
    assert [len(each) for each in nesting.own_pieces(empty, empty)] == [0, 0, 0, 0]
