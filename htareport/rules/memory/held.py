"""Rules about the memory of devices, from the rows that `profile_memory=True` adds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
_EXPANDABLE = "PYTORCH_ALLOC_CONF=expandable_segments:True python main.py"


@dataclass(frozen=True, kw_only=True)
class NearCapacityEvidence(Evidence):
    """What was seen on one rank: memory is nearly full."""

    device: str
    share: float
    capacity: float
    peak: int
    trains: bool


@dataclass(frozen=True)
class NearCapacity(Rule[NearCapacityEvidence]):
    """The device's memory is nearly full.

    ## When it speaks
    The allocator has taken more than `share` of the device's memory.

    ## What it could save
    No time by itself. The next larger batch or longer input fails, and an allocator that is short of memory frees and
    asks again, which stops the device. An engine for inference may well take memory ahead on purpose.

    ## What to do
    - **training**: Recompute activations, shard parameters and optimizer state, or use a smaller batch: *At the peak,
      by operator* has what takes most.
    - **inference**: An inference engine takes memory for its cache ahead, on purpose (vLLM: `gpu_memory_utilization`).
      Else use smaller batches or a quantised model.

    ## How to verify
    *Peak reserved* is below 90 % of the memory.
    """

    code, title, family, section = "M1", "Memory is nearly full", Family.MEMORY, _SECTION
    requires = frozenset({Capability.MEMORY})
    confidence = "high"

    share: float = 0.9

    def look(self, rank: Rank) -> NearCapacityEvidence | None:
        each = fullest(rank)
        if each is None or not fill(each) > self.share:
            return None
        return NearCapacityEvidence(
            device=each.device,
            share=fill(each),
            capacity=each.capacity,
            peak=int(each.allocated[each.within].max()),
            trains=trains(rank),
        )

    def tell(self, job: JobEvidence[NearCapacityEvidence]) -> Finding:
        rank, evidence = max(job.by_rank.items(), key=lambda item: (item[1].share, -item[0]))
        worst = evidence
        return self.finding(
            job,
            f"Memory is nearly full: {job.percent(worst.share)} of {sized(worst.capacity)} are taken",
            evidence=f"On rank {rank}, {worst.device}, tensors take {sized(worst.peak)} at the peak.",
            cases=("training" if worst.trains else "inference",),
            snippet=_RECOMPUTE if worst.trains else "",
            severity=Severity.MEDIUM if worst.trains else Severity.LOW,
        )


@dataclass(frozen=True, kw_only=True)
class FragmentationEvidence(Evidence):
    """What was seen on one rank: memory is fragmented."""

    device: str
    unused: float
    share: float
    reserved: int
    fill: float


@dataclass(frozen=True)
class Fragmentation(Rule[FragmentationEvidence]):
    """The allocator has taken much more than tensors use, and memory is short.

    ## When it speaks
    More than `unused` of what the allocator has taken is not used by tensors at their peak and for at least `sustained`
    of the time, and what it has taken is more than `full` of the device's memory.

    ## What it could save
    No time by itself: memory that cannot be used leads to frees and new allocations (H9), or to failing.

    ## What to do
    Let segments grow, and keep to few distinct shapes: pad inputs to buckets.

    ## How to verify
    *Peak reserved* comes near *Peak allocated*.
    """

    code, title, family, section = "M3", "Memory is fragmented", Family.MEMORY, _SECTION
    requires = frozenset({Capability.MEMORY})

    unused: float = 0.25
    sustained: float = 0.3
    full: float = 0.7

    def look(self, rank: Rank) -> FragmentationEvidence | None:
        each = fullest(rank)
        if each is None or each.reserved is None or not fill(each) > self.full:
            return None
        inside = np.flatnonzero(each.within)
        reserved, allocated = each.reserved[inside].astype(np.float64), each.allocated[inside]
        unused = 1 - allocated / np.maximum(reserved, 1)
        at = int(allocated.argmax())
        lasting = np.append(np.diff(each.ts[inside]), 0).astype(np.float64)
        lasting[np.append(np.diff(each.capture[inside]) != 0, [True])] = 0
        share = float(lasting[unused > self.unused].sum() / lasting.sum()) if lasting.sum() else 0.0
        if not unused[at] > self.unused or share < self.sustained:
            return None
        return FragmentationEvidence(
            device=each.device, unused=float(unused[at]), share=share, reserved=int(reserved[at]), fill=fill(each)
        )

    def tell(self, job: JobEvidence[FragmentationEvidence]) -> Finding:
        rank, evidence = max(job.by_rank.items(), key=lambda item: (item[1].unused, -item[0]))
        worst = evidence
        return self.finding(
            job,
            f"{job.percent(worst.unused)} of the memory taken from the device holds no tensor at their peak",
            evidence=f"On rank {rank}, {worst.device}, {sized(worst.reserved)} are taken then, at most "
            f"{job.percent(worst.fill)} of its memory; for {job.percent(worst.share)} of the time that much is "
            "unused.",
            snippet=_EXPANDABLE,
            severity=Severity.LOW,
        )


@dataclass(frozen=True, kw_only=True)
class GrowthEvidence(Evidence):
    """What was seen on one rank: memory grows with every step."""

    device: str
    more: float
    left: float
    owner: str
    steps: int


@dataclass(frozen=True)
class Growth(Rule[GrowthEvidence]):
    """More memory is held after every step.

    ## When it speaks
    At the ends of at least `steps` steps tensors hold more each time, by more than `share` of the device's memory (of
    the largest peak, where its size is unknown) per step: the median slope between all pairs of steps.

    ## What it could save
    No time: the run fails once memory is full.

    ## What to do
    - **training**: Look for what keeps tensors alive: sums of losses without `.detach()`, outputs in a list, a retained
      graph.
    - **inference**: Look for what keeps tensors alive: outputs in a list or a cache, or a graph: run under
      `torch.inference_mode()`.

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
        for each in device_memory(rank) if len(ends) >= self.steps else ():
            if not each.has_totals and each.capture[0] != each.capture[-1]:
                continue  # Each capture begins anew.
            levels = each.allocated[np.maximum(np.searchsorted(each.ts, ends, side="right") - 1, 0)]
            more = growth(levels)
            size = each.capacity if np.isfinite(each.capacity) else float(each.allocated.max())
            if (np.diff(levels) > 0).all() and more > self.share * size:
                owner = _survivors(rank, each, int(ends[0]), int(ends[-1]))
                left = (size - levels[-1]) / more if np.isfinite(each.capacity) else np.nan
                return GrowthEvidence(device=each.device, more=more, left=left, owner=owner, steps=len(ends))
        return None

    def tell(self, job: JobEvidence[GrowthEvidence]) -> Finding:
        rank, evidence = max(job.by_rank.items(), key=lambda item: (item[1].more, -item[0]))
        worst = evidence
        full = f" It is full after {worst.left:,.0f} more." if np.isfinite(worst.left) else ""
        owner = f" What was allocated and not freed is mostly `{worst.owner}`'s." if worst.owner else ""
        return self.finding(
            job,
            f"{sized(worst.more)} more are held after every step",
            evidence=f"On rank {rank}, {worst.device}, memory grew in each of {worst.steps} steps.{full}{owner}",
            cases=(job.purpose,),
            snippet="with torch.inference_mode():\n    out = model(batch)"
            if job.infers
            else "total += loss.detach()  # Not total += loss.",
            severity=Severity.HIGH,
        )


