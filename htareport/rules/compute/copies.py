"""Operators that only copy data from one place in GPU memory to another."""

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
_DEVICE_COPY = re.compile(r"^Memcpy DtoD")
_REMAINING_SHARE = 0.5  # Of their time.
_CASES = {  # Of the advice.
    "join": re.compile(r"cat$|stack$"),
    "contiguous": re.compile(r"clone$|contiguous$"),
    "pad": re.compile(r"pad$|pad_nd$"),
    "repeat": re.compile(r"repeat"),
    "select": re.compile(r"index_select$"),
}


@dataclass(frozen=True, kw_only=True)
class MovesEvidence(WorkEvidence):
    """Operators that copy, join, pad or select tensors and compute nothing."""

    operators: list[tuple[str, float]]  # Name, with ns per step; those of most time.
    time_ns: float  # Per step.
    busy_share: float  # Of the time in which the GPU computes or copies.


@dataclass(frozen=True)
class Moves(Rule[MovesEvidence]):
    """Operators copy, join, pad or select tensors, and compute nothing.

    ## When it speaks
    Operators launch kernels within `aten::cat`, `clone`, `contiguous`, `pad`, `index_select` or `repeat`, or copy from
    device to device. These take at least `least` of the time in which the GPU computes or copies.

    ## What it could save
    Half of their time. Only what shortens the step counts: time that no other work covers, as far as the CPU launches
    early enough.

    ## What to do
    - **join**: Allocate the joined tensor once and write into its slices (or use `out=`), instead of `torch.cat`.
    - **contiguous**: Choose a memory layout in which views need no `.contiguous()`.
    - **pad**: Create tensors with the padded size from the start.
    - **repeat**: Broadcast with `expand`, and let attention share keys and values (`enable_gqa=True`).
    - **select**: Sort or select once, and reuse the result.
    - **other**: Write results directly into the tensor that needs them.

    ## How to verify
    These operators take less time in *Kernels by operator*.
    """

    code, title, family, section = "C19", "Operators that only move tensors", Family.COMPUTE, "operator_kernels"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES, Capability.HOST_OPS})

    least: float = 0.05

    def look(self, rank: Rank) -> MovesEvidence | None:
        events, move_rows, operator_rows = events_of(rank), within(rank, _MOVES), operators(rank)
        is_copy = in_steps(rank) & events.named(_DEVICE_COPY)
        is_copy[is_copy] = [name.startswith("aten::") for name in _names(rank, operator_rows[is_copy])]
        rows = np.where((move_rows == NONE) & is_copy, operator_rows, move_rows)
        is_move = (events.wanted | is_copy) & (rows != NONE)
        times = events.durations[is_move]
        busy_ns = total(rank.busy("compute", "memory"))
        if not len(times) or times.sum() < self.least * busy_ns:
            return None
        saving = np.where(is_move, events.durations * (1 - _REMAINING_SHARE), 0.0)
        claim = shortened(rank, saving)
        if rank.share(claim) < WORTH:
            return None
        return MovesEvidence(
            claim=claim,
            spans=rank.spans(claim),
            operators=times_of(rank, _names(rank, rows[is_move]), times),
            time_ns=int(times.sum()) / rank.num_steps,
            busy_share=min(1.0, int(times.sum()) / busy_ns),
            requested_ns=asked(rank, saving),
            edit=RankEdit(shorter_ns=saving),
        )

    def tell(self, job: JobEvidence[MovesEvidence]) -> Finding | None:
        worst = job.worst
        operator_times = ", ".join(f"`{name}` {job.time(time)}" for name, time in worst.operators)
        cases = [
            case for case, pattern in _CASES.items() if any(pattern.search(name) for name, _ in worst.operators)
        ] or ["other"]
        return self.finding(
            job,
            f"Operators that only move tensors cost up to {job.max_saving} {job.per_step}",
            evidence=f"They take {job.time(worst.time_ns)} {job.per_step}, {job.percent(worst.busy_share)} of the time "
            f"in which the GPU computes or copies: {operator_times}.",
            cases=cases,
            assumption="Half of it is avoided, or fused with the work before or after it.",
            snippet="cache[:, length : length + new.shape[1]] = new  # Instead of torch.cat((cache, new), 1)"
            if any("cat" in name for name, _ in worst.operators)
            else "",
        )


def _names(rank: Rank, rows: NDArray[np.int64]) -> list[str]:
    """Names of rows of the host table, empty for none."""
    names = iter(names_of(rank, rows[rows != NONE].tolist()))
    return [next(names) if row != NONE else "" for row in rows.tolist()]
