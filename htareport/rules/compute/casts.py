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
from htareport.rank.host_rows import names_of
from htareport.rank.kernel_types import events_of
from htareport.rank.operator_kernels import outside, times_of, within
from htareport.rank.operator_work import NONE
from htareport.rank.rank import Rank
from htareport.report.findings import Finding
from htareport.report.units import counted
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import JobEvidence
from htareport.rules.engine.kernel_evidence import KernelEvidence, evidence_of

_COPY = re.compile(r"^aten::copy_$")
_CASTS = re.compile(r"^aten::(?:copy_|_to_copy|to|type_as|float|half|bfloat16|_autocast_to_\w+)$")
_TYPES = {
    "double": "float64", "float": "float32", "c10::Half": "float16", "c10::BFloat16": "bfloat16", "bool": "bool",
    "long int": "int64", "int": "int32", "unsigned char": "uint8", "signed char": "int8",
    "c10::Float8_e4m3fn": "float8_e4m3fn", "c10::Float8_e5m2": "float8_e5m2",
}  # fmt: skip
_LEFT = 0.3


@dataclass(frozen=True, kw_only=True)
class CastEvidence(KernelEvidence):
    """What Casts sees on one rank."""

    pairs: list[tuple[tuple[str, str], float]]  # Types, and ns per step.
    owners: list[tuple[str, float]]
    calls: float


@dataclass(frozen=True)
class Casts(Rule[CastEvidence]):
    """Tensors are converted from one type to another.

    ## When it speaks
    Kernels of `aten::copy_` whose two tensors have different types (`.to(dtype)`, `.float()`, and what autocast does)
    take at least `least` of the compute time.

    ## What it could save
    70 % of their time. Of that, what no other work covers and the host's launches allow.

    ## What to do
    - **within operators**: These operators convert their inputs each time they are called, as autocast has them do:
      keep weights and activations in the type in which they are used, leave autocast's cache on, or let `torch.compile`
      fuse the conversions.
    - **alone**: Convert once, where a tensor is made, and stay in one type; keep float32 for losses, sums and norms
      only, in one piece rather than operator by operator. `torch.compile` fuses the rest into their neighbours.

    ## How to verify
    `aten::copy_` takes less time in *Kernels by operator*.
    """

    code, title, family, section = "C17", "Conversions between types", Family.COMPUTE, "operator_kernels"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES, Capability.SHAPES})

    least: float = 0.03

    def look(self, rank: Rank) -> CastEvidence | None:
        events, rows = events_of(rank), within(rank, _COPY)
        mine = events.wanted & (rows != NONE)
        pairs = _pairs(rank, rows[mine])
        mine[mine] = [bool(pair) for pair in pairs]
        pairs = [pair for pair in pairs if pair]
        if not pairs or events.durations[mine].sum() < self.least * compute_time(rank):
            return None
        around = outside(rank, rows[mine], _CASTS)
        names = iter(names_of(rank, around[around != NONE].tolist()))
        owners = [next(names) if row != NONE else "" for row in around.tolist()]
        times = events.durations[mine]
        told = times_of(rank, pairs, times), times_of(rank, owners, times)
        return evidence_of(
            CastEvidence,
            rank,
            mine,
            np.full(len(mine), _LEFT),
            pairs=told[0],
            owners=told[1],
            calls=_calls(rank, rows[mine]),
        )

    def tell(self, job: JobEvidence[CastEvidence]) -> Finding | None:
        worst = job.worst
        pairs = ", ".join(f"{source} to {target} {job.time(time)}" for (source, target), time in worst.pairs)
        owners = ", ".join(f"`{name}` {job.time(time)}" for name, time in worst.owners if name)
        main = worst.owners[0][0]
        return self.finding(
            job,
            f"Conversions between types take {job.time(worst.time_ns)} {job.per_step}, "
            f"{job.percent(worst.compute_share)} of "
            "compute",
            evidence=f"{counted(worst.calls, 'call')}: {pairs}." + (f" They lie within {owners}." if owners else ""),
            cases=("within operators" if main and not main.startswith("autograd::") else "alone",),
            assumption="70 % of them go, or run within the work before or behind them.",
            snippet="model = model.to(torch.bfloat16)  # Instead of converting float32 weights in each step"
            if main
            else "x = x.to(torch.bfloat16)  # Once, where it is made",
        )


def _pairs(rank: Rank, rows: NDArray[np.int64]) -> list[tuple[str, str] | None]:
    """The types that each call of copy_ converts from and to; None where it converts nothing, or they are unknown."""
    codes, strings = kernel_launches.codes_of(rank, rows, "types"), rank.loaded.strings
    used, number = np.unique(codes, return_inverse=True)
    known = [_pair(strings[code]) if code != NONE else None for code in used.tolist()]
    return [known[place] for place in number.tolist()]


def _pair(written: str) -> tuple[str, str] | None:
    try:
        types = json.loads(written)
    except ValueError:
        return None
    target, source = (_TYPES.get(each, "") for each in (*types, "", "")[:2]) if isinstance(types, list) else ("", "")
    return (source, target) if source and target and source != target else None


def _calls(rank: Rank, rows: NDArray[np.int64]) -> float:
    return len(unique_sorted(rows)) / rank.num_steps