def _survivors(rank: Rank, each: Series, begin: int, end: int) -> str:
    """The outermost operator that allocated most of what came between two stamps and is not freed; empty if unknown."""
    inside = np.flatnonzero((each.ts >= begin) & (each.ts < end))
    if not (each.address[inside] >= 0).any():
        return ""
    rows = inside[live_rows(each.address[inside], each.size[inside])]
    owners = _by_owner(rank, each, rows)
    return str(owners.index[0]) if len(owners) and owners.index[0] != NO_OPERATOR else ""


def _by_owner(rank: Rank, each: Series, rows: NDArray[Any]) -> pd.Series[Any]:
    """Bytes of allocations by the outermost operator around them, most first."""
    frame = pd.DataFrame({"owner": outermost_operators(rank, each, rows), "bytes": each.size[rows]})
    return frame.groupby("owner")["bytes"].sum().sort_values(ascending=False, kind="stable")


@dataclass(frozen=True, kw_only=True)
class PeakOwnerEvidence(Evidence):
    """What was seen on one rank: one operator holds much of the peak."""

    device: str
    owner: str
    bytes: int
    peak: int


@dataclass(frozen=True)
class PeakOwner(Rule[PeakOwnerEvidence]):
    """One operator's tensors are a large part of the peak, and memory is short.

    ## When it speaks
    The allocator has taken more than `full` of the device's memory, and of what tensors hold at the peak one outermost
    operator has allocated at least `share`.

    ## What it could save
    No time by itself: less memory allows larger batches.

    ## What to do
    If these are attention scores, use `F.scaled_dot_product_attention`.

    - **training**: If they are logits, compute the loss in chunks. If they are activations, recompute them in the
      backward pass.
    - **inference**: If they are logits, keep only those that are read. If they are activations, use smaller batches.

    ## How to verify
    *Peak allocated* goes down.
    """

    code, title, family, section = "M6", "One operator holds much of the peak", Family.MEMORY, _SECTION
    requires = frozenset({Capability.MEMORY, Capability.HOST_OPS})

    full: float = 0.7
    share: float = 0.3

    def look(self, rank: Rank) -> PeakOwnerEvidence | None:
        each = fullest(rank)
        if each is None or not fill(each) > self.full or not (each.address >= 0).any():
            return None
        allocated = np.where(each.within, each.allocated, -1)
        at = int(allocated.argmax())
        first = int(np.searchsorted(each.capture, each.capture[at]))
        rows = first + live_rows(each.address[first : at + 1], each.size[first : at + 1])
        owners = _by_owner(rank, each, rows)
        owners = owners[owners.index != NO_OPERATOR]
        peak = max(int(each.allocated[at]), 1)
        if not len(owners) or owners.iloc[0] < self.share * peak:
            return None
        return PeakOwnerEvidence(device=each.device, owner=str(owners.index[0]), bytes=int(owners.iloc[0]), peak=peak)

    def tell(self, job: JobEvidence[PeakOwnerEvidence]) -> Finding:
        rank, evidence = max(job.by_rank.items(), key=lambda item: (item[1].bytes, -item[0]))
        worst = evidence
        return self.finding(
            job,
            f"`{worst.owner}` holds {job.percent(worst.bytes / worst.peak)} of the memory at the peak",
            evidence=f"On rank {rank}, {worst.device}: {sized(worst.bytes)} of {sized(worst.peak)}.",
            cases=(job.purpose,),
            snippet="" if job.infers else _RECOMPUTE,
            severity=Severity.LOW,
        )
