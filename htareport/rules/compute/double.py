"""Arithmetic in float64."""

from __future__ import annotations

import json
import re
from collections import defaultdict
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
from htareport.rules.engine.kernel_evidence import KernelEvidence, kernel_fields, listed

_DOUBLE = re.compile(r"(?<![a-z])dgemm|d884gemm|f64f64|_f64_")
_MAX_NAMES = 3  # In a sentence.


@dataclass(frozen=True, kw_only=True)
class Float64Evidence(KernelEvidence):
    """Operators and kernels that compute in float64."""

    operators: list[tuple[str, float]]  # Name, with ns per step; those of most time.


@dataclass(frozen=True)
class Float64(Rule[Float64Evidence]):
    """Operators compute in float64.

    ## When it speaks
    Two kinds of work take at least `least` of the compute time: operators with a float64 tensor of more than one
    element among their inputs, and kernels that multiply matrices in float64.

    ## What it could save
    Half of their time, since float32 halves the bytes. For matrix products 90 %, where the GPU's peak in float64 is
    less than an eighth of its peak in float32. Only what shortens the step counts: time that no other work covers, as
    far as the CPU launches early enough.

    ## What to do
    Find the tensor that is float64, and create it as float32: `torch.from_numpy(array).float()` or
    `array.astype(np.float32)`. NumPy arrays are float64 by default.

    ## How to verify
    No operator has an input of type `double` in the trace.
    """

    code, title, family, section = "C16", "Work in float64", Family.COMPUTE, "operator_kernels"
    requires = frozenset({Capability.GPU})
    confidence = "high"

    least: float = 0.005

    def look(self, rank: Rank) -> Float64Evidence | None:
        events, rows = events_of(rank), operators(rank)
        is_product = events.named(_DOUBLE)
        is_float64 = events.wanted & (is_product | _reads_float64(rank, rows))
        if not is_float64.any() or events.durations[is_float64].sum() < self.least * compute_time(rank):
            return None
        is_slow = events.on(lambda device: device.peaks.get(Precision.FP64, 0.0) < device.peaks[Precision.FP32] / 8)
        fields = kernel_fields(rank, is_float64, np.where(is_product & is_slow, 0.1, 0.5))
        if fields is None:
            return None
        times = defaultdict[str, int](int)
        names = kernel_launches.names_or_none(rank, rows[is_float64])
        for name, duration in zip(names, events.durations[is_float64].tolist(), strict=True):
            times[name or ""] += duration
        longest = sorted(times, key=lambda name: -times[name])[:_MAX_NAMES]
        return Float64Evidence(**fields, operators=[(name, times[name] / rank.num_steps) for name in longest if name])

    def tell(self, job: JobEvidence[Float64Evidence]) -> Finding | None:
        worst = job.worst
        operator_times = ", ".join(f"`{name}` {job.time(time)}" for name, time in worst.operators)
        return self.finding(
            job,
            f"Work in float64 takes {job.time(worst.time_ns)} {job.per_step}, {job.percent(worst.compute_share)} of "
            "compute",
            evidence=f"By operator: {operator_times}." if operator_times else f"Kernels: {listed(job)}.",
            assumption="float32 halves the bytes. Matrix products gain more on GPUs that are slow in float64.",
            snippet="x = torch.from_numpy(array).to(torch.float32)",
        )


def _reads_float64(rank: Rank, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which device events are of operators (rows of the host table) that read a float64 tensor of several elements."""
    has_operator, strings = rows != NONE, rank.loaded.strings
    columns = [kernel_launches.codes_of(rank, rows[has_operator], name) for name in ("types", "shapes")]
    first, number = kernel_launches.distinct(*columns)
    has_float64 = [
        NONE not in {types, shapes} and '"double"' in strings[types] and _has_float64(strings[types], strings[shapes])
        for types, shapes in zip(*(column[first].tolist() for column in columns), strict=True)
    ]
    reads_float64 = np.zeros(len(rows), np.bool_)
    reads_float64[has_operator] = np.array(has_float64, np.bool_)[number]
    return reads_float64


def _has_float64(types: str, shapes: str) -> bool:
    """Whether arguments, as recorded, include a float64 tensor of more than one element."""
    try:
        pairs = list(zip(json.loads(types), json.loads(shapes), strict=False))
    except (ValueError, TypeError):
        return False
    tensors = [shape for dtype, shape in pairs if dtype == "double" and isinstance(shape, list)]
    return any(all(type(size) is int for size in shape) and prod(shape) > 1 for shape in tensors if shape)
