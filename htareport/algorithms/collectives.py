"""The same collective on several ranks: which kernels belong together, whose clock is off, and who comes last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import exp, lgamma, log, log1p

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.distinct import unique_sorted

Ints = NDArray[np.int64]

AGREED_NS = 50_000  # Ends of a collective that all ranks leave together differ by no more than this,
AGREED_SHARE = 0.05  # or than this share of its duration.


@dataclass(frozen=True)
class Matched:
    """Collectives with the same participants: one row each, one column for each of `ranks`, in order.

    `key` says what kind each is, `rows` where its kernels stand in the input of `match`; times are int64 ns.
    """

    ranks: Ints
    key: Ints
    rows: Ints
    start: Ints
    end: Ints

    def only(self, chosen: NDArray[np.bool_]) -> Matched:
        """Some of the collectives."""
        return Matched(self.ranks, self.key[chosen], self.rows[chosen], self.start[chosen], self.end[chosen])


@dataclass(frozen=True)
class Clocks:
    """How far each rank's clock is ahead of the middle of the ranks that it shares collectives with (ns).

    `residual` is the median distance of a rank's ends from the middle once the offsets are taken off, `used` the number
    of its collectives. Ranks that share none are absent, and count as right.
    """

    offset: dict[int, int] = field(default_factory=dict)
    residual: dict[int, float] = field(default_factory=dict)
    used: dict[int, int] = field(default_factory=dict)

    def of(self, ranks: Ints) -> Ints:
        """Offset of each rank."""
        return np.array([self.offset.get(rank, 0) for rank in ranks.tolist()], np.int64)


@dataclass(frozen=True)
class Arrivals:
    """Who comes when: a row for each collective, and where it says so a column for each rank (ns)."""

    lateness: Ints  # By rank: start after the earliest start.
    wait: Ints  # By rank: until the latest start.
    last: Ints  # Column of the rank that starts last.
    margin: Ints  # How much later it starts than the second-latest.
    transfer: Ints  # From the latest start to the earliest end, at least 0.
    spread: Ints  # From the earliest to the latest end.


def match(rank: Ints, key: Ints, ordinal: Ints, count: Ints, times: tuple[Ints, Ints]) -> list[Matched]:
    """Put kernels of equal key and ordinal together, one for each rank; `times` are their starts and ends.

    `count` is how many of the key the rank has, and only ranks with the most common count of a key take part: where a
    rank lacks one, the others' order says nothing about its own. What has one rank only is left out.
    """
    kept = np.flatnonzero(_has_usual_count(rank, key, count)) if len(rank) else np.zeros(0, np.int64)
    order = kept[np.lexsort((rank[kept], ordinal[kept], key[kept]))]
    new = np.ones(len(order), np.bool_)
    new[1:] = (np.diff(key[order]) != 0) | (np.diff(ordinal[order]) != 0)
    first = np.flatnonzero(new)
    sizes = np.diff(np.append(first, len(order)))
    match = []
    for size in unique_sorted(sizes[sizes > 1]).tolist():
        rows = order[first[sizes == size][:, None] + np.arange(size)]
        members, which = np.unique(rank[rows], axis=0, return_inverse=True)
        for number, ranks in enumerate(members):
            mine = rows[which.ravel() == number]
            match.append(Matched(ranks, key[mine[:, 0]], mine, times[0][mine], times[1][mine]))
    return match


def _has_usual_count(rank: Ints, key: Ints, count: Ints) -> NDArray[np.bool_]:
    """Whether each row's rank has the most common count of its key; of equally common ones the larger."""
    codes, of_key = np.unique(key, return_inverse=True)
    ranks, of_rank = np.unique(rank, return_inverse=True)
    _, once = np.unique(of_key * len(ranks) + of_rank, return_index=True)
    width = int(count.max()) + 1
    pairs, votes = np.unique(of_key[once] * width + count[once], return_counts=True)
    order = np.lexsort((pairs, votes, pairs // width))
    best = np.zeros(len(codes), np.int64)
    best[pairs[order] // width] = pairs[order] % width  # The last of a key wins.
    return np.asarray(count == best[of_key])


def align(matched: Sequence[Matched]) -> Clocks:
    """Work out the clock offsets from collectives that all participants leave together.

    Within a set of ranks: the median over its collectives of each rank's end minus the middle of the ends. Sets that
    share ranks are joined, the largest first, so that groups of groups come to lie on one clock.
    """
    joined: list[dict[int, int]] = []
    for one in sorted(matched, key=lambda each: (-len(each.ranks), -len(each.key), each.ranks.tolist())):
        middle = np.rint(np.median(_deviation(one.end), axis=0)).astype(np.int64)
        own = dict(zip(one.ranks.tolist(), middle.tolist(), strict=True))
        touched = [part for part in joined if own.keys() & part.keys()]
        if len(touched) == 1 and own.keys() <= touched[0].keys():
            continue
        joined = [part for part in joined if not own.keys() & part.keys()]
        whole = dict(own)
        for part in touched:
            shift = _middle(own[rank] - part[rank] for rank in own.keys() & part.keys())
            whole |= {rank: offset + shift for rank, offset in part.items()}
        joined.append(whole)
    offset = dict[int, int]()
    for part in joined:
        zero = _middle(part.values())
        offset |= {rank: each - zero for rank, each in part.items()}
    return _with_residuals(matched, offset)


def _with_residuals(matched: Sequence[Matched], offset: dict[int, int]) -> Clocks:
    clocks = Clocks(offset)
    parts: dict[int, list[NDArray[np.float64]]] = {rank: [] for rank in offset}
    for one in matched:
        distance = np.abs(_deviation(one.end - clocks.of(one.ranks)))
        for column, rank in enumerate(one.ranks.tolist()):
            parts[rank].append(distance[:, column])
    distances = {rank: np.concatenate(each) for rank, each in parts.items()}
    residual = {rank: float(np.median(each)) for rank, each in distances.items()}
    return Clocks(offset, residual, {rank: len(each) for rank, each in distances.items()})


def _deviation(end: Ints) -> NDArray[np.float64]:
    """End on each rank minus the middle of the ends; exact, since only differences become floats."""
    from_first = end - end[:, :1]
    return np.asarray(from_first - np.median(from_first, axis=1, keepdims=True))


def _middle(values: Iterable[int]) -> int:
    return round(float(np.median(list(values))))


def arrivals(one: Matched, clocks: Clocks) -> Arrivals:
    """Who comes when, on one clock."""
    offset = clocks.of(one.ranks)
    start, end = one.start - offset, one.end - offset
    by_start = np.sort(start, axis=1)
    latest = by_start[:, -1]
    return Arrivals(
        lateness=start - by_start[:, :1],
        wait=latest[:, None] - start,
        last=np.argmax(start, axis=1),
        margin=latest - by_start[:, -2],
        transfer=np.maximum(end.min(axis=1) - latest, 0),
        spread=end.max(axis=1) - end.min(axis=1),
    )


def agree(one: Matched, clocks: Clocks) -> NDArray[np.bool_]:
    """Whether all ranks leave each collective together, as they must if its kernels belong together."""
    usual = np.median(one.end - one.start, axis=1)
    return np.asarray(arrivals(one, clocks).spread <= np.maximum(AGREED_NS, AGREED_SHARE * usual))


def chance(times: int, tries: int, share: float) -> float:
    """How likely it is to be chosen so often or more, if each try chooses with this probability."""
    if times <= 0 or share >= 1:
        return 1.0
    if share <= 0 or times > tries:
        return 0.0
    whole = lgamma(tries + 1)
    terms = (
        whole - lgamma(k + 1) - lgamma(tries - k + 1) + k * log(share) + (tries - k) * log1p(-share)
        for k in range(times, tries + 1)
    )
    return min(1.0, sum(map(exp, terms)))
