"""Whether steps repeat each other, and what in them could not be captured in a CUDA graph."""

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
from htareport.rank.host_rows import graphed, name_of, operators_around, rows_named
from htareport.rank.rank import Rank

_BLOCKS = re.compile(
    r"^(?:cuda|hip|cu)\w*Synchronize|^(?:cuda|hip)(?:Malloc|Free)|^cuMem(?:Alloc|Free)|^hipMemcpyWithStream|"
    r"^(?:cuda|hip)Memcpy$"
)
_FEWEST_STEPS = 3


@dataclass(frozen=True)
class Repeats:
    """How many steps launch the same work: the same kernels on the same streams in the same order.

    What graphs replay already is left out of all of it. `equal` of `steps` steps do; `events` is how much work that is
    in each. `blockers` stand between the first and the last launch of steps, and how often in all: calls that a capture
    does not allow, by the operator around them.
    `region` is from the first launch of each step to the end of its last work, ns.
    """

    steps: int
    equal: int
    events: float
    blockers: list[tuple[str, int]]
    region: Intervals

    def is_proven(self, share: float) -> bool:
        """Whether there are steps enough, so many of them are equal, and nothing stands in the way."""
        return self.steps >= _FEWEST_STEPS and self.equal >= share * self.steps and not self.blockers


@cached_until_release
def repeats_of(rank: Rank) -> Repeats:
    """Compare the steps of a rank, worked out once. Steps whose work is cut off by the end of recording don't count."""
    return _repeats(rank)


def _repeats(rank: Rank) -> Repeats:
    trace = rank
    whole = trace.steps[~trace.steps["number"].isin(trace.cut_steps)]
    events = trace.device_events[["name", "lane", "end", "launch", "step"]]
    mine = (events["launch"] >= 0) & ~graphed(rank, events["launch"].to_numpy()) & events["step"].isin(whole["number"])
    events = events[mine]
    events = events.sort_values(["step", "launch"], kind="stable")
    numbers, first = np.unique(events["step"].to_numpy(), return_index=True)
    if not len(numbers):
        return Repeats(0, 0, 0.0, [], EMPTY)
    rows = np.column_stack((events["name"].array.codes, events["lane"])).astype(np.int64)
    digests = Counter(blake2b(part.tobytes()).digest() for part in np.split(rows, first[1:]))
    launched = trace.launches["ts"].to_numpy()[events["launch"].to_numpy()]  # In order within each step.
    begin, last = launched[first], launched[np.append(first[1:], len(rows)) - 1]
    region = intervals.union(begin, np.maximum.reduceat(events["end"].to_numpy(), first))
    threads = unique_sorted(trace.launches["thread"].to_numpy()[events["launch"].to_numpy()])
    blockers = _blockers(rank, begin, last, threads)
    return Repeats(len(numbers), max(digests.values()), len(rows) / len(numbers), blockers, region)


def _blockers(
    rank: Rank, begin: NDArray[np.int64], end: NDArray[np.int64], threads: NDArray[Any]
) -> list[tuple[str, int]]:
    """Calls on launching threads between the first and the last launch of a step that cannot be captured."""
    host = rank.host
    rows = rows_named(rank, _BLOCKS, "call")
    ts = host.at("ts", rows)
    place = np.searchsorted(begin, ts, side="right") - 1
    inside = (place >= 0) & (ts < end[np.maximum(place, 0)]) & np.isin(host.at("thread", rows), threads)
    rows = rows[inside]
    around = operators_around(rank)[rows]
    names = Counter(name_of(rank, int(row)) for row in np.where(around >= 0, around, rows).tolist())
    return sorted(names.items(), key=lambda item: (-item[1], item[0]))
