"""Kernels with too few blocks for the device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from htareport.rank.capability import Capability
from htareport.rank.compute_time import compute_time
from htareport.rank.kernel_grids import blocks, processors
from htareport.rank.kernel_types import events_of
from htareport.rank.operator_work import NONE
from htareport.rank.rank import Rank
from htareport.report.findings import Finding
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.context import context_of
from htareport.rules.engine.evidence import JobEvidence
from htareport.rules.engine.kernel_evidence import KernelEvidence, evidence_of, listed


@dataclass(frozen=True, kw_only=True)
class FillEvidence(KernelEvidence):
    """What TooFewBlocks sees on one rank."""

    filled_share: float
    processors: int


@dataclass(frozen=True)
class TooFewBlocks(Rule[FillEvidence]):
    """Kernels have fewer blocks than the device has processors.

    ## When it speaks
    Kernels of at least `shortest` µs have fewer blocks than the device has multiprocessors (compute units), so that
    some do nothing, and take at least `least` of the compute time. Shorter ones are a matter of launches; narrow
    products that could be computed together, of C15.

    ## What it could save
    Half of the part of their time that corresponds to the processors without work; nothing for the lower estimate. Of
    that, what no other work covers and the host's launches allow.

    ## What to do
    Give them more work: larger batches, small operators together (`torch.bmm`, `torch.compile`), or other work beside
    them on a second stream.

    ## How to verify
    Their grids are larger, or they are gone.
    """

    code, title, family, section = "C9", "Kernels that fill a part of the device", Family.COMPUTE, "kernel_breakdown"
    requires = frozenset({Capability.GPU})
    confidence = "low"

    least: float = 0.1
    shortest: float = 20.0

    def look(self, rank: Rank) -> FillEvidence | None:
        events, number = events_of(rank), blocks(rank)
        counts = processors(rank)
        room = np.array([counts.get(device, 0) for device in events.devices], np.float64)
        mine = events.wanted & (number != NONE) & (number < room) & (events.durations >= 1000 * self.shortest)
        mine &= ~context_of(rank).explained(rank, "C15")
        if not mine.any() or events.durations[mine].sum() < self.least * compute_time(rank):
            return None
        filled = np.divide(number, room, out=np.ones(len(room)), where=room > 0)
        left = np.where(mine, 1 - (1 - filled) / 2, 1.0)
        mean = float(np.average(filled[mine], weights=events.durations[mine]))
        return evidence_of(FillEvidence, rank, mine, left, filled_share=mean, processors=int(room[mine].max()))

    def tell(self, job: JobEvidence[FillEvidence]) -> Finding | None:
        worst = job.worst
        return self.finding(
            job,
            f"Kernels on {job.percent(worst.filled_share)} of the GPU's processors cost up to {job.max_saving} "
            f"{job.per_step}",
            evidence=f"{job.percent(worst.compute_share)} of compute is kernels with fewer blocks than the "
            f"{worst.processors} "
            f"processors: {listed(job)} {job.per_step}.",
            low_ns=0,
            assumption="Half of the processors without work can be used; the lower estimate is none.",
        )
