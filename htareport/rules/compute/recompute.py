"""Activations that the backward pass computes again, although memory would hold them."""

from __future__ import annotations

import re
from collections import Counter
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
from htareport.report.findings import Finding
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import JobEvidence, WorkEvidence
from htareport.rules.engine.wording import held_up, sized

_BACKWARD = re.compile(r"^autograd::engine::evaluate_function")
_MATCHED = 0.8  # Of their time: what is like something of the forward pass, and no gradient of a gradient.
_SELECTIVE = (
    "for number, block in enumerate(model.blocks):\n"
    "    x = checkpoint(block, x, use_reentrant=False) if number % 2 else block(x)  # Every other one."
)


class _Recomputed(NamedTuple):
    """Places of device events whose work is done again, and the rows of the operators that do it."""

    events: NDArray[np.int64]
    rows: NDArray[np.int64]


@dataclass(frozen=True)
class MemoryLeft:
    """How much of what is computed again fits into the memory that is left; None where memory was not recorded."""

    fits_share: float
    left_bytes: float | None = None
    needed_bytes: int = 0
    filled_share: float = 0.0


@dataclass(frozen=True, kw_only=True)
class RecomputeEvidence(WorkEvidence):
    """Operators of the forward pass that run again within the backward pass."""

    memory: MemoryLeft
    compute_share: float
    names: list[tuple[str, float]]  # With ns per step.


@dataclass(frozen=True)
class Recomputed(Rule[RecomputeEvidence]):
    """The backward pass computes activations again, although there is memory left to keep them.

    ## When it speaks
    Operators of the forward pass (they record what their gradients need, which those of the backward pass don't) run
    within the backward pass, with names and shapes as in the forward pass: activation checkpointing. Their kernels take
    at least `least` of the compute time, and the device's memory is filled to less than `filled` at its peak. Where
    memory was not recorded, that is not known, and the finding says so. What compiled code computes again is not seen.

    ## What it could save
    Their time, but only for what fits: the memory that is left up to `filled`, as a share of what is allocated while
    they run. Where memory was not recorded all of it is the ceiling, and the lower estimate is nothing. Of that, what
    no other work covers and the host's launches allow.

    ## What to do
    Checkpoint fewer blocks, or only operators that are cheap to compute again: as many as memory needs.

    ## How to verify
    Less time in the backward pass; *Peak allocated* in *Memory over time* is higher.
    """

    code, title, family, section = "C21", "Activations are computed again", Family.COMPUTE, "operator_kernels"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})

    least: float = 0.1
    filled: float = 0.8

    def look(self, rank: Rank) -> RecomputeEvidence | None:
        found = _recomputed(rank)
        durations = rank.device_events["dur"].to_numpy()
        time = int(durations[found.events].sum())
        if not time or time < self.least * compute_time(rank):
            return None
        memory = self._memory(rank, found)
        if memory is None:
            return None
        saving = np.zeros(len(durations))
        saving[found.events] = durations[found.events] * memory.fits_share
        claim = shortened(rank, saving)
        if rank.share(claim) < WORTH:
            return None
        names = Counter[str]()
        texts = kernel_launches.texts(rank, kernel_launches.names_of(rank, found.rows).tolist())
        for name, each in zip(texts, durations[found.events].tolist(), strict=True):
            names[name] += each
        most = sorted(names.items(), key=lambda item: (-item[1], item[0]))[:3]
        return RecomputeEvidence(
            claim=claim,
            spans=rank.spans(claim),
            memory=memory,
            compute_share=time / compute_time(rank),
            names=[(name, each / rank.num_steps) for name, each in most],
            requested_ns=asked(rank, saving),
        )

    def _memory(self, rank: Rank, found: _Recomputed) -> MemoryLeft | None:
        """What of it fits into the memory that is left; None where there is none."""
        each = fullest(rank) if Capability.MEMORY in rank.capabilities else None
        if each is None:
            return MemoryLeft(fits_share=1.0)
        left = (self.filled - fill(each)) * each.capacity
        if left <= 0:
            return None
        host, rows = rank.host, np.unique(found.rows)
        start, end, thread = (host.at(name, rows) for name in ("ts", "end", "thread"))
        order = np.lexsort((start, thread))
        rows_thread, start, end = thread[order], start[order], end[order]
        needed = 0
        for number in np.unique(rows_thread).tolist():
            mine, there = rows_thread == number, (each.thread == number) & (each.size > 0)
            place = np.searchsorted(start[mine], each.ts[there], side="right") - 1
            inside = (place >= 0) & (each.ts[there] < end[mine][np.maximum(place, 0)])
            needed += int(each.size[there][inside].sum())
        needed //= rank.num_steps
        return MemoryLeft(min(1.0, left / needed) if needed else 1.0, left, needed, fill(each))

    def tell(self, job: JobEvidence[RecomputeEvidence]) -> Finding | None:
        worst = job.worst
        memory_left = worst.memory
        listed = ", ".join(f"`{name}` {job.time(time)}" for name, time in worst.names)
        if memory_left.left_bytes is None:
            memory = "Whether memory would hold the activations is not known: it was not recorded."
            assumption = "All of them fit into memory; the lower estimate is that none does."
        else:
            free, needed = sized(memory_left.left_bytes), sized(memory_left.needed_bytes)
            memory = f"Memory is filled to {job.percent(memory_left.filled_share)} at its peak: {free} are left up to "
            memory += f"{job.percent(self.filled)}, and what is computed again takes {needed} at most."
            assumption = (
                f"Activations are kept for {job.percent(memory_left.fits_share)} of it, as far as memory allows."
            )
        return self.finding(
            job,
            f"Computing activations again takes up to {job.max_saving} {job.per_step}",
            evidence=f"{job.percent(worst.compute_share)} of compute is operators of the forward pass within the "
            f"backward "
            f"pass (activation checkpointing): {listed} {job.per_step}. {memory}",
            assumption=assumption + held_up(job),
            confidence="low" if memory_left.left_bytes is None else "medium",
            snippet=_SELECTIVE,
            low_share=0.0 if memory_left.left_bytes is None else self.low_share,
        )


