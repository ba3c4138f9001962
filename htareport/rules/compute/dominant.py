"""One operator on inputs of one shape that takes a large part of all compute."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.distinct import unique_sorted
from htareport.rank import kernel_launches
from htareport.rank.attention_chains import chains
from htareport.rank.capability import Capability
from htareport.rank.compute_time import compute_time, in_steps, operators
from htareport.rank.dtypes import TORCH_DTYPES
from htareport.rank.operator_work import NONE
from htareport.rank.rank import Rank
from htareport.report.findings import Finding, Severity
from htareport.report.units import counted
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.context import context_of
from htareport.rules.engine.evidence import Evidence, JobEvidence

_MAX_TENSORS = 6  # Of a script that replays the call.


@dataclass(frozen=True, kw_only=True)
class DominatesEvidence(Evidence):
    """The operator that takes most time on inputs of one shape, per step."""

    name: str
    shapes: str
    time_ns: float
    compute_share: float
    calls: float
    snippet: str


@dataclass(frozen=True)
class Dominates(Rule[DominatesEvidence]):
    """One operator on inputs of one shape takes a large part of all compute.

    ## When it speaks
    Calls of one operator with inputs of the same shapes take at least `share` of the compute time and at least `least`
    of the step. Attention that is not fused does not count: C6 is about that.

    ## What it could save
    Nothing is claimed. This finding shows where to begin; other findings say what to change.

    ## What to do
    Begin with this operator. Time it alone with these shapes and types. Then try other sizes, memory layouts and
    libraries.

    ## How to verify
    The share of this operator in *Kernels by operator* goes down.
    """

    code, title, family, section = "C23", "One operator dominates", Family.COMPUTE, "operator_kernels"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES, Capability.SHAPES})
    confidence = "high"

    share: float = 0.3
    least: float = 0.1

    def look(self, rank: Rank) -> DominatesEvidence | None:
        events, operator_rows = rank.device_events, operators(rank)
        is_candidate = in_steps(rank) & (events["kind"] == "compute").to_numpy() & (operator_rows != NONE)
        if not is_candidate.any():
            return None
        event_rows, rows = np.flatnonzero(is_candidate), operator_rows[is_candidate]
        columns = [kernel_launches.codes_of(rank, rows, name) for name in ("shapes", "types")]
        columns = [kernel_launches.names_of(rank, rows), *columns]
        first, number = kernel_launches.distinct(*columns)
        times = np.bincount(number, events["dur"].to_numpy()[event_rows])
        longest = int(times.argmax())
        time, compute_ns = float(times[longest]), compute_time(rank)
        name_code, shapes_code, types_code = (int(column[first[longest]]) for column in columns)
        if time < self.share * compute_ns or time < self.least * rank.whole or shapes_code == NONE:
            return None
        is_longest = number == longest
        if _is_attention(rank, event_rows[is_longest]):
            return None
        strings = rank.loaded.strings
        name, shapes, types = (
            strings[name_code],
            strings[shapes_code],
            "[]" if types_code == NONE else strings[types_code],
        )
        return DominatesEvidence(
            name=name,
            shapes=kernel_launches.shape_text(shapes),
            time_ns=time / rank.num_steps,
            compute_share=min(1.0, time / compute_ns),
            calls=len(unique_sorted(rows[is_longest])) / rank.num_steps,
            snippet=_replay(name, shapes, types),
        )

    def tell(self, job: JobEvidence[DominatesEvidence]) -> Finding | None:
        worst = job.worst
        return self.finding(
            job,
            f"`{worst.name}` on {worst.shapes} takes {job.percent(worst.compute_share)} of all compute",
            severity=Severity.LOW,
            evidence=f"{counted(worst.calls, 'call takes', 'calls take')} {job.time(worst.time_ns)} {job.per_step}.",
            snippet=worst.snippet,
        )


def _is_attention(rank: Rank, events: NDArray[np.int64]) -> bool:
    """Whether most of the time of these device events is in attention that C6 has found."""
    if "C6" not in context_of(rank).found:
        return False
    durations = rank.device_events["dur"].to_numpy()
    is_of_chain = np.isin(events, np.concatenate([chain.events for chain in chains(rank)]))
    return bool(2 * durations[events[is_of_chain]].sum() > durations[events].sum())


def _replay(name: str, shapes: str, types: str) -> str:
    """A script that times one call; empty where the trace does not say enough about its arguments."""
    tensors = [
        f'    torch.{"randn" if "float" in dtype else "zeros"}({", ".join(map(str, shape))}, device="cuda")'
        f".to(torch.{dtype}),"
        for shape, dtype in zip(_list(shapes), map(TORCH_DTYPES.get, _list(types)), strict=False)
        if dtype and isinstance(shape, list) and shape and all(type(size) is int for size in shape)
    ]
    if not name.startswith("aten::") or not 0 < len(tensors) <= _MAX_TENSORS:
        return ""
    other_arguments = (
        [] if name.endswith("mm") else ["args += []  # Add the arguments that are no tensors, as in the trace."]
    )
    return "\n".join(
        [
            "import torch",
            "from torch.utils.benchmark import Timer",
            "args = [",
            *tensors,
            "]",
            *other_arguments,
            f'print(Timer("torch.ops.{name.replace("::", ".")}(*args)", globals=globals()).timeit(100))',
        ]
    )


def _list(recorded: str) -> list[Any]:
    try:
        values = json.loads(recorded)
    except ValueError:
        return []
    return values if isinstance(values, list) else []
