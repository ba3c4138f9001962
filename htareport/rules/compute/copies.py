"""Operators that only move data about on the device."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from htareport.rank.capability import Capability
from htareport.rank.compute_time import WORTH, asked, in_steps, operators, shortened
from htareport.rank.host_rows import names_of
from htareport.rank.interval_sets import total
from htareport.rank.kernel_types import events_of
from htareport.rank.operator_kernels import times_of, within
from htareport.rank.operator_work import NONE
from htareport.rank.rank import Rank
from htareport.rank.replay.edits import RankEdit
from htareport.report.findings import Finding
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import JobEvidence, WorkEvidence

_MOVES = re.compile(
    r"^aten::(?:cat|_cat|stack|clone|contiguous|pad|constant_pad_nd|index_select|repeat|repeat_interleave)$"
)
_ATEN = re.compile(r"^aten::")
_ON_DEVICE = "Memcpy DtoD"
_LEFT = 0.5
_CASES = {  # Of the advice.
    "join": re.compile(r"cat$|stack$"),
    "contiguous": re.compile(r"clone$|contiguous$"),
    "pad": re.compile(r"pad$|pad_nd$"),
    "repeat": re.compile(r"repeat"),
    "select": re.compile(r"index_select$"),
}


@dataclass(frozen=True, kw_only=True)
class MovesEvidence(WorkEvidence):
    """What was seen on one rank: tensors are moved about."""

    operators: list[tuple[str, float]]
    time: float
    share: float


@dataclass(frozen=True)
class Moves(Rule[MovesEvidence]):
    """Operators copy, join, pad or select tensors, and compute nothing.

    ## When it speaks
    Kernels launched within `aten::cat`, `clone`, `contiguous`, `pad`, `index_select` or `repeat`, and copies from
    device to device that an operator makes, take at least `least` of the time in which the device computes or copies.

    ## What it could save
    Half of their time. Of that, what no other work covers and the host's launches allow.

    ## What to do
    - **join**: Write into a tensor that is there already (`out=`, slices of it), not `torch.cat`.
    - **contiguous**: Choose a layout with which views need no `.contiguous()`.
    - **pad**: Make tensors of the padded size from the start.
    - **repeat**: Broadcast with `expand`, and let attention share keys and values (`enable_gqa=True`).
    - **select**: Sort or select once, and reuse it.
    - **other**: Write results where they are needed.

    ## How to verify
    These operators take less time in *Kernels by operator*.
    """

    code, title, family, section = "C19", "Tensors are moved about", Family.COMPUTE, "operator_kernels"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES, Capability.HOST_OPS})

    least: float = 0.05

    def look(self, rank: Rank) -> MovesEvidence | None:
        events, rows, around = events_of(rank), within(rank, _MOVES), operators(rank)
        copies = in_steps(rank) & events.named(re.compile(f"^{_ON_DEVICE}"))
        copies[copies] = [_ATEN.match(name) is not None for name in _names(rank, around[copies])]
        rows = np.where((rows == NONE) & copies, around, rows)
        mine = (events.wanted | copies) & (rows != NONE)
        times = events.durations[mine]
        whole = total(rank.busy("compute", "memory"))
        if not len(times) or times.sum() < self.least * whole:
            return None
        saving = np.where(mine, events.durations * (1 - _LEFT), 0.0)
        claim = shortened(rank, saving)
        if rank.share(claim) < WORTH:
            return None
        return MovesEvidence(
            claim=claim,
            spans=rank.spans(claim),
            operators=times_of(rank, _names(rank, rows[mine]), times),
            time=int(times.sum()) / rank.num_steps,
            share=min(1.0, int(times.sum()) / whole),
            requested_ns=asked(rank, saving),
            edit=RankEdit(shorter_ns=saving),
        )

    def tell(self, job: JobEvidence[MovesEvidence]) -> Finding | None:
        worst = job.worst
        by = ", ".join(f"`{name}` {job.time(time)}" for name, time in worst.operators)
        cases = [
            case for case, pattern in _CASES.items() if any(pattern.search(name) for name, _ in worst.operators)
        ] or ["other"]
        return self.finding(
            job,
            f"Moving tensors about costs up to {job.max_saving} {job.per_step}",
            evidence=f"{job.time(worst.time)} {job.per_step}, {job.percent(worst.share)} of the time in which the "
            f"device computes or copies: {by}.",
            cases=cases,
            assumption="Half of it is not needed, or runs within the work before or behind it.",
            snippet="cache[:, length : length + new.shape[1]] = new  # Instead of torch.cat((cache, new), 1)"
            if any("cat" in name for name, _ in worst.operators)
            else "",
        )


def _names(rank: Rank, rows: NDArray[np.int64]) -> list[str]:
    """Names of rows of the host table, empty for none."""
    there = iter(names_of(rank, rows[rows != NONE].tolist()))
    return [next(there) if row != NONE else "" for row in rows.tolist()]
