"""Attention written out in plain operators: a softmax with the matrix products before and behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.work import SIZES, Product, Shape, Work
from htareport.rank import kernel_launches
from htareport.rank.cached import cached_until_release
from htareport.rank.compute_time import calls_in_steps, work
from htareport.rank.compute_time import operators as launching
from htareport.rank.device_peaks import Precision
from htareport.rank.operator_work import NONE, limits_of
from htareport.rank.rank import Rank

_SOFTMAX = {"aten::_softmax": False, "aten::_softmax_backward_data": True}  # Whether it is of the backward pass.
_FALLBACK = "aten::_scaled_dot_product_attention_math"
_NEAR = 12  # Operators with device work, between a product and its softmax.
_MOST = 2  # Products on each side of a softmax.
_OF_PEAK = 0.45  # What fused attention reaches.
_PER_SECOND = 1e9


class Scores(NamedTuple):
    """The matrices between the products: so many, of rows × columns."""

    batch: int
    rows: int
    columns: int


class Chain(NamedTuple):
    """Operators over the same scores.

    `events` are their device events, `time` the sum of these and `softmax` that of the softmax, `fused` what fused
    attention takes (ns); `kernel` is the name of the first product's, `is_fallback` whether PyTorch was asked for fused
    attention and could not give it.
    """

    scores: Scores
    dtype: str
    events: NDArray[np.int64]
    time: int
    softmax: int
    fused: float
    kernel: str
    is_fallback: bool


@cached_until_release
def chains(rank: Rank) -> list[Chain]:
    """Unfused attention within the steps, forward and backward."""
    return list(_chains(rank))


def _chains(rank: Rank) -> Iterator[Chain]:
    strings = rank.loaded.strings
    codes = {code: _SOFTMAX[name] for code, name in enumerate(strings) if name in _SOFTMAX}
    if not codes or not work(rank).signatures:
        return
    operators = _Operators(rank)
    for place in np.flatnonzero(np.isin(operators.names, list(codes))).tolist():
        tensors = operators.tensors(place)
        if operators.rows[place] != NONE and tensors and len(tensors[0]) > 2:  # noqa: PLR2004  a batch of matrices
            *batch, rows, columns = tensors[0]
            found = _Candidate(operators, place, Scores(prod(batch), rows, columns), codes[operators.names[place]])
            if found.before and found.behind:
                yield found.chain()


class _Operators:
    """Innermost operators with device work, by thread in order of start, and which of them are products."""

    def __init__(self, rank: Rank) -> None:
        trace, found, host = rank, work(rank), rank.host
        self.rank = rank
        self.rows, inverse = np.unique(launching(rank), return_inverse=True)
        self.events = np.argsort(inverse, kind="stable")
        self.first = np.searchsorted(inverse[self.events], np.arange(len(self.rows) + 1))
        self.thread = host.at("thread", self.rows) * len(trace.captures) + host.at("capture", self.rows)
        self.names = host["name"][self.rows]
        self.durations = trace.device_events["dur"].to_numpy()
        self._shapes = kernel_launches.codes_of(trace, np.maximum(self.rows, 0), "shapes")
        self._tensors: dict[int, list[Shape]] = {}
        wanted = np.flatnonzero(calls_in_steps(rank))
        columns = [
            found.calls[name].to_numpy()[wanted] for name in ("row", "signature", "device", "precision", "kernel")
        ]
        places = np.searchsorted(self.rows, columns[0]).tolist()
        self.calls = dict(zip(places, zip(*(column.tolist() for column in columns[1:]), strict=True), strict=True))

    def tensors(self, place: int) -> list[Shape]:
        """Shapes of the inputs of an operator."""
        code = int(self._shapes[place])
        if code not in self._tensors:
            written = json.loads(self.rank.loaded.strings[code]) if code != NONE else []
            lists = [each for each in written if isinstance(each, list)] if isinstance(written, list) else []
            self._tensors[code] = [tuple(each) for each in lists if each and all(type(size) is int for size in each)]
        return self._tensors[code]

    def work(self, place: int) -> Work | None:
        """Work of an operator, None if it is none of which that is known."""
        call = self.calls.get(place)
        return work(self.rank).signatures[call[0]].work if call else None

    def product(self, place: int) -> Product | None:
        """Sizes of a product, None for other operators."""
        known = self.work(place)
        return known.product if known else None

    def of(self, *places: int) -> NDArray[np.int64]:
        """Device events of operators."""
        return np.concatenate([self.events[self.first[place] : self.first[place + 1]] for place in places])

    def time(self, *places: int) -> int:
        """Their device time, ns."""
        return int(self.durations[self.of(*places)].sum())


class _Candidate:
    """A softmax, and products that make the scores before it and use them behind it (or their gradients)."""

    def __init__(self, operators: _Operators, place: int, scores: Scores, backward: bool) -> None:  # noqa: FBT001
        self.operators, self.place, self.scores, self.backward = operators, place, scores, backward
        self.before = self._near(-1)
        self.behind = self._near(1)

    def _near(self, step: int) -> list[int]:
        """Products on one side, nearest first. The nearest before the softmax makes the scores; others use them."""
        operators, found = self.operators, list[int]()
        for distance in range(1, _NEAR + 1):
            near = self.place + step * distance
            if not 0 <= near < len(operators.rows) or operators.thread[near] != operators.thread[self.place]:
                break
            sizes = operators.product(near)
            if sizes is None or sizes.batch != self.scores.batch:
                continue
            shape = self.scores[1:]
            makes = (sizes.m, sizes.n) == shape
            uses = shape in {(sizes.m, sizes.k), (sizes.k, sizes.m), (sizes.k, sizes.n)}
            if (makes if step < 0 and not found else uses) and len(found) < (_MOST if self.backward else 1):
                found.append(near)
            elif found:
                break
        return found

    def chain(self) -> Chain:
        """All operators over the scores from the first product to the last."""
        operators, size = self.operators, prod(self.scores)
        around = (*self.before, *self.behind)
        there = [
            each
            for each in range(min(self.before), max(self.behind) + 1)
            if each in around or any(prod(tensor) == size for tensor in operators.tensors(each))
        ]
        time, products = operators.time(*there), operators.time(*around)
        fused = self._fused()
        known, kernel = operators.work(self.before[0]), operators.calls[self.before[0]][3]
        return Chain(
            self.scores,
            known.dtype if known else "",
            operators.of(*there),
            time,
            operators.time(self.place),
            min(float(products) if fused is None else fused, float(time)),
            operators.rank.loaded.strings[kernel],
            _is_within(operators.rank, int(operators.rows[self.place]), _FALLBACK),
        )

    def _fused(self) -> float | None:
        """What fused attention takes for it, ns; None where the device's limits are not known."""
        made, used = (self.operators.product(each[0]) for each in (self.before, self.behind))
        known, (_, number, precision, _) = self.operators.work(self.before[0]), self.operators.calls[self.before[0]]
        device = limits_of(self.operators.rank, [number])[number]
        peak = device.peaks.get(list(Precision)[precision]) if device and precision != NONE else None
        if not device or not peak or made is None or used is None or known is None:
            return None
        batch, rows, columns = self.scores
        first, second = made.k, used.m if (used.k, used.n) == (rows, columns) else used.n
        moved = batch * (rows + columns) * (first + second) * SIZES[known.dtype]
        flops = 2 * batch * rows * columns * (first + second)
        if self.backward:  # The first is the size of values then; the scores are computed again.
            moved, flops = 2 * moved, 2 * batch * rows * columns * (2 * first + 3 * second)
        return max(flops / (_OF_PEAK * peak), moved / device.bandwidth) * _PER_SECOND


def _is_within(rank: Rank, row: int, name: str) -> bool:
    """Whether a row of the host table lies within one of this name."""
    host, strings = rank.host, rank.loaded.strings
    parent, codes = host["parent"], host["name"]
    while row != NONE:
        if strings[codes[row]] == name:
            return True
        row = int(parent[row])
    return False
