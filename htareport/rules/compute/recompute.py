"""Activation checkpointing: the backward pass computes activations again, although memory would hold them."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from htareport.rank import kernel_launches
from htareport.rank.capability import Capability
from htareport.rank.compute_time import WORTH, asked, compute_time, in_steps, operators, shortened
from htareport.rank.host_rows import coded
from htareport.rank.memory import fill, fullest
from htareport.rank.operator_work import NONE
from htareport.rank.rank import Rank
from htareport.rank.replay.edits import RankEdit
from htareport.report.findings import Finding
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import JobEvidence, WorkEvidence
from htareport.rules.engine.wording import sized

_BACKWARD = re.compile(r"^autograd::engine::evaluate_function")
_MIN_MATCHED = 0.8  # Of their time that equals work of the forward pass; gradients of gradients do not.
_MAX_NAMES = 3  # In a sentence.
_SELECTIVE = (
    "for number, block in enumerate(model.blocks):\n"
    "    x = checkpoint(block, x, use_reentrant=False) if number % 2 else block(x)  # Every other one."
)


class _Recomputation(NamedTuple):
    """Device events whose work is done again, and the operator of each (row of the host table)."""

    event_rows: NDArray[np.int64]
    host_rows: NDArray[np.int64]


@dataclass(frozen=True)
class FreeMemory:
    """How much of what is computed again fits into free memory; `free_bytes` is None without recorded memory."""

    fits_share: float
    free_bytes: float | None = None
    needed_bytes: int = 0
    filled_share: float = 0.0


@dataclass(frozen=True, kw_only=True)
class RecomputeEvidence(WorkEvidence):
    """Operators of the forward pass that run again within the backward pass."""

    memory: FreeMemory
    compute_share: float
    operators: list[tuple[str, float]]  # Names of those of most time, with ns per step.


@dataclass(frozen=True)
class Recomputed(Rule[RecomputeEvidence]):
    """The backward pass computes activations again, although memory is free to hold them.

    ## When it speaks
    Activations are checkpointed: the backward pass runs operators with names and shapes of the forward pass, which
    record for gradients as only the forward pass does. Their kernels take at least `least` of the compute time. At its
    peak the GPU's memory is filled to less than `filled`; where memory was not recorded, the finding says so. Compiled
    code that computes activations again is not recognised.

    ## What it could save
    The time of the activations that fit into the memory that is free up to `filled`. They need as much as is allocated
    while they are computed again. Where memory was not recorded, all of their time is the ceiling and the lower
    estimate is zero. Only what shortens the step counts: time that no other work covers, as far as the CPU launches
    early enough.

    ## What to do
    Checkpoint fewer blocks, only as many as memory needs. Or checkpoint only operators that are cheap to compute again.

    ## How to verify
    The backward pass takes less time. *Peak allocated* in *Memory over time* rises.
    """

    code, title, family, section = "C21", "Activations are computed again", Family.COMPUTE, "operator_kernels"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})

    least: float = 0.1
    filled: float = 0.8

    def look(self, rank: Rank) -> RecomputeEvidence | None:
        event_rows, host_rows = recomputation = _recomputation(rank)
        durations = rank.device_events["dur"].to_numpy()
        time = int(durations[event_rows].sum())
        if not time or time < self.least * compute_time(rank):
            return None
        memory = self._free_memory(rank, recomputation)
        if memory is None:
            return None
        saving = np.zeros(len(durations))
        saving[event_rows] = durations[event_rows] * memory.fits_share
        claim = shortened(rank, saving)
        if rank.share(claim) < WORTH:
            return None
        times = defaultdict[str, int](int)
        names = kernel_launches.texts(rank, kernel_launches.names_of(rank, host_rows).tolist())
        for name, duration in zip(names, durations[event_rows].tolist(), strict=True):
            times[name] += duration
        longest = sorted(times.items(), key=lambda item: (-item[1], item[0]))[:_MAX_NAMES]
        return RecomputeEvidence(
            claim=claim,
            spans=rank.spans(claim),
            memory=memory,
            compute_share=time / compute_time(rank),
            operators=[(name, duration / rank.num_steps) for name, duration in longest],
            requested_ns=asked(rank, saving),
            edit=RankEdit(shorter_ns=saving),
        )

    def _free_memory(self, rank: Rank, recomputation: _Recomputation) -> FreeMemory | None:
        """How much of it fits into free memory; None where none is free."""
        series = fullest(rank) if Capability.MEMORY in rank.capabilities else None
        if series is None:
            return FreeMemory(fits_share=1.0)
        filled = fill(series)
        free = (self.filled - filled) * series.capacity
        if free <= 0:
            return None
        host, rows = rank.host, np.unique(recomputation.host_rows)
        start, end, thread = (host.at(name, rows) for name in ("ts", "end", "thread"))
        order = np.lexsort((start, thread))
        start, end, thread = start[order], end[order], thread[order]
        needed = 0
        for number in np.unique(thread).tolist():
            is_of_thread, is_allocation = thread == number, (series.thread == number) & (series.size > 0)
            stamps = series.ts[is_allocation]
            index = np.searchsorted(start[is_of_thread], stamps, side="right") - 1
            is_inside = (index >= 0) & (stamps < end[is_of_thread][np.maximum(index, 0)])
            needed += int(series.size[is_allocation][is_inside].sum())
        needed //= rank.num_steps
        return FreeMemory(min(1.0, free / needed) if needed else 1.0, free, needed, filled)

    def tell(self, job: JobEvidence[RecomputeEvidence]) -> Finding | None:
        worst, memory = job.worst, job.worst.memory
        times = ", ".join(f"`{name}` {job.time(time)}" for name, time in worst.operators)
        if memory.free_bytes is None:
            recorded = "Memory was not recorded, so it is not known whether the activations would fit."
            assumption = "All activations fit into memory. In the lower estimate none do."
        else:
            recorded = (
                f"Memory is filled to {job.percent(memory.filled_share)} at its peak. Up to "
                f"{job.percent(self.filled)}, {sized(memory.free_bytes)} are free. Keeping all activations takes "
                f"{sized(memory.needed_bytes)} at most."
            )
            assumption = f"{job.percent(memory.fits_share)} of the activations fit into free memory and are kept."
        return self.finding(
            job,
            f"Computing activations again takes up to {job.max_saving} {job.per_step}",
            evidence="Operators of the forward pass that run again in the backward pass (activation checkpointing) "
            f"take {job.percent(worst.compute_share)} of compute: {times} {job.per_step}. {recorded}",
            assumption=assumption,
            confidence="low" if memory.free_bytes is None else "medium",
            snippet=_SELECTIVE,
            low_share=0.0 if memory.free_bytes is None else self.low_share,
        )


def _recomputation(rank: Rank) -> _Recomputation:
    """Compute kernels launched by an operator that records for gradients, within the backward pass."""
    none = _Recomputation(np.zeros(0, np.int64), np.zeros(0, np.int64))
    is_backward = coded(rank, _BACKWARD)
    if not is_backward.any():
        return none
    event_rows = np.flatnonzero(in_steps(rank) & (rank.device_events["kind"] == "compute").to_numpy())
    innermost = operators(rank)[event_rows]
    event_rows, innermost = event_rows[innermost != NONE], innermost[innermost != NONE]
    launching, number = np.unique(innermost, return_inverse=True)
    recording, is_in_backward = _recording_operators(rank, launching, is_backward)
    forward, is_repeated = recording[~is_in_backward & (recording != NONE)], is_in_backward & (recording != NONE)
    if not is_repeated.any() or not len(forward):
        return none
    forward_work = {*zip(*_name_and_shapes(rank, forward), strict=True)}
    repeated_work = zip(*_name_and_shapes(rank, recording[is_repeated]), strict=True)
    is_matched = is_repeated.copy()
    is_matched[is_repeated] = [name_and_shapes in forward_work for name_and_shapes in repeated_work]
    durations = rank.device_events["dur"].to_numpy()[event_rows]
    repeated_ns, matched_ns = (int(durations[mask[number]].sum()) for mask in (is_repeated, is_matched))
    if matched_ns < _MIN_MATCHED * repeated_ns:
        return none
    return _Recomputation(event_rows[is_matched[number]], recording[number[is_matched[number]]])


def _name_and_shapes(rank: Rank, rows: NDArray[np.int64]) -> tuple[list[int], list[int]]:
    """Codes of the names of operators, and of their shapes."""
    codes = kernel_launches.names_of(rank, rows), kernel_launches.codes_of(rank, rows, "shapes")
    return codes[0].tolist(), codes[1].tolist()


def _recording_operators(
    rank: Rank, rows: NDArray[np.int64], is_backward: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Outermost operator around each row of the host table that records for gradients (-1 for none).

    Only up to an operator of the backward pass; and whether there is one.
    """
    # All rows climb to their parents at once, until each is at the top or at an operator of the backward pass.
    parent, codes = rank.host["parent"], rank.host["name"]
    recording, is_in_backward = np.full(len(rows), NONE, np.int64), np.zeros(len(rows), np.bool_)
    ancestor = rows.astype(np.int64)
    while (ancestor != NONE).any():
        climbing = np.flatnonzero(ancestor != NONE)
        ancestors = ancestor[climbing]
        is_at_backward = is_backward[codes[ancestors]]
        is_in_backward[climbing[is_at_backward]] = True
        sequence, thread = (kernel_launches.codes_of(rank, ancestors, name) for name in ("sequence", "forward_thread"))
        records = (sequence >= 0) & (thread <= 0) & ~is_at_backward
        recording[climbing[records]] = ancestors[records]
        ancestor[climbing] = np.where(is_at_backward, NONE, parent[ancestors])
    return recording, is_in_backward
