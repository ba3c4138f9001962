"""Which interval lies directly within which, on one thread: the call tree of nested calls, without recursion."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.chunks import chunks

NO_PARENT = -1
_PIECE = 1 << 15


def parents(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int32]:
    """Index of the innermost interval around each, -1 for the outermost. Intervals must be sorted by (start, -end).

    An interval that outlasts the one it starts in (a partial overlap) still counts as its child.
    """
    return tree(starts, ends)[0]


def tree(
    starts: NDArray[np.int64], ends: NDArray[np.int64], *, clip: bool = False
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Parents as above, and how many intervals are around each. With `clip` a child ends with its parent."""
    tree, depth = np.empty(len(starts), np.int32), np.empty(len(starts), np.int32)
    for piece in _apart(starts, ends):
        parent, depth[piece] = _nested(starts[piece], ends[piece]) or _stacked(starts[piece], ends[piece], clip=clip)
        tree[piece] = np.where(parent == NO_PARENT, NO_PARENT, parent + piece.start)
    return tree, depth


def _apart(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Iterator[slice]:
    """Pieces between which no interval lasts, not too small: what partly overlaps in one costs the others nothing."""
    cuts, reach = [np.zeros(0, np.int64)], np.iinfo(np.int64).min
    for chunk in chunks(len(starts)):
        reached = np.maximum.accumulate(np.append(reach, ends[chunk]))
        cuts.append(np.flatnonzero(starts[chunk] >= reached[:-1]) + chunk.start)
        reach = reached[-1]
    places, begin = np.append(np.concatenate(cuts), len(starts)), 0
    while begin < len(starts):
        end = int(places[np.searchsorted(places, min(begin + _PIECE, len(starts)))])
        yield slice(begin, end)
        begin = end


def _nested(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int32]] | None:
    """Parents and depths where no interval outlasts its parent, in arrays; else None.

    Then all that have not ended when one starts are around it, and its parent is the last before it of one level less.
    """
    size, place = len(starts), np.arange(len(starts))
    depth = place - np.searchsorted(np.sort(ends), starts, side="right")
    empty = np.cumsum(np.append(0, ends <= starts))
    if empty[-1]:  # Those of no length have ended when they start; but those behind it of the same start have not.
        depth += empty[np.searchsorted(starts, starts, side="right")] - empty[:-1]
    by_depth = _by_depth(depth)
    above = np.searchsorted(depth[by_depth] * size + by_depth, (depth - 1) * size + place) - 1
    parent = np.where(depth > 0, by_depth[above], NO_PARENT)
    inner = np.flatnonzero(depth)
    if (depth < 0).any() or (depth[parent[inner]] != depth[inner] - 1).any() or (ends > ends[parent])[inner].any():
        return None
    return parent.astype(np.int32), depth.astype(np.int32)


def _stacked(
    starts: NDArray[np.int64], ends: NDArray[np.int64], *, clip: bool
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Parents and depths of any intervals, one by one."""
    stacked, depth = np.empty(len(starts), np.int32), np.empty(len(starts), np.int32)
    stack: list[int] = []  # The intervals that are open, and when each ends.
    open_until: list[int] = []
    top_end = 0
    for chunk in chunks(len(starts)):  # Python's integers take four times the room of an array's.
        around, level = list[int](), list[int]()
        rows = zip(starts[chunk].tolist(), ends[chunk].tolist(), strict=True)
        for index, (start, end) in enumerate(rows, chunk.start):
            while stack and top_end <= start:
                stack.pop()
                open_until.pop()
                top_end = open_until[-1] if stack else 0
            if clip and stack and end > top_end:
                end = top_end  # noqa: PLW2901  what lasts longer than the call it is in was not seen to end
            around.append(stack[-1] if stack else NO_PARENT)
            level.append(len(stack))
            stack.append(index)
            open_until.append(end)
            top_end = end
        stacked[chunk], depth[chunk] = around, level
    return stacked, depth


def self_times(
    starts: NDArray[np.int64], ends: NDArray[np.int64], threads: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Time of each interval outside those directly within it, at least 0, and whether it is outermost on its thread."""
    order = np.lexsort((-ends, starts, threads))
    begin, end, thread = starts[order], ends[order], threads[order]
    own = end - begin
    outermost = np.ones(len(order), np.bool_)
    limits = np.flatnonzero(np.diff(thread)) + 1
    for first, last in zip(np.concatenate(([0], limits)), np.concatenate((limits, [len(order)])), strict=True):
        parent = parents(begin[first:last], end[first:last])
        child = np.flatnonzero(parent != NO_PARENT)
        around = parent[child] + first
        child += first
        within = np.minimum(end[child], end[around]) - begin[child]
        np.subtract.at(own, around, within)
        outermost[child] = False
    result, outer = np.empty_like(own), np.empty_like(outermost)
    result[order], outer[order] = np.maximum(own, 0), outermost
    return result, outer


def _by_depth(depth: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Rows level by level, in their order."""
    small = np.min_scalar_type(depth.max(initial=0))  # Of one or two bytes they take a tenth of the time to sort.
    return np.argsort(depth.astype(small), kind="stable")


class Own(NamedTuple):
    """Time of calls outside those within them: pieces from `start` to `end` of `row`; and the tree of all rows."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    row: NDArray[np.int64]
    parent: NDArray[np.int32]


def own_pieces(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Own:
    """Cut a thread's time by its innermost interval. Intervals must be sorted by (start, -end).

    One that outlasts its parent ends with it: profilers leave calls open whose end they have not seen.
    """
    parent, depth = tree(starts, ends, clip=True)
    until, rows = ends.copy(), np.arange(len(starts), dtype=np.int64)
    for level in np.split(_by_depth(depth), np.cumsum(np.bincount(depth))[:-1])[1:]:
        until[level] = np.minimum(until[level], until[parent[level]])
    # Before each child since the one before it, or since the parent's start; and at last behind the last child.
    child = np.argsort(parent, kind="stable")[np.count_nonzero(parent == NO_PARENT) :]
    above, first = parent[child], np.ones(len(child), np.bool_)
    first[1:] = above[1:] != above[:-1]
    since = np.where(first, starts[above], until[np.append(child[:1], child[:-1])])
    rest = starts.copy()
    rest[above] = until[child]  # Of several children the last wins.
    start, end = np.concatenate((since, rest)), np.concatenate((starts[child], until))
    lasting = end > start
    row = np.concatenate((above.astype(np.int64), rows))
    return Own(start[lasting], end[lasting], row[lasting], parent)
