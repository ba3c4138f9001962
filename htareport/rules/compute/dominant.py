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
from htareport.rank.operator_work import NONE
from htareport.rank.rank import Rank
from htareport.report.findings import Finding, Severity
from htareport.report.units import counted
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.context import context_of
from htareport.rules.engine.evidence import Evidence, JobEvidence

_TYPES = {
    "double": "float64", "float": "float32", "c10::Half": "float16", "c10::BFloat16": "bfloat16", "bool": "bool",
    "long int": "int64", "int": "int32", "unsigned char": "uint8", "signed char": "int8",
}  # fmt: skip
_MOST_TENSORS = 6


@dataclass(frozen=True, kw_only=True)
class DominatesEvidence(Evidence):
    """What was seen on one rank: one operator dominates."""

    name: str
    shapes: str
    time: float
    share: float
    calls: float
    snippet: str


@dataclass(frozen=True)
class Dominates(Rule[DominatesEvidence]):
    """One operator on inputs of one shape takes a large part of all compute.

    ## When it speaks
    Calls of an operator with inputs of the same shapes take at least `share` of the compute time and `least` of the
    step. It stays silent where they are part of attention that is not fused: C6 says what to do with all of that.

    ## What it could save
    Nothing is claimed: what can be done about it, other findings say. It is the place to begin.

    ## What to do
    Begin here: replay it alone with these shapes and types; try other sizes, layouts and libraries.

    ## How to verify
    Its share goes down in *Kernels by operator*.
    """

    code, title, family, section = "C23", "One operator dominates", Family.COMPUTE, "operator_kernels"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES, Capability.SHAPES})
    confidence = "high"

    share: float = 0.3
    least: float = 0.1

    def look(self, rank: Rank) -> DominatesEvidence | None:
        trace, events = rank, rank.device_events
        rows = operators(rank)
        mine = np.flatnonzero(in_steps(rank) & (events["kind"] == "compute").to_numpy() & (rows != NONE))
        if not len(mine):
            return None
        columns = [kernel_launches.codes_of(trace, rows[mine], name) for name in ("shapes", "types")]
        columns = [kernel_launches.names_of(trace, rows[mine]), *columns]
        first, number = kernel_launches.distinct(*columns)
        times = np.bincount(number, events["dur"].to_numpy()[mine])
        most = int(times.argmax())
        time, whole = float(times[most]), compute_time(rank)
        if time < self.share * whole or time < self.least * rank.whole or columns[1][first[most]] == NONE:
            return None
        if _is_attention(rank, mine[number == most]):
            return None
        codes = [int(column[first[most]]) for column in columns]
        name, shapes, types = (trace.loaded.strings[code] if code != NONE else "[]" for code in codes)
        calls = len(unique_sorted(rows[mine][number == most]))
        return DominatesEvidence(
            name=name,
            shapes=kernel_launches.shape_text(shapes),
            time=time / rank.num_steps,
            share=min(1.0, time / whole),
            calls=calls / rank.num_steps,
            snippet=_replay(name, shapes, types),
        )

    def tell(self, job: JobEvidence[DominatesEvidence]) -> Finding | None:
        worst = job.worst
        return self.finding(
            job,
            f"`{worst.name}` on {worst.shapes} is {job.percent(worst.share)} of all compute",
            severity=Severity.LOW,
            evidence=f"{counted(worst.calls, 'call takes', 'calls take')} {job.time(worst.time)} {job.per_step}.",
            snippet=worst.snippet,
        )


def _is_attention(rank: Rank, events: NDArray[np.int64]) -> bool:
    """Whether most of some device events' time is attention of which C6 speaks: then it goes, or changes, with it."""
    if "C6" not in context_of(rank).found:
        return False
    durations = rank.device_events["dur"].to_numpy()
    within = np.isin(events, np.concatenate([chain.events for chain in chains(rank)]))
    return bool(2 * durations[events[within]].sum() > durations[events].sum())


def _replay(name: str, shapes: str, types: str) -> str:
    """A script that times one call; empty where the trace does not tell enough of its arguments."""
    tensors = [
        f'    torch.{"randn" if "float" in dtype else "zeros"}({", ".join(map(str, shape))}, device="cuda")'
        f".to(torch.{dtype}),"
        for shape, dtype in zip(_list(shapes), map(_TYPES.get, _list(types)), strict=False)
        if dtype and isinstance(shape, list) and shape and all(type(size) is int for size in shape)
    ]
    if not name.startswith("aten::") or not 0 < len(tensors) <= _MOST_TENSORS:
        return ""
    more = [] if name.endswith("mm") else ["args += []  # Its arguments that are no tensors, as in the trace's call."]
    return "\n".join(
        [
            "import torch",
            "from torch.utils.benchmark import Timer",
            "args = [",
            *tensors,
            "]",
            *more,
            f'print(Timer("torch.ops.{name.replace("::", ".")}(*args)", globals=globals()).timeit(100))',
        ]
    )


def _list(written: str) -> list[Any]:
    try:
        found = json.loads(written)
    except ValueError:
        return []
    return found if isinstance(found, list) else []
