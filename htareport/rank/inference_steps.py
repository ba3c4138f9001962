"""Where a trace of inference generates tokens, and where it reads prompts, as annotations or shapes tell."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms import intervals
from htareport.algorithms.distinct import unique_sorted
from htareport.algorithms.intervals import EMPTY
from htareport.algorithms.work import Kind
from htareport.rank.cached import cached_until_release
from htareport.rank.compute_time import calls_in_steps, work
from htareport.rank.host_rows import name_of, rows_named
from htareport.rank.interval_sets import Sets
from htareport.rank.operator_work import Signature
from htareport.rank.rank import Rank
from htareport.rank.training import trains

_REQUESTS = re.compile(r"context_(\d+)(?!\d).*?generation_(\d+)(?!\d)")  # vLLM: how many of each.
_WORD = r"(?:^|[\W_\d]){}(?=$|[\W_\d])"
_DECODE = re.compile(_WORD.format("(?:decode|decode_step|generate_token|next_token|token_generation)"), re.IGNORECASE)
_PREFILL = re.compile(_WORD.format("(?:prefill|extend|prompt)"), re.IGNORECASE)
_ANY = re.compile(f"{_REQUESTS.pattern}|{_DECODE.pattern}|{_PREFILL.pattern}", re.IGNORECASE)
NARROW = 16  # Rows of products when tokens are generated one at a time, in a small batch.
_MOSTLY = 0.8  # Of the products of a step.


class Ranges(NamedTuple):
    """Ranges on the host, in order of thread and start: how many requests each prefills and decodes (1: unknown)."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    capture: NDArray[np.int64]
    thread: NDArray[np.int64]
    prefills: NDArray[np.int64]
    decodes: NDArray[np.int64]

    def chosen(self, mine: NDArray[np.bool_]) -> Ranges:
        """Some of them."""
        return Ranges(*(column[mine] for column in self))


_NO_RANGES = Ranges(*(np.zeros(0, np.int64) for _ in range(6)))


@cached_until_release
def annotated(rank: Rank) -> Ranges:
    """Annotated ranges that prefill or decode, the outermost of each; none where there is a backward pass."""
    rows = rows_named(rank, _ANY, "annotation")
    if not len(rows) or trains(rank):
        return _NO_RANGES
    counts = np.array([_requests(name_of(rank, row)) for row in rows.tolist()], np.int64)
    host = rank.host
    start, end, capture, thread = (host.at(name, rows).astype(np.int64)
                                   for name in ("ts", "end", "capture", "thread"))  # fmt: skip
    annotated = Ranges(start, end, capture, thread, counts[:, 0], counts[:, 1])
    same = (np.diff(thread, prepend=-1) == 0) & (np.diff(capture, prepend=-1) == 0)
    reach = np.zeros(len(rows), np.int64)
    for place in range(1, len(rows)):
        reach[place] = max(reach[place - 1], int(end[place - 1])) if same[place] else 0
    inside = np.zeros(len(rows), np.bool_)
    for window in rank.windows.values():
        last = np.searchsorted(window[:, 0], end) - 1  # The last that begins before it ends.
        inside |= (last >= 0) & (window[np.maximum(last, 0), 1] > start)
    return annotated.chosen(inside & ~(start < reach) & (end > start))


def _requests(name: str) -> tuple[int, int]:
    """How many requests a range prefills and decodes, as its name says."""
    told = _REQUESTS.search(name)
    if told:
        return int(told[1]), int(told[2])
    is_decode = _DECODE.search(name) is not None
    return int(not is_decode), int(is_decode)


def by_engine(rank: Rank) -> bool:
    """Whether the ranges are named as vLLM names them."""
    return len(rows_named(rank, _REQUESTS, "annotation")) > 0


@cached_until_release
def decoding(rank: Rank) -> Ranges:
    """Where only tokens are generated: annotated so, or steps of narrow products and single queries."""
    named = annotated(rank)
    if len(named.start):
        return named.chosen((named.decodes > 0) & (named.prefills == 0))
    steps = rank.steps
    if not len(steps) or trains(rank):
        return _NO_RANGES
    found, of_call = work(rank), work(rank).calls["signature"].to_numpy()
    signatures = [*found.signatures, None][: max(len(found.signatures), 1)]
    is_flat, is_narrow, is_query = (np.array([bool(signature and test(signature)) for signature in signatures])[of_call]
                                    for test in (_is_flat, _is_narrow, _is_one_query))  # fmt: skip
    place = np.searchsorted(steps["number"].to_numpy(), found.calls["step"].to_numpy())
    counts = [
        np.bincount(place[mine & calls_in_steps(rank)], minlength=len(steps))[: len(steps)]
        for mine in (is_flat, is_narrow, is_query)
    ]
    start, end, capture = (steps[name].to_numpy().astype(np.int64) for name in ("start", "end", "capture"))
    ones = np.ones(len(start), np.int64)
    every = Ranges(start, end, capture, -ones, 0 * ones, ones)
    return every.chosen((counts[0] > 0) & (counts[1] >= _MOSTLY * counts[0]) & (counts[2] > 0))


def _is_flat(signature: Signature) -> bool:
    """Whether it is a product with a matrix of weights, not one of attention."""
    return bool(signature.work and signature.work.product and signature.work.product.batch == 1)


def _is_narrow(signature: Signature) -> bool:
    return bool(
        _is_flat(signature) and signature.work and signature.work.product and signature.work.product.m <= NARROW
    )


def _is_one_query(signature: Signature) -> bool:
    """Whether it is attention of one query to many keys, as when a token is generated."""
    known = signature.work
    if known and known.kind is Kind.ATTENTION:
        query = signature.shapes.split(", ")[0].split("×")
        return "1" in query[1:3]
    return bool(known and known.product and known.product.batch > 1 and known.product.m == 1)


def windows(rank: Rank, ranges: Ranges) -> Sets:
    """The ranges as sets, on every device."""
    captures = unique_sorted(ranges.capture).tolist()
    runs = {capture: intervals.union(*(c[ranges.capture == capture] for c in (ranges.start, ranges.end)))
            for capture in captures}  # fmt: skip
    return rank.clipped({lane: runs.get(lane[1], EMPTY) for lane in rank.lanes})
