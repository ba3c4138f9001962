"""Runs of codes: which are equal, and which come again and again.

Equal runs are recognised by exact numbers, not by hashes: those of two equal parts that cover a run, which are numbered
the same way. So the cost is linear in the number of codes for each length.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Codes = NDArray[np.int64]
NOWHERE = -1


class Repeats(NamedTuple):
    """Runs that occur more than once: length of each, and where its occurrences begin (`run` says of which run).

    Occurrences of one run do not overlap; they are in order of run and place.
    """

    lengths: Codes
    run: Codes
    starts: Codes


def numbers_of(starts: Codes, stops: Codes, codes: NDArray[Any]) -> Codes:
    """A number for each run codes[start:stop], from 0 on: equal runs have equal ones."""
    lengths, wholes = stops - starts, np.zeros(len(starts), np.int64)
    ids, width, used = pd.factorize(codes)[0].astype(np.int64), 1, 1  # The number 0 is that of runs of no length.
    while (left := lengths >= width).any():
        mine = np.flatnonzero(left & (lengths < 2 * width))
        ends, _ = pd.factorize(_paired(ids[starts[mine]], ids[stops[mine] - width]))
        wholes[mine] = used + pd.factorize(_paired(ends, lengths[mine]))[0]
        used = max(used, int(wholes[mine].max()) + 1) if len(mine) else used
        ids, width = pd.factorize(_paired(ids[:-width], ids[width:]))[0], 2 * width
    return pd.factorize(wholes)[0].astype(np.int64)


def repeats(codes: NDArray[Any], stretches: NDArray[Any], *, shortest: int, longest: int, fewest: int) -> Repeats:
    """Runs of `shortest` to `longest` codes that occur at least `fewest` times without overlapping themselves.

    `stretches` numbers the stretches of codes that no run may cross. A run is left out if it never occurs but within
    one and the same longer run that is looked at.
    """
    empty = Repeats(*(np.zeros(0, np.int64),) * 3)
    repeats: list[Repeats] = []
    ids = pd.factorize(codes)[0].astype(np.int64)
    counts = np.bincount(ids)
    for length in range(1, longest + 1):
        longer, longer_counts = _one_longer(ids, length, stretches, fewest)
        if length >= shortest and length <= len(codes):
            last = length == longest
            kept = np.flatnonzero((ids != NOWHERE) & (counts[ids] >= fewest))
            if not last:
                kept = kept[~_is_part(ids, counts, longer, longer_counts)[ids[kept]]]
            repeats.append(_apart(kept, ids[kept], length, fewest))
        if not len(longer_counts):
            break
        ids, counts = longer, longer_counts
    if not repeats:
        return empty
    offsets = np.cumsum([0, *(len(each.lengths) for each in repeats)])
    runs = [each.run + offset for each, offset in zip(repeats, offsets, strict=False)]
    return Repeats(
        np.concatenate([each.lengths for each in repeats]),
        np.concatenate(runs),
        np.concatenate([each.starts for each in repeats]),
    )


def leading(found: Repeats, order: Codes, size: int, most: int) -> Codes:
    """The first runs in an order of worth, without those that are mostly (more than half) about the same places.

    `size` is the number of codes, `most` how many runs are wanted.
    """
    taken, chosen = np.zeros(size, np.bool_), list[int]()
    limits = np.searchsorted(found.run, np.arange(len(found.lengths) + 1))
    for run in order.tolist():
        starts, length = found.starts[limits[run] : limits[run + 1]], int(found.lengths[run])
        places = starts[:, None] + np.arange(length)
        if 2 * np.count_nonzero(taken[places].any(axis=1)) > len(starts):
            continue
        taken[places] = True
        chosen.append(run)
        if len(chosen) == most:
            break
    return np.array(chosen, np.int64)


def _paired(one: Codes, other: Codes) -> Codes:
    return one * (int(other.max(initial=0)) + 2) + other


def _one_longer(ids: Codes, length: int, stretches: NDArray[Any], fewest: int) -> tuple[Codes, Codes]:
    """Numbers of the runs of one code more, -1 where there is none that may be often enough; and their counts."""
    longer = np.full(len(ids), NOWHERE, np.int64)
    size = len(ids) - length
    if size <= 0:
        return longer, np.zeros(0, np.int64)
    within = (ids[:size] != NOWHERE) & (ids[1 : size + 1] != NOWHERE) & (stretches[:size] == stretches[length:])
    places = np.flatnonzero(within)
    numbers = pd.factorize(_paired(ids[places], ids[places + 1]))[0].astype(np.int64)
    counts = np.bincount(numbers)
    often = counts[numbers] >= fewest
    longer[places[often]] = numbers[often]
    return longer, counts if often.any() else np.zeros(0, np.int64)


def _is_part(ids: Codes, counts: Codes, longer: Codes, longer_counts: Codes) -> NDArray[np.bool_]:
    """Which runs occur only within one and the same run of one code more, to the left or to the right."""
    part = np.zeros(len(counts), np.bool_)
    places = np.flatnonzero(longer != NOWHERE)
    often = longer_counts[longer[places]]
    for shift in (0, 1):
        inner = ids[places + shift]
        part[inner[often == counts[inner]]] = True
    return part


def _apart(places: Codes, ids: Codes, length: int, fewest: int) -> Repeats:
    """Occurrences that begin behind the end of the one before, of runs that have enough of them."""
    order = np.argsort(ids, kind="stable")
    places, ids = places[order], ids[order]
    far = np.diff(places, append=0) >= length
    far[np.append(np.diff(ids) != 0, True)[: len(ids)]] = True
    if not far.all():
        keys = ids * (int(places.max()) + length + 1) + places
        places, ids = _spaced(places, ids, np.searchsorted(keys, keys + length))
    _, inverse, counts = np.unique(ids, return_inverse=True, return_counts=True)
    often = counts >= fewest
    kept = often[inverse]
    renumbered = np.cumsum(often) - 1
    return Repeats(np.full(int(often.sum()), length, np.int64), renumbered[inverse[kept]], places[kept])


def _spaced(places: Codes, ids: Codes, following: Codes) -> tuple[Codes, Codes]:
    """Go from each occurrence to the first behind its end (of the same run, else the first of the next run)."""
    step, at, kept = following.data, 0, list[int]()  # A list of as many integers takes four times its room.
    while at < len(step):
        kept.append(at)
        at = step[at]
    return places[kept], ids[kept]
