"""Whether all steps launch the same work, and what in them prevents CUDA graph capture."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms import intervals
from htareport.algorithms.distinct import unique_sorted
from htareport.algorithms.intervals import EMPTY, Intervals
from htareport.rank.cached import cached_until_release
from htareport.rank.host_rows import graphed, names_of, operators_around, rows_named
from htareport.rank.rank import Rank

_BLOCKS = re.compile(
    r"^(?:cuda|hip|cu)\w*Synchronize|^(?:cuda|hip)(?:Malloc|Free)|^cuMem(?:Alloc|Free)|^hipMemcpyWithStream|"
    r"^(?:cuda|hip)Memcpy$"
)
_MIN_STEPS = 3


@dataclass(frozen=True)
class Repeats:
    """How many steps launch the same work: the same kernels on the same streams in the same order.

    Nothing of it counts what graphs replay already. `equal` of `steps` steps do, with a mean of `events` device events
    each. `blockers` are calls between the first and the last launch of a step that a capture does not allow, by the
    operator around them, with how often in all steps.
    `region` is from the first launch of each step to the end of its last work, ns.
    """

    steps: int
    equal: int
    events: float
    blockers: list[tuple[str, int]]
    region: Intervals

    def is_proven(self, share: float) -> bool:
        """Whether there are enough steps, this share of them is equal, and nothing prevents capture."""
        return self.steps >= _MIN_STEPS and self.equal >= share * self.steps and not self.blockers


@cached_until_release
def repeats_of(rank: Rank) -> Repeats:
    """How far the steps of a rank repeat each other. Steps whose work the end of the recording cuts off don't count."""
    complete = rank.steps["number"][~rank.steps["number"].isin(rank.cut_steps)]
    events = rank.device_events[["name", "lane", "end", "launch", "step"]]
    launch = events["launch"].to_numpy()
    events = events[(launch >= 0) & ~graphed(rank, launch) & events["step"].isin(complete)]
    events = events.sort_values(["step", "launch"], kind="stable")
    numbers, first = np.unique(events["step"].to_numpy(), return_index=True)
    if not len(numbers):
        return Repeats(0, 0, 0.0, [], EMPTY)
    rows = np.column_stack((events["name"].array.codes, events["lane"])).astype(np.int64)
    digests = Counter(blake2b(step.tobytes()).digest() for step in np.split(rows, first[1:]))
    launch = events["launch"].to_numpy()
    launched = rank.launches["ts"].to_numpy()[launch]  # In order within each step.
    begin, last = launched[first], launched[np.append(first[1:], len(rows)) - 1]
    region = intervals.union(begin, np.maximum.reduceat(events["end"].to_numpy(), first))
    threads = unique_sorted(rank.launches["thread"].to_numpy()[launch])
    blockers = _blockers(rank, begin, last, threads)
    return Repeats(len(numbers), max(digests.values()), len(rows) / len(numbers), blockers, region)


def _blockers(
    rank: Rank, begin: NDArray[np.int64], end: NDArray[np.int64], threads: NDArray[Any]
) -> list[tuple[str, int]]:
    """Calls that a capture does not allow, on launching threads between the first and the last launch of a step."""
    host = rank.host
    rows = rows_named(rank, _BLOCKS, "call")
    ts = host.at("ts", rows)
    step = np.searchsorted(begin, ts, side="right") - 1
    is_inside = (step >= 0) & (ts < end[np.maximum(step, 0)]) & np.isin(host.at("thread", rows), threads)
    rows = rows[is_inside]
    operators = operators_around(rank)[rows]
    names = Counter(names_of(rank, np.where(operators >= 0, operators, rows).tolist()))
    return sorted(names.items(), key=lambda item: (-item[1], item[0]))
