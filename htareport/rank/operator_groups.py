"""Calls of operators with the same shapes on the same kernel, and how near they come to their device's limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.work import SIZES, Kind
from htareport.rank.attention_chains import chains
from htareport.rank.compute_time import calls_in_steps, work
from htareport.rank.device_peaks import Precision
from htareport.rank.operator_work import NONE
from htareport.rank.rank import Rank

_ALIKE = ["signature", "kernel", "precision", "device"]
VECTOR = 16  # Bytes that are loaded at once.
_ALIGN = re.compile(r"_align(\d+)\b")
_INNER, _OUTER = re.compile(r"cutlass_\w+"), re.compile(r"(?:void )?([^(<]{1,80})")


@dataclass(frozen=True)
class GroupSummary:
    """A group of calls in few words: calls and time are per step."""

    name: str
    shapes: str
    precision: str
    roof_share: float
    bound: str  # compute or memory
    time_ns: float
    calls: float
    kernel: str


class Group:
    """Calls of one operator with the same shapes that run the same kernel, within the steps."""

    def __init__(self, rank: Rank, calls: NDArray[np.int64], columns: Mapping[str, NDArray[Any]]) -> None:
        self.calls = calls
        self.time, self.mean = int(columns["time"].sum()), float(columns["time"].mean())
        self.by_compute, self.by_memory = float(columns["by_compute"].sum()), float(columns["by_memory"].sum())
        self.roof = float(columns["roof"].sum()) / self.time if self.time else np.nan
        signature, kernel, precision, self.device = (columns[name][:1].tolist()[0] for name in _ALIKE)
        self.signature = work(rank).signatures[signature]
        self.kernel = rank.loaded.strings[kernel]
        self.precision = str(list(Precision)[precision])

    def summary(self, steps: int) -> GroupSummary:
        """What sentences say of it."""
        return GroupSummary(
            name=self.signature.name,
            shapes=self.signature.shapes,
            precision=self.precision,
            roof_share=self.roof,
            bound="compute" if self.by_compute >= self.by_memory else "memory",
            time_ns=self.time / steps,
            calls=len(self.calls) / steps,
            kernel=short(self.kernel),
        )


def short(kernel: str) -> str:
    """A kernel's name without its return type and arguments."""
    kernel = kernel.replace("(anonymous namespace)::", "")
    found = _INNER.search(kernel) or _OUTER.match(kernel)
    return (found[1] if found.lastindex else found[0]).strip() if found else kernel


def groups(rank: Rank, wanted: NDArray[np.bool_]) -> list[Group]:
    """Groups of calls whose roof is known, among those wanted."""
    found = work(rank)
    roof, time = found.roof, found.calls["time"].to_numpy()
    chosen = np.flatnonzero(wanted & calls_in_steps(rank) & ~np.isnan(roof) & (time > 0))
    if not len(chosen):
        return []
    number = found.calls[_ALIKE].iloc[chosen].groupby(_ALIKE, sort=True).ngroup().to_numpy()
    order = np.argsort(number, kind="stable")
    names = [*_ALIKE, "time", "by_compute", "by_memory"]
    columns = {name: found.calls[name].to_numpy()[chosen[order]] for name in names} | {"roof": roof[chosen[order]]}
    limits = np.flatnonzero(np.diff(number[order])) + 1
    parts = zip(np.append(0, limits).tolist(), np.append(limits, len(chosen)).tolist(), strict=True)
    return [
        Group(rank, chosen[order[start:stop]], {name: column[start:stop] for name, column in columns.items()})
        for start, stop in parts
    ]


def of_kind(rank: Rank, *kinds: Kind) -> NDArray[np.bool_]:
    """Which calls compute something of these kinds."""
    found = work(rank)
    chosen = [bool(signature.work and signature.work.kind in kinds) for signature in found.signatures]
    mine: NDArray[np.bool_] = np.array(chosen or [False], np.bool_)[found.calls["signature"].to_numpy()]
    return mine


def of_attention(rank: Rank) -> NDArray[np.bool_]:
    """Which calls are part of attention that is not fused, whose remedy is another."""
    of_attention = np.zeros(len(work(rank).calls), np.bool_)
    for chain in chains(rank):
        owner = work(rank).owner[chain.events]
        of_attention[owner[owner != NONE]] = True
    return of_attention


def elements_at_once(kernel: str) -> int:
    """How many elements a kernel loads at once, as its name says; 0 where it does not."""
    found = _ALIGN.search(kernel)
    return int(found[1]) if found else 0


def misalignment(group: Group) -> list[int]:
    """Sizes of a product that keep its kernel from loading 16 bytes at once; empty unless the kernel's name says so."""
    known, count = group.signature.work, elements_at_once(group.kernel)
    if known is None or known.product is None or not count or count * SIZES[known.dtype] >= VECTOR:
        return []
    elements = VECTOR // SIZES[known.dtype]
    inner, outer = (known.product.n, known.product.k), (known.product.m,)  # Mostly the inner ones are contiguous.
    odd = [size for size in inner if size % elements] or [size for size in outer if size % elements]
    return list(dict.fromkeys(odd)) or [0]  # 0: the sizes are even, so its strides or its address are not.
