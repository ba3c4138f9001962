"""Sets of intervals of a rank, one for each device and capture: their length, union, difference and intersection."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

from htareport.algorithms import intervals
from htareport.algorithms.intervals import EMPTY, Intervals

Lane: TypeAlias = tuple[Any, int]  # Device and capture.
Sets: TypeAlias = dict[Lane, Intervals]


def total(sets: Sets) -> int:
    """Length of sets, ns."""
    return sum(map(intervals.total, sets.values()))


def union_of(parts: Iterable[Intervals]) -> Intervals:
    """The union of several sets."""
    rows = np.concatenate(list(parts) or [EMPTY])
    return intervals.union(rows[:, 0], rows[:, 1])


def minus(one: Sets, other: Sets) -> Sets:
    """What sets have outside others."""
    found = {lane: intervals.difference(mine, other.get(lane, EMPTY)) for lane, mine in one.items()}
    return {lane: mine for lane, mine in found.items() if len(mine)}


def common(one: Sets, other: Sets) -> Sets:
    """What two sets share."""
    found = {lane: intervals.intersection(mine, other.get(lane, EMPTY)) for lane, mine in one.items()}
    return {lane: mine for lane, mine in found.items() if len(mine)}


def joined(*several: Sets) -> Sets:
    """The union of sets."""
    lanes = dict.fromkeys(lane for sets in several for lane in sets)
    return {lane: union_of([sets[lane] for sets in several if lane in sets]) for lane in lanes}
