"""Kernels whose last blocks run while most of the device has nothing left to do."""

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
from htareport.rules.engine.wording import held_up

_TILE = re.compile(r"(?:_|tilesize|MT)(\d+)x(\d+)(?:x\d+)?(?=_)")  # Of a product's result, that a block computes.


class _Tails(NamedTuple):
    """Which device events have a tail, what could be saved and of that at least; how the worst is launched, and which.

    `event` is the place of one of these.
    """

    mine: NDArray[np.bool_]
    claim: Sets
    asked: float
    low: float
    worst: LaunchConfig
    event: int


@dataclass(frozen=True, kw_only=True)
class WaveTailEvidence(KernelEvidence):
    """What was seen on one rank: a last wave that is nearly empty."""

    low_share: float
    name: str
    sizes: list[tuple[int, int]]
    waves: float
    blocks: int
    better: int
    held: int
    processors: int


@dataclass(frozen=True)
class WaveTail(Rule[WaveTailEvidence]):
    """The last blocks of kernels run alone: a few more than what fills the device a whole number of times.

    ## When it speaks
    A device runs as many blocks at once as its multiprocessors hold, and the rest in further waves. Kernels of at least
    `shortest` µs whose blocks make between one and `waves` waves, the last of them filled to at most `filled`, lose at
    least `least` of the step by that. How many blocks a multiprocessor holds follows from the kernel's registers,
    shared memory and block size and from the device's limits, all as recorded; where any is missing (AMD) nothing is
    known. Kernels that C4, C6 or C15 tell another cause of don't count.

    ## What it could save
    The part of the last wave that is empty, if each wave takes equally long, and no more than what the kernel takes
    above its roof, where that is known. For the lower estimate blocks on one multiprocessor share its speed, so that
    only whole ones without work count. Of that, what no other work covers and the host's launches allow. What is
    claimed here, C1 leaves out.

    ## What to do
    Choose sizes just below the boundary ({where|a grid that fills the device a whole number of times}), or let
    `torch.compile` with `mode="max-autotune"` look for another tile.

    ## How to verify
    The kernel's grid is below the boundary, and it takes a wave less.
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
        found = None if self.lacking(rank) else _tails(rank, self)
        return None if found is None else found.mine

    def look(self, rank: Rank) -> WaveTailEvidence | None:
        found = _tails(rank, self)
        if found is None:
            return None
        events, worst = events_of(rank), found.worst
        held = worst.resident.blocks if worst.resident else 0
        better, name = int(worst.waves) * worst.processors * held, rank.loaded.strings[events.codes[found.event]]
        time = int(events.durations[found.mine].sum())
        return WaveTailEvidence(
            claim=found.claim,
            spans=rank.spans(found.claim),
            kernels=events.kernels(found.mine),
            time_ns=time / rank.num_steps,
            compute_share=time / compute_time(rank),
            low_share=found.low,
            requested_ns=found.asked,
            name=short(name),
            sizes=_sizes(rank, found.event, name, worst.blocks, better),
            waves=worst.waves,
            blocks=worst.blocks,
            better=better,
            held=held,
            processors=worst.processors,
        )

    def tell(self, job: JobEvidence[WaveTailEvidence]) -> Finding | None:
        worst = job.worst
        sizes = " or ".join(f"{fits:,} instead of {size:,}" for size, fits in worst.sizes)
        where = f"a grid of at most {worst.better:,} blocks there" + (f", as with {sizes}" if sizes else "")
        return self.finding(
            job,
            f"The last blocks of kernels run nearly alone, for up to {job.max_saving} {job.per_step}",
            evidence=f"{job.percent(worst.compute_share)} of compute is such kernels: {listed(job)} {job.per_step}. "
            f"`{worst.name}` has {worst.blocks:,} blocks, {worst.waves:.2f} times what {worst.processors} processors "
            f"hold "
            f"with {worst.held} each: {worst.better:,} would be a wave less.",
            values={"where": where},
            low_ns=round(job.max_saving_ns * worst.low_share),
            assumption="Waves take equally long, and as many blocks run at once as fit; for the lower estimate only "
            "processors without any block count." + held_up(job),
            snippet='model = torch.compile(model, mode="max-autotune")',
        )


@cached_until_release
def _tails(rank: Rank, rule: WaveTail) -> _Tails | None:
    """The kernels that the rule is about; None where they lose too little."""
    events = events_of(rank)
    mine = np.flatnonzero(events.wanted & (events.durations >= 1000 * rule.shortest))
    if not len(mine):
        return None
    ways, number = launch_configs(rank, mine)
    waves, each = (
        np.array(values)[number] for values in zip(*((w.waves, w.blocks_per_processor) for w in ways), strict=True)
    )
    rest = waves % 1
    chosen = (waves > 1) & (waves < rule.waves) & (rest > 0) & (rest <= rule.filled)
    left = np.where(chosen, 1 - waves / np.ceil(waves), 0.0)
    if left @ events.durations[mine] < rule.least * rank.whole:
        return None
    chosen &= ~_explained(rank, mine)
    left, number, each, mine = left[chosen], number[chosen], each[chosen], mine[chosen]
    left = np.minimum(left, _above_roof(rank)[mine])
    high, low = (shares * events.durations[mine] for shares in (left, np.minimum(left, 1 - each / np.ceil(each))))
    if high.sum() < rule.least * rank.whole:
        return None
    saving, is_mine = np.zeros(len(events.durations)), np.zeros(len(events.durations), np.bool_)
    saving[mine], is_mine[mine] = high, True
    claim = shortened(rank, saving)
    if rank.share(claim) < rule.least:
        return None
    worst = int(np.bincount(number, high).argmax())
    event = int(mine[(number == worst).argmax()])
    return _Tails(is_mine, claim, asked(rank, saving), float(low.sum() / high.sum()), ways[worst], event)


def _sizes(rank: Rank, event: int, name: str, blocks: int, better: int) -> list[tuple[int, int]]:
    """Sizes of a product of which each alone, cut down, makes its grid as small: from and to.

    Empty unless the tile in the kernel's name explains the grid as it is.
    """
    owner, tile = int(work(rank).owner[event]), _TILE.search(name)
    known = work(rank).signatures[int(work(rank).calls["signature"].to_numpy()[owner])].work if owner != NONE else None
    if known is None or known.product is None or tile is None:
        return []
    batch, m, n, _ = known.product
    for tall, wide in ((int(tile[1]), int(tile[2])), (int(tile[2]), int(tile[1]))):
        rows, columns = -(-m // max(tall, 1)), -(-n // max(wide, 1))
        if batch * rows * columns == blocks:
            fitting = (m, better // (batch * columns) * tall), (n, better // (batch * rows) * wide)
            return [(size, fits) for size, fits in fitting if fits > 0]
    return []


def _explained(rank: Rank, mine: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Of which device events (by their places) others tell the cause."""
    owner = work(rank).owner[mine]
    attention = np.append(is_unfused_attention(rank), False)[owner] & (owner != NONE)
    return np.asarray(context_of(rank).explained(rank, "C15")[mine] | _misaligned(rank, mine) | attention, np.bool_)


def _misaligned(rank: Rank, mine: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of them load less than 16 bytes at once, as far as name and operator tell."""
    events = events_of(rank)
    codes, number = np.unique(events.codes[mine], return_inverse=True)
    counts = np.array([elements_at_once(rank.loaded.strings[code]) for code in codes.tolist()])[number]
    known = [signature.work for signature in work(rank).signatures]
    sizes = events.of_calls(np.array([SIZES[each.dtype] if each else 0 for each in known] or [0]), 0)[mine]
    return np.asarray((counts * sizes > 0) & (counts * sizes < VECTOR), np.bool_)


def _above_roof(rank: Rank) -> NDArray[np.float64]:
    """Share of its time that each device event takes above the roof of its call, 1 where that is not known."""
    above_roof = work(rank)
    roof = above_roof.roof / np.maximum(above_roof.calls["time"].to_numpy(), 1)
    each = np.append(np.clip(1 - np.nan_to_num(roof, nan=0.0), 0, 1), 1.0)
    return np.asarray(np.where(above_roof.owner == NONE, 1.0, each[above_roof.owner]), np.float64)
