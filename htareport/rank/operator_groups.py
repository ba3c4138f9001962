"""Calls of operators grouped by shapes and kernel, with the share of their device's roof (peak) that they reach."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.work import SIZES, Kind
from htareport.rank.attention_chains import chains
from htareport.rank.compute_time import calls_in_steps, work
from htareport.rank.device_peaks import Precision
from htareport.rank.operator_work import NONE
from htareport.rank.rank import Rank

_KEYS = ["signature", "kernel", "precision", "device"]
VECTOR = 16  # Bytes that an aligned kernel loads at once.
_ALIGN = re.compile(r"_align(\d+)\b")
_INNER, _OUTER = re.compile(r"cutlass_\w+"), re.compile(r"(?:void )?([^(<]{1,80})")


@dataclass(frozen=True)
class GroupSummary:
    """What findings say of a group of calls; calls and time are per step."""

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
        signature, kernel, precision, self.device = (columns[name][:1].tolist()[0] for name in _KEYS)
        self.signature = work(rank).signatures[signature]
        self.kernel = rank.loaded.strings[kernel]
        self.precision = str(list(Precision)[precision])

    def summary(self, steps: int) -> GroupSummary:
        """Return what findings say of the group."""
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
    name = _INNER.search(kernel) or _OUTER.match(kernel)
    return name[name.lastindex or 0].strip() if name else kernel


def groups(rank: Rank, is_wanted: NDArray[np.bool_]) -> list[Group]:
    """Groups of those wanted calls in the steps whose roof is known."""
    operators = work(rank)
    roof, time = operators.roof, operators.calls["time"].to_numpy()
    rows = np.flatnonzero(is_wanted & calls_in_steps(rank) & ~np.isnan(roof) & (time > 0))
    if not len(rows):
        return []
    number = operators.calls[_KEYS].iloc[rows].groupby(_KEYS, sort=True).ngroup().to_numpy()
    order = np.argsort(number, kind="stable")
    rows = rows[order]
    names = [*_KEYS, "time", "by_compute", "by_memory"]
    columns = {name: operators.calls[name].to_numpy()[rows] for name in names} | {"roof": roof[rows]}
    limits = [0, *(np.flatnonzero(np.diff(number[order])) + 1).tolist(), len(rows)]
    return [
        Group(rank, rows[start:stop], {name: column[start:stop] for name, column in columns.items()})
        for start, stop in pairwise(limits)
    ]


def of_kind(rank: Rank, *kinds: Kind) -> NDArray[np.bool_]:
    """Which calls compute something of these kinds."""
    operators = work(rank)
    is_of_kind = [bool(signature.work and signature.work.kind in kinds) for signature in operators.signatures]
    calls: NDArray[np.bool_] = np.array(is_of_kind or [False], np.bool_)[operators.calls["signature"].to_numpy()]
    return calls


def is_unfused_attention(rank: Rank) -> NDArray[np.bool_]:
    """Which calls are part of attention that is not fused: there, fusing is the remedy."""
    is_attention = np.zeros(len(work(rank).calls), np.bool_)
    for chain in chains(rank):
        owner = work(rank).owner[chain.events]
        is_attention[owner[owner != NONE]] = True
    return is_attention


def elements_at_once(kernel: str) -> int:
    """Return how many elements a kernel loads at once by its name; 0 where its name does not say."""
    alignment = _ALIGN.search(kernel)
    return int(alignment[1]) if alignment else 0


def misaligned_sizes(group: Group) -> list[int]:
    """Sizes of a product that keep its kernel from loading 16 bytes at once; empty unless the kernel's name says so."""
    operation, count = group.signature.work, elements_at_once(group.kernel)
    if operation is None or operation.product is None or not count or count * SIZES[operation.dtype] >= VECTOR:
        return []
    elements = VECTOR // SIZES[operation.dtype]
    inner, outer = (operation.product.n, operation.product.k), (operation.product.m,)  # Inner ones: often contiguous.
    sizes = [size for size in inner if size % elements] or [size for size in outer if size % elements]
    return list(dict.fromkeys(sizes)) or [0]  # 0: all sizes are aligned, so strides or addresses are not.
