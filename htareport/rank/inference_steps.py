"""Where inference decodes (generates tokens) and prefills (reads prompts), by annotations or by shapes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms import intervals
from htareport.algorithms.work import Kind, Product
from htareport.rank.cached import cached_until_release
from htareport.rank.compute_time import calls_in_steps, work
from htareport.rank.host_rows import by_lane, name_of, rows_named
from htareport.rank.interval_sets import Sets
from htareport.rank.operator_work import Signature
from htareport.rank.rank import Rank
from htareport.rank.training import trains

_REQUESTS = re.compile(r"context_(\d+)(?!\d).*?generation_(\d+)(?!\d)")  # vLLM: how many of each.
_WORD = r"(?:^|[\W_\d]){}(?=$|[\W_\d])"
_DECODE = re.compile(_WORD.format("(?:decode|decode_step|generate_token|next_token|token_generation)"), re.IGNORECASE)
_PREFILL = re.compile(_WORD.format("(?:prefill|extend|prompt)"), re.IGNORECASE)
_ANY = re.compile(f"{_REQUESTS.pattern}|{_DECODE.pattern}|{_PREFILL.pattern}", re.IGNORECASE)
_MAX_ROWS = 16  # Of products when tokens are generated one at a time, in a small batch.
_MIN_NARROW_SHARE = 0.8  # Of the products of a step.


class Ranges(NamedTuple):
    """Ranges on the host, in order of thread and start: how many requests each prefills and decodes (1: unknown)."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    capture: NDArray[np.int64]
    thread: NDArray[np.int64]
    prefills: NDArray[np.int64]
    decodes: NDArray[np.int64]

    def where(self, mask: NDArray[np.bool_]) -> Ranges:
        """Some of the ranges."""
        return Ranges(*(column[mask] for column in self))


_NO_RANGES = Ranges(*(np.zeros(0, np.int64) for _ in range(6)))


@cached_until_release
def annotated_ranges(rank: Rank) -> Ranges:
    """Annotated ranges that prefill or decode, the outermost only; none where there is a backward pass."""
    rows = rows_named(rank, _ANY, "annotation")
    if not len(rows) or trains(rank):
        return _NO_RANGES
    counts = np.array([_requests(name_of(rank, row)) for row in rows.tolist()], np.int64)
    host = rank.host
    start, end, capture, thread = (host.at(name, rows).astype(np.int64)
                                   for name in ("ts", "end", "capture", "thread"))  # fmt: skip
    is_same_thread = (np.diff(thread, prepend=-1) == 0) & (np.diff(capture, prepend=-1) == 0)
    reach = np.zeros(len(rows), np.int64)  # The latest end of the ranges before, on the same thread.
    for index in range(1, len(rows)):
        reach[index] = max(reach[index - 1], int(end[index - 1])) if is_same_thread[index] else 0
    is_inside = np.zeros(len(rows), np.bool_)
    for steps in rank.windows.values():
        is_inside |= intervals.touching(steps, start, end)
    ranges = Ranges(start, end, capture, thread, counts[:, 0], counts[:, 1])
    return ranges.where(is_inside & (start >= reach) & (end > start))


def _requests(name: str) -> tuple[int, int]:
    """How many requests a range prefills and decodes, as its name says."""
    if counts := _REQUESTS.search(name):
        return int(counts[1]), int(counts[2])
    is_decode = _DECODE.search(name) is not None
    return int(not is_decode), int(is_decode)


def is_vllm(rank: Rank) -> bool:
    """Whether ranges are named as vLLM names them."""
    return len(rows_named(rank, _REQUESTS, "annotation")) > 0


@cached_until_release
def decode_ranges(rank: Rank) -> Ranges:
    """Where only tokens are generated: annotated so, or steps of narrow products and single queries."""
    annotated = annotated_ranges(rank)
    if len(annotated.start):
        return annotated.where((annotated.decodes > 0) & (annotated.prefills == 0))
    steps = rank.steps
    if not len(steps) or trains(rank):
        return _NO_RANGES
    calls, signatures = work(rank).calls, work(rank).signatures
    step = np.searchsorted(steps["number"].to_numpy(), calls["step"].to_numpy())

    def count(test: Callable[[Signature], bool]) -> NDArray[np.int64]:
        """How many calls of each step pass a test."""
        passes = np.array([test(signature) for signature in signatures], np.bool_)[calls["signature"].to_numpy()]
        return np.bincount(step[passes & calls_in_steps(rank)], minlength=len(steps))[: len(steps)]

    num_flat = count(_is_flat)
    start, end, capture = (steps[name].to_numpy().astype(np.int64) for name in ("start", "end", "capture"))
    ones = np.ones(len(start), np.int64)
    ranges = Ranges(start, end, capture, -ones, 0 * ones, ones)
    is_narrow = (num_flat > 0) & (count(_is_narrow) >= _MIN_NARROW_SHARE * num_flat)
    return ranges.where(is_narrow & (count(_is_one_query) > 0))


def _product(signature: Signature) -> Product | None:
    return signature.work.product if signature.work else None


def _is_flat(signature: Signature) -> bool:
    """Whether it is a product with a matrix of weights, not one of attention."""
    product = _product(signature)
    return bool(product and product.batch == 1)


def _is_narrow(signature: Signature) -> bool:
    """Whether it is such a product with few rows."""
    product = _product(signature)
    return bool(product and product.batch == 1 and product.m <= _MAX_ROWS)


def _is_one_query(signature: Signature) -> bool:
    """Whether it is attention of one query to many keys, as when a token is generated."""
    if signature.work and signature.work.kind is Kind.ATTENTION:
        query = signature.shapes.split(", ")[0].split("×")
        return "1" in query[1:3]
    product = _product(signature)
    return bool(product and product.batch > 1 and product.m == 1)


def range_sets(rank: Rank, ranges: Ranges) -> Sets:
    """The ranges as sets of intervals, on every device of their capture."""
    return rank.clipped(by_lane(rank, ranges.start, ranges.end, ranges.capture))