def _recomputed(rank: Rank) -> _Recomputed:
    """Compute kernels whose launch lies within an operator that records for gradients, within the backward pass."""
    trace = rank
    nothing = _Recomputed(np.zeros(0, np.int64), np.zeros(0, np.int64))
    is_backward = coded(rank, _BACKWARD)
    if not is_backward.any():
        return nothing
    mine = np.flatnonzero(in_steps(rank) & (trace.device_events["kind"] == "compute").to_numpy())
    innermost = operators(rank)[mine]
    mine, innermost = mine[innermost != NONE], innermost[innermost != NONE]
    launching, number = np.unique(innermost, return_inverse=True)
    outer, within = _outermost(rank, launching, is_backward)
    forward, again = outer[~within & (outer != NONE)], within & (outer != NONE)
    if not again.any() or not len(forward):
        return nothing
    known = {*zip(*_like(rank, forward), strict=True)}
    is_like = np.array([pair in known for pair in zip(*_like(rank, outer[again]), strict=True)], np.bool_)
    alike = np.zeros(len(launching), np.bool_)
    alike[np.flatnonzero(again)[is_like]] = True
    durations = trace.device_events["dur"].to_numpy()[mine]
    every, matched = (int(durations[chosen[number]].sum()) for chosen in (again, alike))
    if matched < _MATCHED * every:
        return nothing
    events = mine[alike[number]]
    return _Recomputed(events, outer[number[alike[number]]])


def _like(rank: Rank, rows: NDArray[np.int64]) -> tuple[list[int], list[int]]:
    """Codes of name and shapes of operators."""
    codes = kernel_launches.names_of(rank, rows), kernel_launches.codes_of(rank, rows, "shapes")
    return codes[0].tolist(), codes[1].tolist()


def _outermost(
    rank: Rank, rows: NDArray[np.int64], is_backward: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Of rows of the host table the outermost operator around each that records for gradients, -1 for none.

    Only up to an operator of the backward pass, and whether there is one.
    """
    host = rank.host
    parent, codes = host["parent"], host["name"]
    outer, within, at = np.full(len(rows), NONE, np.int64), np.zeros(len(rows), np.bool_), rows.astype(np.int64)
    while (at != NONE).any():
        there = np.flatnonzero(at != NONE)
        here = at[there]
        backward = is_backward[codes[here]]
        within[there[backward]] = True
        sequence, thread = (kernel_launches.codes_of(rank, here, name) for name in ("sequence", "forward_thread"))
        records = (sequence >= 0) & (thread <= 0) & ~backward
        outer[there[records]] = here[records]
        at[there] = np.where(backward, NONE, parent[here])
    return outer, within
