"""A rule about memory that the allocator has reserved and tensors leave empty."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from htareport.rank.capability import Capability
from htareport.rank.memory import fill, fullest
from htareport.rank.rank import Rank
from htareport.report.findings import Finding, Severity
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence
from htareport.rules.engine.wording import sized


@dataclass(frozen=True, kw_only=True)
class FragmentationEvidence(Evidence):
    """The fullest device: how much of what is reserved holds no tensor, at the peak and over time."""

    device: str
    unused_share: float  # Of what is reserved, at the peak of the tensors.
    sustained_share: float  # Of the time.
    reserved_bytes: int
    max_fill: float


@dataclass(frozen=True)
class Fragmentation(Rule[FragmentationEvidence]):
    """The allocator has reserved much more memory than tensors use, and memory is short.

    ## When it speaks
    Tensors leave more than `unused` of the reserved memory empty, both at their peak and for at least `sustained` of
    the time. The allocator has reserved more than `full` of the device's memory.

    ## What it could save
    No time by itself. Memory that cannot be used leads to frees and new allocations (H9), or to running out of memory.

    ## What to do
    Set `expandable_segments:True`, so that segments can grow. Use few distinct shapes, for example by padding inputs to
    a few sizes.

    ## How to verify
    *Peak reserved* comes near *Peak allocated*.
    """

    code, title, family, section = "M3", "Memory is fragmented", Family.MEMORY, "memory_timeline"
    requires = frozenset({Capability.MEMORY})

    unused: float = 0.25
    sustained: float = 0.3
    full: float = 0.7

    def look(self, rank: Rank) -> FragmentationEvidence | None:
        series = fullest(rank)
        if series is None or series.reserved is None or not fill(series) > self.full:
            return None
        rows = np.flatnonzero(series.within)
        reserved, allocated = series.reserved[rows].astype(np.float64), series.allocated[rows]
        unused = 1 - allocated / np.maximum(reserved, 1)
        peak_row = int(allocated.argmax())
        lasting = np.append(np.diff(series.ts[rows]), 0).astype(np.float64)
        lasting[np.append(np.diff(series.capture[rows]) != 0, [True])] = 0
        share = float(lasting[unused > self.unused].sum() / lasting.sum()) if lasting.sum() else 0.0
        if not unused[peak_row] > self.unused or share < self.sustained:
            return None
        return FragmentationEvidence(
            device=series.device,
            unused_share=float(unused[peak_row]),
            sustained_share=share,
            reserved_bytes=int(reserved[peak_row]),
            max_fill=fill(series),
        )

    def tell(self, job: JobEvidence[FragmentationEvidence]) -> Finding:
        rank, worst = max(job.by_rank.items(), key=lambda item: (item[1].unused_share, -item[0]))
        return self.finding(
            job,
            f"{job.percent(worst.unused_share)} of the reserved memory holds no tensors at their peak",
            evidence=f"On rank {rank}, {worst.device}, {sized(worst.reserved_bytes)} are reserved at that moment. "
            f"At most {job.percent(worst.max_fill)} of the device's memory is reserved. More than "
            f"{job.percent(self.unused)} of the reserved memory is empty for {job.percent(worst.sustained_share)} of "
            "the time.",
            snippet="PYTORCH_ALLOC_CONF=expandable_segments:True python main.py",
            severity=Severity.LOW,
        )
