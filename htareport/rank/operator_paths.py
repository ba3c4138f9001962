"""The operators around each launch, from outside to inside."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.distinct import unique_sorted
from htareport.algorithms.nesting import NO_PARENT
from htareport.rank import kernel_launches
from htareport.rank.host_calls import nearest
from htareport.rank.rank import Rank
from htareport.rows import classify

SEPARATOR = " > "


def paths_of(trace: Rank, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[str]]:
    """A number for the path of each operator (rows of the host table, -1 for none), and the text of each number.

    A path is the names of the operators from the outermost to this one; no operator has the empty path, number 0.
    """
    around = nearest(trace.host, "operator")
    needed = _with_ancestors(rows[rows != NO_PARENT], around)
    names = kernel_launches.names_of(trace, needed)
    parents = np.searchsorted(needed, around[needed])
    parents[around[needed] == NO_PARENT] = NO_PARENT
    numbers, steps = _numbered(parents, names)
    out = np.zeros(len(rows), np.int64)
    there = rows != NO_PARENT
    out[there] = numbers[np.searchsorted(needed, rows[there])]
    return out, _written(steps, trace.loaded.strings)


def _with_ancestors(rows: NDArray[np.integer[Any]], around: NDArray[np.int32]) -> NDArray[np.int64]:
    """Rows and all that lie around them, in order, so that each stands behind what lies around it."""
    ancestors = np.zeros(len(around), np.bool_)
    while len(rows):
        ancestors[rows] = True
        above = around[rows]
        rows = unique_sorted(above[(above != NO_PARENT) & ~ancestors[above]])
    return np.flatnonzero(ancestors)


def _numbered(parents: NDArray[np.int64], names: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[tuple[int, int]]]:
    """The path number (from 1) of each row, whose parent stands before it, and what each is: number before, name."""
    numbered, numbers = dict[tuple[int, int], int](), [0] * (len(names) + 1)  # The last is what row -1 takes.
    for row, step in enumerate(zip(parents.tolist(), names.tolist(), strict=True)):
        numbers[row] = numbered.setdefault((numbers[step[0]], step[1]), len(numbered) + 1)
    return np.array(numbers[:-1], np.int64), list(numbered)


def _written(steps: list[tuple[int, int]], strings: Any) -> list[str]:
    texts = [""]
    for before, name in steps:
        outer, own = texts[before], strings[name]
        if classify.step_number(own) is not None:  # In traces of before 2022 steps are operators.
            own = ""
        texts.append(SEPARATOR.join(part for part in (outer, own) if part))
    return texts
