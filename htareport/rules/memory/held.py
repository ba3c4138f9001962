"""Rules about what tensors hold in memory: near its capacity, more after every step, and by one operator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms.live import growth, live_rows
from htareport.rank.capability import Capability
from htareport.rank.memory import NO_OPERATOR, Series, device_memory, fill, fullest, outermost_operators
from htareport.rank.rank import Rank
from htareport.rank.training import trains
from htareport.report.findings import Finding, Severity
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence
from htareport.rules.engine.wording import sized

_SECTION = "memory_timeline"
_RECOMPUTE = "from torch.utils.checkpoint import checkpoint\nx = checkpoint(block, x, use_reentrant=False)"


@dataclass(frozen=True, kw_only=True)
class NearCapacityEvidence(Evidence):
    """The fullest device: its memory, what of it is reserved, and what tensors hold at the peak."""

    device: str
    reserved_share: float
    capacity_bytes: float
    peak_bytes: int
    trains: bool


@dataclass(frozen=True)
class NearCapacity(Rule[NearCapacityEvidence]):
    """The device's memory is nearly full.

    ## When it speaks
    The allocator has reserved more than `share` of the device's memory.

    ## What it could save
    No time by itself. A larger batch or a longer input may run out of memory. An allocator that is short of memory
    frees blocks and allocates them again, and the GPU waits meanwhile. An inference engine may reserve memory on
    purpose.

    ## What to do
    - **training**: Recompute activations, shard parameters and optimizer state, or use a smaller batch. *At the peak,
      by operator* lists what takes most memory.
    - **inference**: An inference engine reserves memory for its cache on purpose (vLLM: `gpu_memory_utilization`): then
      nothing has to change. Otherwise use smaller batches or a quantised model.

    ## How to verify
    *Peak reserved* is below 90 % of the memory.
    """

    code, title, family, section = "M1", "Memory is nearly full", Family.MEMORY, _SECTION
    requires = frozenset({Capability.MEMORY})
    confidence = "high"

    share: float = 0.9

    def look(self, rank: Rank) -> NearCapacityEvidence | None:
        series = fullest(rank)
        if series is None or not fill(series) > self.share:
            return None
        return NearCapacityEvidence(
            device=series.device,
            reserved_share=fill(series),
            capacity_bytes=series.capacity,
            peak_bytes=int(series.allocated[series.within].max()),
            trains=trains(rank),
        )

    def tell(self, job: JobEvidence[NearCapacityEvidence]) -> Finding:
        rank, worst = max(job.by_rank.items(), key=lambda item: (item[1].reserved_share, -item[0]))
        return self.finding(
            job,
            f"Memory is nearly full: {job.percent(worst.reserved_share)} of {sized(worst.capacity_bytes)} are reserved",
            evidence=f"On rank {rank}, {worst.device}, tensors take {sized(worst.peak_bytes)} at the peak.",
            cases=("training" if worst.trains else "inference",),
            snippet=_RECOMPUTE if worst.trains else "",
            severity=Severity.MEDIUM if worst.trains else Severity.LOW,
        )


@dataclass(frozen=True, kw_only=True)
class GrowthEvidence(Evidence):
    """A device on which tensors hold more after every step."""

    device: str
    growth_bytes: float  # Per step.
    steps_left: float  # Until its memory is full; nan where its size is unknown.
    owner: str
    num_steps: int


@dataclass(frozen=True)
class Growth(Rule[GrowthEvidence]):
    """Tensors hold more memory after every step.

    ## When it speaks
    After each of at least `steps` steps tensors hold more memory than after the step before. The growth per step (the
    median slope between all pairs of steps) is more than `share` of the device's memory, or of the largest peak where
    the size of the memory is unknown.

    ## What it could save
    No time: the run fails once memory is full.

    ## What to do
    - **training**: Look for what keeps tensors alive: sums of losses without `.detach()`, outputs in a list, or a
      retained graph.
    - **inference**: Look for what keeps tensors alive: outputs in a list or a cache, or an autograd graph. Run under
      `torch.inference_mode()`, which records no graph.

    ## How to verify
    *Growth* is 0.
    """

    code, title, family, section = "M5", "Memory grows with every step", Family.MEMORY, _SECTION
    requires = frozenset({Capability.MEMORY, Capability.STEPS})
    confidence = "high"

    steps: float = 4.0
    share: float = 0.005

    def look(self, rank: Rank) -> GrowthEvidence | None:
        ends = rank.steps["end"].to_numpy()
        for series in device_memory(rank) if len(ends) >= self.steps else ():
            if not series.has_totals and series.capture[0] != series.capture[-1]:
                continue  # Each capture begins anew.
            levels = series.allocated[np.maximum(np.searchsorted(series.ts, ends, side="right") - 1, 0)]
            growth_bytes, has_capacity = growth(levels), bool(np.isfinite(series.capacity))
            size = series.capacity if has_capacity else float(series.allocated.max())
            if (np.diff(levels) > 0).all() and growth_bytes > self.share * size:
                return GrowthEvidence(
                    device=series.device,
                    growth_bytes=growth_bytes,
                    steps_left=(size - levels[-1]) / growth_bytes if has_capacity else np.nan,
                    owner=_survivors_owner(rank, series, int(ends[0]), int(ends[-1])),
                    num_steps=len(ends),
                )
        return None

    def tell(self, job: JobEvidence[GrowthEvidence]) -> Finding:
        rank, worst = max(job.by_rank.items(), key=lambda item: (item[1].growth_bytes, -item[0]))
        full = f" It is full after {worst.steps_left:,.0f} more steps." if np.isfinite(worst.steps_left) else ""
        owner = f" Most of what was not freed was allocated in `{worst.owner}`." if worst.owner else ""
        return self.finding(
            job,
            f"Memory grows by {sized(worst.growth_bytes)} with every step",
            evidence=f"On rank {rank}, {worst.device}, memory grew in each of {worst.num_steps} steps.{full}{owner}",
            cases=(job.purpose,),
            snippet="with torch.inference_mode():\n    out = model(batch)"
            if job.infers
            else "total += loss.detach()  # Not total += loss.",
            severity=Severity.HIGH,
        )


def _survivors_owner(rank: Rank, series: Series, begin: int, end: int) -> str:
    """The outermost operator that allocated most of what is not freed between two stamps; empty if unknown."""
    rows = np.flatnonzero((series.ts >= begin) & (series.ts < end))
    if not (series.address[rows] >= 0).any():
        return ""
    owners = _by_owner(rank, series, rows[live_rows(series.address[rows], series.size[rows])])
    return str(owners.index[0]) if len(owners) and owners.index[0] != NO_OPERATOR else ""


def _by_owner(rank: Rank, series: Series, rows: NDArray[np.int64]) -> pd.Series[int]:
    """Bytes of allocations by the outermost operator around them, most first."""
    frame = pd.DataFrame({"owner": outermost_operators(rank, series, rows), "bytes": series.size[rows]})
    return frame.groupby("owner")["bytes"].sum().sort_values(ascending=False, kind="stable")


@dataclass(frozen=True, kw_only=True)
class PeakOwnerEvidence(Evidence):
    """The operator whose tensors hold most at the peak of the fullest device."""

    device: str
    owner: str
    owner_bytes: int
    peak_bytes: int


@dataclass(frozen=True)
class PeakOwner(Rule[PeakOwnerEvidence]):
    """One operator's tensors are a large part of the peak, and memory is short.

    ## When it speaks
    The allocator has reserved more than `full` of the device's memory. One outermost operator has allocated at least
    `share` of what tensors hold at the peak.

    ## What it could save
    No time by itself, but less memory allows larger batches.

    ## What to do
    If these are attention scores, use `F.scaled_dot_product_attention`.

    - **training**: If they are logits, compute the loss in chunks. If they are activations, recompute them in the
      backward pass.
    - **inference**: If they are logits, keep only those that are used. If they are activations, use smaller batches.

    ## How to verify
    *Peak allocated* goes down.
    """

    code, title, family, section = "M6", "One operator holds much of the peak", Family.MEMORY, _SECTION
    requires = frozenset({Capability.MEMORY, Capability.HOST_OPS})

    full: float = 0.7
    share: float = 0.3

    def look(self, rank: Rank) -> PeakOwnerEvidence | None:
        series = fullest(rank)
        if series is None or not fill(series) > self.full or not (series.address >= 0).any():
            return None
        peak_row = int(np.where(series.within, series.allocated, -1).argmax())
        first = int(np.searchsorted(series.capture, series.capture[peak_row]))
        rows = first + live_rows(series.address[first : peak_row + 1], series.size[first : peak_row + 1])
        owners = _by_owner(rank, series, rows)
        owners = owners[owners.index != NO_OPERATOR]
        peak = max(int(series.allocated[peak_row]), 1)
        if not len(owners) or owners.iloc[0] < self.share * peak:
            return None
        return PeakOwnerEvidence(
            device=series.device, owner=str(owners.index[0]), owner_bytes=int(owners.iloc[0]), peak_bytes=peak
        )

    def tell(self, job: JobEvidence[PeakOwnerEvidence]) -> Finding:
        rank, worst = max(job.by_rank.items(), key=lambda item: (item[1].owner_bytes, -item[0]))
        return self.finding(
            job,
            f"`{worst.owner}` holds {job.percent(worst.owner_bytes / worst.peak_bytes)} of the memory at the peak",
            evidence=f"On rank {rank}, {worst.device}: {sized(worst.owner_bytes)} of {sized(worst.peak_bytes)}.",
            cases=(job.purpose,),
            snippet="" if job.infers else _RECOMPUTE,
            severity=Severity.LOW,
        )
