"""Conversions of tensors from one type to another."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.distinct import unique_sorted
from htareport.rank import kernel_launches
from htareport.rank.capability import Capability
from htareport.rank.compute_time import compute_time
from htareport.rank.dtypes import TORCH_DTYPES
from htareport.rank.host_rows import names_of
from htareport.rank.kernel_types import events_of
from htareport.rank.operator_kernels import outside, times_of, within
from htareport.rank.operator_work import NONE
from htareport.rank.rank import Rank
from htareport.report.findings import Finding
from htareport.report.units import counted
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import JobEvidence
from htareport.rules.engine.kernel_evidence import KernelEvidence, kernel_fields

_COPY = re.compile(r"^aten::copy_$")
_CASTS = re.compile(r"^aten::(?:copy_|_to_copy|to|type_as|float|half|bfloat16|_autocast_to_\w+)$")
_REMAINING_SHARE = 0.3  # Of their time.


@dataclass(frozen=True, kw_only=True)
class CastEvidence(KernelEvidence):
    """Conversions between types, per step."""

    conversions: list[tuple[tuple[str, str], float]]  # Types from and to, with ns per step; those of most time.
    owners: list[tuple[str, float]]  # Operators that convert, empty for none, with ns per step.
    calls: float


@dataclass(frozen=True)
class Casts(Rule[CastEvidence]):
    """Kernels convert tensors from one type to another.

    ## When it speaks
    Kernels of `aten::copy_` whose two tensors have different types take at least `least` of the compute time.
    `.to(dtype)`, `.float()` and autocast launch such kernels.

    ## What it could save
    70 % of their time. Only what shortens the step counts: time that no other work covers, as far as the CPU launches
    early enough.

    ## What to do
    - **within operators**: These operators convert their inputs at every call, as they do under autocast. Keep weights
      and activations in the type in which they are used, and leave autocast's cache on. Or let `torch.compile` fuse the
      conversions.
    - **alone**: Convert each tensor once, where it is created, and stay in that type. Keep float32 for losses, sums and
      norms only. Let `torch.compile` fuse the remaining conversions with the operators next to them.

    ## How to verify
    `aten::copy_` takes less time in *Kernels by operator*.
    """

    code, title, family, section = "C17", "Conversions between types", Family.COMPUTE, "operator_kernels"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES, Capability.SHAPES})

    least: float = 0.03

    def look(self, rank: Rank) -> CastEvidence | None:
        events, rows = events_of(rank), within(rank, _COPY)
        is_cast = events.wanted & (rows != NONE)
        conversions = _conversions(rank, rows[is_cast])
        is_cast[is_cast] = [conversion is not None for conversion in conversions]
        conversions = [conversion for conversion in conversions if conversion]
        times = events.durations[is_cast]
        if not conversions or times.sum() < self.least * compute_time(rank):
            return None
        fields = kernel_fields(rank, is_cast, _REMAINING_SHARE)
        if fields is None:
            return None
        owner_rows = outside(rank, rows[is_cast], _CASTS)
        names = iter(names_of(rank, owner_rows[owner_rows != NONE].tolist()))
        owners = [next(names) if row != NONE else "" for row in owner_rows.tolist()]
        return CastEvidence(
            **fields,
            conversions=times_of(rank, conversions, times),
            owners=times_of(rank, owners, times),
            calls=len(unique_sorted(rows[is_cast])) / rank.num_steps,
        )

    def tell(self, job: JobEvidence[CastEvidence]) -> Finding | None:
        worst = job.worst
        conversions = ", ".join(
            f"{source} to {target} {job.time(time)}" for (source, target), time in worst.conversions
        )
        owners = ", ".join(f"`{name}` {job.time(time)}" for name, time in worst.owners if name)
        main = worst.owners[0][0]
        return self.finding(
            job,
            f"Conversions between types take {job.time(worst.time_ns)} {job.per_step}, "
            f"{job.percent(worst.compute_share)} of compute",
            evidence=f"{counted(worst.calls, 'call')}: {conversions}."
            + (f" Operators that convert: {owners}." if owners else ""),
            cases=("within operators" if main and not main.startswith("autograd::") else "alone",),
            assumption="70 % of them are avoided, or fused with the work before or after them.",
            snippet="model = model.to(torch.bfloat16)  # Instead of converting float32 weights in each step"
            if main
            else "x = x.to(torch.bfloat16)  # Once, where it is created",
        )


def _conversions(rank: Rank, rows: NDArray[np.int64]) -> list[tuple[str, str] | None]:
    """The types that each call of copy_ converts from and to; None where it converts nothing, or they are unknown."""
    codes, strings = kernel_launches.codes_of(rank, rows, "types"), rank.loaded.strings
    distinct, number = np.unique(codes, return_inverse=True)
    conversions = [_conversion(strings[code]) if code != NONE else None for code in distinct.tolist()]
    return [conversions[index] for index in number.tolist()]


def _conversion(recorded: str) -> tuple[str, str] | None:
    """The types that a call of copy_ converts from and to, of the types of its arguments as recorded."""
    try:
        names = json.loads(recorded)
    except ValueError:
        return None
    if not isinstance(names, list):
        return None
    target, source = (TORCH_DTYPES.get(name, "") for name in (*names, "", "")[:2])
    return (source, target) if source and target and source != target else None
