"""Conversions between the two orders in which images lie in memory."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from htareport.rank.capability import Capability
from htareport.rank.compute_time import compute_time
from htareport.rank.kernel_types import events_of
from htareport.rank.rank import Rank
from htareport.report.findings import Finding
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import JobEvidence
from htareport.rules.engine.kernel_evidence import KernelEvidence, evidence_of, listed

_TO_LAST = re.compile(r"nchwToNhwc|nchw2nhwc|NCHWToNHWC", re.IGNORECASE)
_FROM_LAST = re.compile(r"nhwcToNchw|nhwc2nchw", re.IGNORECASE)
_EITHER = re.compile(r"batched_transpose_\d+x\d+")  # MIOpen's, which says not which way.


@dataclass(frozen=True, kw_only=True)
class LayoutEvidence(KernelEvidence):
    """What LayoutConversions sees on one rank."""

    is_amd: bool


@dataclass(frozen=True)
class LayoutConversions(Rule[LayoutEvidence]):
    """Convolutions convert images between channels first and channels last.

    ## When it speaks
    Kernels of cuDNN and MIOpen that only change the order of the channels (`nchwToNhwc`, `batched_transpose`) take at
    least `least` of the compute time. Mostly from last to first: then the images are `channels_last` already, and the
    rule is silent.

    ## What it could save
    Their time, where nothing else runs beside. Of that, what no other work covers and the host's launches allow.

    ## What to do
    Keep the model and its images in `channels_last` from end to end.

    - **AMD**: PyTorch on AMD may use it for convolutions only with `PYTORCH_MIOPEN_SUGGEST_NHWC=1` in the environment.

    ## How to verify
    These kernels are gone from *Kernels by total time*.
    """

    code, title, family, section = "C18", "Layout conversions", Family.COMPUTE, "kernel_breakdown"
    requires = frozenset({Capability.GPU})
    confidence = "high"

    least: float = 0.015

    def look(self, rank: Rank) -> LayoutEvidence | None:
        events = events_of(rank)
        back, forth, either = (events.wanted & events.named(each) for each in (_FROM_LAST, _TO_LAST, _EITHER))
        mine = back | forth | either
        times = [int(events.durations[each].sum()) for each in (mine, back, forth | either)]
        if not times[0] or times[0] < self.least * compute_time(rank) or times[1] > times[2]:
            return None
        return evidence_of(LayoutEvidence, rank, mine, np.zeros(len(mine)), is_amd=bool(either.any()))

    def tell(self, job: JobEvidence[LayoutEvidence]) -> Finding | None:
        worst = job.worst
        return self.finding(
            job,
            f"Layout conversions around convolutions cost up to {job.max_saving} {job.per_step}",
            evidence=f"They are {job.percent(worst.compute_share)} of compute: {listed(job)} {job.per_step}.",
            cases=("AMD",) if worst.is_amd else (),
            assumption="No operator between the convolutions changes the order back.",
            snippet="model = model.to(memory_format=torch.channels_last)\n"
            "images = images.to(memory_format=torch.channels_last)",
        )
