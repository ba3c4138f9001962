"""Many integers as few bytes: what they differ by, in as many bytes as that needs, the like bytes side by side.

Times that go up by about the same in each step, and counts that hardly differ, then take a half to a hundredth, and
what is left compresses better.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

_WIDEST = 8


class Integers(NamedTuple):
    """Integers of 64 bits: `size` of them, each `low` more than what its `width` bytes in `data` say.

    With `first` they are what each is more than the one before, which for the first is this. `data` has the lowest byte
    of all, then the next of all, and so on. All sums wrap around, so that nothing is ever out of range.
    """

    size: int
    low: int
    width: int
    data: bytes
    first: int | None = None

    def values(self) -> NDArray[np.int64]:
        """Return the integers."""
        steps = self.size - (self.first is not None)
        bytes_ = np.zeros((steps, _WIDEST), np.uint8)
        bytes_[:, : self.width] = np.frombuffer(self.data, np.uint8).reshape(self.width, steps).T
        values = bytes_.view("<i8").reshape(steps) + np.int64(self.low)
        if self.first is None:
            return values.astype(np.int64, copy=False)
        made = np.empty(self.size, np.int64)
        made[0], made[1:] = self.first, values
        return np.cumsum(made)


@dataclass(frozen=True)
class Numbers:
    """Integers that one goes through, as few bytes: those that go up evenly take next to none."""

    size: int
    low: int
    width: int
    first: int | None
    packed: bytes

    @classmethod
    def of(cls, values: NDArray[Any]) -> Self:
        """Keep integers."""
        made = coded(values)
        return cls(made.size, made.low, made.width, made.first, zlib.compress(made.data, 6))

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        data = zlib.decompress(self.packed)
        yield from Integers(self.size, self.low, self.width, data, self.first).values().tolist()


def coded(values: NDArray[Any]) -> Integers:
    """Return integers coded: as they are or by their differences, whatever spreads less."""
    values = np.ascontiguousarray(values, np.int64)
    if not len(values):
        return Integers(0, 0, 0, b"")
    plain = _planes(values)
    steps = _planes(np.diff(values))
    if steps.width < plain.width:
        return steps._replace(size=len(values), first=int(values[0]))
    return plain


def _planes(values: NDArray[np.int64]) -> Integers:
    if not len(values):
        return Integers(0, 0, 0, b"")
    low = values.min()
    above = (values - low).astype("<i8").view(np.uint8).reshape(len(values), _WIDEST)
    used = np.flatnonzero(above.any(axis=0))
    width = int(used[-1]) + 1 if len(used) else 0
    return Integers(len(values), int(low), width, above[:, :width].T.tobytes())
