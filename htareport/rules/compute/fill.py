"""Kernels with too few blocks to fill the GPU."""

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
from htareport.rules.engine.kernel_evidence import KernelEvidence, kernel_fields, listed


@dataclass(frozen=True, kw_only=True)
class FillEvidence(KernelEvidence):
    """Kernels with fewer blocks than the GPU has processors."""

    filled_share: float  # Of the processors: mean, weighted by time.
    processors: int


@dataclass(frozen=True)
class TooFewBlocks(Rule[FillEvidence]):
    """Kernels have fewer blocks than the GPU has processors.

    ## When it speaks
    Kernels of at least `shortest` µs have fewer blocks than the GPU has multiprocessors (compute units), so some
    multiprocessors do nothing. These kernels take at least `least` of the compute time. Shorter kernels do not count,
    because launches limit them. Narrow products that could be computed together (C15) do not count either.

    ## What it could save
    Half of what these kernels would save if their work were spread over all processors. The lower estimate is zero.
    Only what shortens the step counts: time that no other work covers, as far as the CPU launches early enough.

    ## What to do
    Give each kernel more work: use larger batches, or combine small operators (`torch.bmm`, `torch.compile`). Or run
    other work at the same time, on a second stream.

    ## How to verify
    These kernels have larger grids in the trace, or are gone.
    """

    code, title, family, section = "C9", "Kernels that fill only part of the GPU", Family.COMPUTE, "kernel_breakdown"
    requires = frozenset({Capability.GPU})
    confidence = "low"

    least: float = 0.1
    shortest: float = 20.0

    def look(self, rank: Rank) -> FillEvidence | None:
        events, num_blocks, by_device = events_of(rank), blocks(rank), processors(rank)
        num_processors = np.array([by_device.get(device, 0) for device in events.devices], np.float64)
        is_small = events.wanted & (num_blocks != NONE) & (num_blocks < num_processors)
        is_small &= (events.durations >= 1000 * self.shortest) & ~context_of(rank).explained(rank, "C15")
        if not is_small.any() or events.durations[is_small].sum() < self.least * compute_time(rank):
            return None
        filled_share = np.divide(num_blocks, num_processors, out=np.ones(len(num_blocks)), where=num_processors > 0)
        fields = kernel_fields(rank, is_small, 1 - (1 - filled_share) / 2)
        if fields is None:
            return None
        return FillEvidence(
            **fields,
            filled_share=float(np.average(filled_share[is_small], weights=events.durations[is_small])),
            processors=int(num_processors[is_small].max()),
        )

    def tell(self, job: JobEvidence[FillEvidence]) -> Finding | None:
        worst = job.worst
        return self.finding(
            job,
            f"Kernels that use only {job.percent(worst.filled_share)} of the GPU's processors cost up to "
            f"{job.max_saving} {job.per_step}",
            evidence=f"Kernels with fewer blocks than the GPU has processors ({worst.processors}) take "
            f"{job.percent(worst.compute_share)} of compute: {listed(job)} {job.per_step}.",
            low_ns=0,
            assumption="Half of the processors without work can be used. The lower estimate is none.",
        )
