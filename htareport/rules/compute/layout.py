"""Conversions between the two memory layouts of images: channels first and channels last."""

from __future__ import annotations

import re
from dataclasses import dataclass

from htareport.rank.capability import Capability
from htareport.rank.compute_time import compute_time
from htareport.rank.kernel_types import events_of
from htareport.rank.rank import Rank
from htareport.report.findings import Finding
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import JobEvidence
from htareport.rules.engine.kernel_evidence import KernelEvidence, kernel_fields, listed

_TO_LAST = re.compile(r"nchwToNhwc|nchw2nhwc|NCHWToNHWC", re.IGNORECASE)
_FROM_LAST = re.compile(r"nhwcToNchw|nhwc2nchw", re.IGNORECASE)
_MIOPEN = re.compile(r"batched_transpose_\d+x\d+")  # In either direction: the name does not say in which.


@dataclass(frozen=True, kw_only=True)
class LayoutEvidence(KernelEvidence):
    """Kernels that convert the layout of images."""

    is_amd: bool


@dataclass(frozen=True)
class LayoutConversions(Rule[LayoutEvidence]):
    """Convolutions convert images between channels first and channels last.

    ## When it speaks
    Kernels of cuDNN and MIOpen that only change the order of the channels (`nchwToNhwc`, `batched_transpose`) take at
    least `least` of the compute time. Where most of that time converts from last to first, nothing is reported: the
    images are `channels_last` already.

    ## What it could save
    All of their time. Only what shortens the step counts: time that no other work covers, as far as the CPU launches
    early enough.

    ## What to do
    Convert the model and its images to `channels_last` once, and keep them in it from end to end.

    - **AMD**: Set `PYTORCH_MIOPEN_SUGGEST_NHWC=1` in the environment. Without it PyTorch on AMD may not use
      `channels_last` for convolutions.

    ## How to verify
    These kernels are gone from *Kernels by total time*.
    """

    code, title, family, section = "C18", "Layout conversions", Family.COMPUTE, "kernel_breakdown"
    requires = frozenset({Capability.GPU})
    confidence = "high"

    least: float = 0.015

    def look(self, rank: Rank) -> LayoutEvidence | None:
        events = events_of(rank)
        is_from_last, is_to_last, is_amd = (
            events.wanted & events.named(pattern) for pattern in (_FROM_LAST, _TO_LAST, _MIOPEN)
        )
        is_to_last |= is_amd  # Whose direction is unknown.
        time, from_last_ns, to_last_ns = (
            int(events.durations[mask].sum()) for mask in (is_from_last | is_to_last, is_from_last, is_to_last)
        )
        if not time or time < self.least * compute_time(rank) or from_last_ns > to_last_ns:
            return None
        fields = kernel_fields(rank, is_from_last | is_to_last, 0.0)
        return LayoutEvidence(**fields, is_amd=bool(is_amd.any())) if fields else None

    def tell(self, job: JobEvidence[LayoutEvidence]) -> Finding | None:
        worst = job.worst
        return self.finding(
            job,
            f"Layout conversions around convolutions cost up to {job.max_saving} {job.per_step}",
            evidence=f"They take {job.percent(worst.compute_share)} of compute: {listed(job)} {job.per_step}.",
            cases=("AMD",) if worst.is_amd else (),
            assumption="All operators between the convolutions keep the layout.",
            snippet="model = model.to(memory_format=torch.channels_last)\n"
            "images = images.to(memory_format=torch.channels_last)",
        )
