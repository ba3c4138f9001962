"""Kernels whose last wave of blocks leaves most of the GPU idle (tail effect)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.work import SIZES
from htareport.rank.cached import cached_until_release
from htareport.rank.capability import Capability
from htareport.rank.compute_time import asked, compute_time, shortened, work
from htareport.rank.interval_sets import Sets
from htareport.rank.kernel_grids import LaunchConfig, launch_configs, unknown_processors
from htareport.rank.kernel_types import events_of
from htareport.rank.operator_groups import VECTOR, elements_at_once, is_unfused_attention, short
from htareport.rank.operator_work import NONE
from htareport.rank.rank import Rank
from htareport.report.findings import Finding
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.context import context_of
from htareport.rules.engine.evidence import JobEvidence
from htareport.rules.engine.kernel_evidence import KernelEvidence, listed

_TILE = re.compile(r"(?:_|tilesize|MT)(\d+)x(\d+)(?:x\d+)?(?=_)")  # Of a product's result, that a block computes.


class _Tails(NamedTuple):
    """Kernels with a nearly empty last wave, and what could be saved."""

    is_tail: NDArray[np.bool_]  # For each device event.
    claim: Sets
    requested_ns: float
    low_share: float  # Of the saving: the lower estimate.
    worst: LaunchConfig
    event_row: int  # A device event with that launch configuration.


@dataclass(frozen=True, kw_only=True)
class WaveTailEvidence(KernelEvidence):
    """Kernels with a nearly empty last wave, and the launch configuration that loses most."""

    low_share: float
    kernel: str
    blocks: int
    waves: float
    processors: int
    blocks_per_processor: int  # That fit at once.
    max_blocks: int  # For a wave less.
    smaller_sizes: list[tuple[int, int]]  # Sizes, each with the one that would make a wave less.


@dataclass(frozen=True)
class WaveTail(Rule[WaveTailEvidence]):
    """The last blocks of kernels run nearly alone: there are a few more than fill the GPU a whole number of times.

    ## When it speaks
    A GPU runs as many blocks at once as its multiprocessors hold, and the others in further waves. Kernels of at least
    `shortest` µs have between one and `waves` waves, the last of them filled to at most `filled`, and lose at least
    `least` of the step by that. How many blocks a multiprocessor holds follows from the recorded registers, shared
    memory and block size of the kernel and from the recorded limits of the device. AMD traces lack some of them, so
    nothing is known there. Kernels with another cause (C4, C6 or C15) do not count.

    ## What it could save
    The empty share of the last wave, if all waves take equally long, but no more than the time above the kernel's roof,
    where that is known. In the lower estimate blocks on one multiprocessor share its speed, so only multiprocessors
    without any block count. Only what shortens the step counts: time that no other work covers, as far as the CPU
    launches early enough. C1 leaves out what is claimed here.

    ## What to do
    Choose sizes that give {grid|kernels a grid that fills the GPU a whole number of times}. Or let `torch.compile` with
    `mode="max-autotune"` choose another tile.

    ## How to verify
    The grid has no more blocks than advised, and the kernel takes less time.
    """

    code, title, family, section = "C10", "A last wave that is nearly empty", Family.COMPUTE, "kernel_breakdown"
    requires = frozenset({Capability.GPU})
    confidence = "low"

    filled: float = 0.3
    waves: float = 4.0
    shortest: float = 50.0
    least: float = 0.01

    def lacking(self, rank: Rank) -> tuple[str, ...]:
        return super().lacking(rank) or unknown_processors(rank)

    def own_events(self, rank: Rank) -> NDArray[np.bool_] | None:
        tails = None if self.lacking(rank) else _tails(rank, self)
        return None if tails is None else tails.is_tail

    def look(self, rank: Rank) -> WaveTailEvidence | None:
        tails = _tails(rank, self)
        if tails is None:
            return None
        events, worst = events_of(rank), tails.worst
        fitting = worst.resident.blocks if worst.resident else 0
        max_blocks = int(worst.waves) * worst.processors * fitting
        name, time = rank.loaded.strings[events.codes[tails.event_row]], int(events.durations[tails.is_tail].sum())
        return WaveTailEvidence(
            claim=tails.claim,
            spans=rank.spans(tails.claim),
            kernels=events.kernels(tails.is_tail),
            time_ns=time / rank.num_steps,
            compute_share=time / compute_time(rank),
            requested_ns=tails.requested_ns,
            low_share=tails.low_share,
            kernel=short(name),
            blocks=worst.blocks,
            waves=worst.waves,
            processors=worst.processors,
            blocks_per_processor=fitting,
            max_blocks=max_blocks,
            smaller_sizes=_smaller_sizes(rank, tails.event_row, name, worst.blocks, max_blocks),
        )

    def tell(self, job: JobEvidence[WaveTailEvidence]) -> Finding | None:
        worst = job.worst
        sizes = " or ".join(f"{smaller:,} instead of {size:,}" for size, smaller in worst.smaller_sizes)
        example = f", for example with {sizes}" if sizes else ""
        return self.finding(
            job,
            f"The last blocks of kernels run nearly alone, which costs up to {job.max_saving} {job.per_step}",
            evidence=f"Such kernels take {job.percent(worst.compute_share)} of compute: {listed(job)} {job.per_step}. "
            f"`{worst.kernel}` has {worst.blocks:,} blocks, {worst.waves:.2f} times what {worst.processors} processors "
            f"hold with {worst.blocks_per_processor} each. With {worst.max_blocks:,} blocks it needs one wave less.",
            values={"grid": f"`{worst.kernel}` a grid of at most {worst.max_blocks:,} blocks{example}"},
            low_ns=round(job.max_saving_ns * worst.low_share),
            assumption="All waves take equally long, and as many blocks run at once as fit. The lower estimate counts "
            "only processors without any block.",
            snippet='model = torch.compile(model, mode="max-autotune")',
        )


@cached_until_release
def _tails(rank: Rank, rule: WaveTail) -> _Tails | None:
    """The kernels that the rule is about; None where they lose too little."""
    # Waves are blocks by those that fit at once; of the kernel's time the empty share of the last wave is lost.
    events = events_of(rank)
    rows = np.flatnonzero(events.wanted & (events.durations >= 1000 * rule.shortest))
    if not len(rows):
        return None
    configs, number = launch_configs(rank, rows)
    waves = np.array([config.waves for config in configs])[number]
    is_tail = (waves > 1) & (waves < rule.waves) & (waves % 1 > 0) & (waves % 1 <= rule.filled)
    empty_share = np.where(is_tail, 1 - waves / np.ceil(waves), 0.0)
    if empty_share @ events.durations[rows] < rule.least * rank.whole:
        return None
    is_tail &= ~_is_explained(rank, rows)
    rows, number, empty_share = rows[is_tail], number[is_tail], empty_share[is_tail]
    high_share = np.minimum(empty_share, _share_above_roof(rank)[rows])
    per_processor = np.array([config.blocks_per_processor for config in configs])[number]
    low_share = np.minimum(high_share, 1 - per_processor / np.ceil(per_processor))
    high, low = (share * events.durations[rows] for share in (high_share, low_share))
    if high.sum() < rule.least * rank.whole:
        return None
    saving, is_tail_event = np.zeros(len(events.durations)), np.zeros(len(events.durations), np.bool_)
    saving[rows], is_tail_event[rows] = high, True
    claim = shortened(rank, saving)
    if rank.share(claim) < rule.least:
        return None
    worst = int(np.bincount(number, high).argmax())
    event_row = int(rows[(number == worst).argmax()])
    return _Tails(is_tail_event, claim, asked(rank, saving), float(low.sum() / high.sum()), configs[worst], event_row)


def _smaller_sizes(rank: Rank, event_row: int, name: str, blocks: int, max_blocks: int) -> list[tuple[int, int]]:
    """Sizes of a product of which each alone, cut down, makes the grid small enough: from and to.

    Empty unless the tile in the kernel's name explains the grid as it is.
    """
    operators, tile = work(rank), _TILE.search(name)
    owner = int(operators.owner[event_row])
    operation = (
        operators.signatures[int(operators.calls["signature"].to_numpy()[owner])].work if owner != NONE else None
    )
    if operation is None or operation.product is None or tile is None:
        return []
    batch, m, n, _ = operation.product
    for tall, wide in ((int(tile[1]), int(tile[2])), (int(tile[2]), int(tile[1]))):
        rows, columns = -(-m // max(tall, 1)), -(-n // max(wide, 1))
        if batch * rows * columns == blocks:
            sizes = (m, max_blocks // (batch * columns) * tall), (n, max_blocks // (batch * rows) * wide)
            return [(size, smaller) for size, smaller in sizes if smaller > 0]
    return []


def _is_explained(rank: Rank, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of these device events are slow for a reason that other rules tell."""
    is_attention = np.append(is_unfused_attention(rank), False)[work(rank).owner[rows]]  # The last is for no call.
    return np.asarray(
        context_of(rank).explained(rank, "C15")[rows] | _is_misaligned(rank, rows) | is_attention, np.bool_
    )


def _is_misaligned(rank: Rank, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of them load less than 16 bytes at once, as far as name and operator tell."""
    events = events_of(rank)
    codes, number = np.unique(events.codes[rows], return_inverse=True)
    elements = np.array([elements_at_once(rank.loaded.strings[code]) for code in codes.tolist()])[number]
    operations = [signature.work for signature in work(rank).signatures]
    sizes = np.array([SIZES[operation.dtype] if operation else 0 for operation in operations] or [0])
    loaded_bytes = elements * events.of_calls(sizes, 0)[rows]
    return np.asarray((loaded_bytes > 0) & (loaded_bytes < VECTOR), np.bool_)


def _share_above_roof(rank: Rank) -> NDArray[np.float64]:
    """Share of its time that each device event takes above the roof of its call, 1 where that is not known."""
    operators = work(rank)
    roof_share = operators.roof / np.maximum(operators.calls["time"].to_numpy(), 1)
    above_roof = np.append(np.clip(1 - np.nan_to_num(roof_share, nan=0.0), 0, 1), 1.0)  # The last is for no call.
    return np.asarray(above_roof[operators.owner], np.float64)
