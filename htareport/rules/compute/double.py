"""Arithmetic in float64."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from htareport.rank import kernel_launches
from htareport.rank.capability import Capability
from htareport.rank.compute_time import compute_time, operators
from htareport.rank.device_peaks import Precision
from htareport.rank.kernel_types import events_of
from htareport.rank.operator_work import NONE
from htareport.rank.rank import Rank
from htareport.report.findings import Finding
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import JobEvidence
from htareport.rules.engine.kernel_evidence import KernelEvidence, evidence_of, listed

_DOUBLE = re.compile(r"(?<![a-z])dgemm|d884gemm|f64f64|_f64_")
_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class Float64Evidence(KernelEvidence):
    """What Float64 sees on one rank."""

    operators: list[tuple[str, float]]  # Name, and ns per step.


@dataclass(frozen=True)
class Float64(Rule[Float64Evidence]):
    """Operators compute in float64.

    ## When it speaks
    Operators with a float64 tensor of more than one element among their inputs, and kernels that multiply matrices in
    float64, take at least `least` of the compute time.

    ## What it could save
    Half of their time, since half of the bytes go; 90 % of that of matrix products where the device's peak in float64
    is less than an eighth of that in float32. Of that, what no other work covers and the host's launches allow.

    ## What to do
    Find the tensor that is float64 (NumPy arrays are, unless told otherwise) and make it float32 where it comes from:
    `torch.from_numpy(array).float()`, `np.float32`.

    ## How to verify
    No operator has `double` among its inputs.
    """

    code, title, family, section = "C16", "Work in float64", Family.COMPUTE, "operator_kernels"
    requires = frozenset({Capability.GPU})
    confidence = "high"

    least: float = 0.005

    def look(self, rank: Rank) -> Float64Evidence | None:
        events, trace = events_of(rank), rank
        products = events.named(_DOUBLE)
        rows = operators(rank)
        mine = events.wanted & (products | _with_doubles(rank, rows))
        if not mine.any() or events.durations[mine].sum() < self.least * compute_time(rank):
            return None
        slow = events.on(lambda each: each.peaks.get(Precision.FP64, 0.0) < each.peaks[Precision.FP32] / 8)
        left = np.where(products & slow, 0.1, 0.5)
        names = kernel_launches.names_or_none(trace, rows[mine])
        sums = dict[str, int]()
        for name, time in zip(names, events.durations[mine].tolist(), strict=True):
            sums[name or ""] = sums.get(name or "", 0) + time
        most = sorted(sums, key=lambda name: -sums[name])[:_SHOWN]
        told = [(name, sums[name] / rank.num_steps) for name in most if name]
        return evidence_of(Float64Evidence, rank, mine, left, operators=told)

    def tell(self, job: JobEvidence[Float64Evidence]) -> Finding | None:
        worst = job.worst
        by = ", ".join(f"`{name}` {job.time(time)}" for name, time in worst.operators)
        return self.finding(
            job,
            f"Work in float64 takes {job.time(worst.time_ns)} {job.per_step}, {job.percent(worst.compute_share)} of "
            f"compute",
            evidence=f"By operator: {by}." if by else f"Kernels: {listed(job)}.",
            assumption="Half of the bytes go; matrix products gain more where the device has little float64.",
            snippet="x = torch.from_numpy(array).to(torch.float32)",
        )


def _with_doubles(rank: Rank, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which device events are of operators that read a float64 tensor of more than one element."""
    there, strings = rows != NONE, rank.loaded.strings
    doubles = np.zeros(len(rows), np.bool_)
    columns = [kernel_launches.codes_of(rank, rows[there], name) for name in ("types", "shapes")]
    first, number = kernel_launches.distinct(*columns)
    known = [
        NONE not in {types, shapes} and '"double"' in strings[types] and _reads(strings[types], strings[shapes])
        for types, shapes in zip(*(column[first].tolist() for column in columns), strict=True)
    ]
    doubles[there] = np.array(known, np.bool_)[number]
    return doubles


def _reads(types: str, shapes: str) -> bool:
    try:
        pairs = list(zip(json.loads(types), json.loads(shapes), strict=False))
    except (ValueError, TypeError):
        return False
    tensors = [shape for dtype, shape in pairs if dtype == "double" and isinstance(shape, list)]
    return any(all(type(size) is int for size in shape) and prod(shape) > 1 for shape in tensors if shape)
