"""Rules about copies to the GPU that it waits for: from pageable memory, not overlapped, or tiny."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from htareport.algorithms import intervals
from htareport.algorithms.intervals import Intervals
from htareport.rank.capability import Capability
from htareport.rank.communication import sets_of
from htareport.rank.host_rows import late, per
from htareport.rank.interval_sets import Sets, common, joined, minus
from htareport.rank.rank import Rank
from htareport.rank.replay.host_edits import edit_of_copies
from htareport.report import Unit
from htareport.report.findings import Finding
from htareport.report.units import counted, text
from htareport.rows.classify import Kind
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence

_SECTION = "memory_bandwidth"
_MIN_LARGE_BYTES = 1_000_000  # A copy as large as that shows what the link can do.
_TO_DEVICE = "Memcpy HtoD"
# GB/s that pinned memory reaches where the trace has no such copy: 0.8 of PCIe 5.0, 4.0 and 3.0 with 16 lanes.
_LINK_RATES = (
    (re.compile(r"H100|H200|H800|H20\b|B[123]00|GB\d|MI3\d\d"), 50.0),
    (re.compile(r"A100|A800|A\d0\b|A\d000|L4|RTX [34]0|MI2\d\d"), 25.0),
)
_MIN_LINK_RATE = 12.0


@dataclass(frozen=True, kw_only=True)
class CopyEvidence(Evidence):
    """Copies of some kind, in all steps."""

    num_copies: int
    num_bytes: int
    rate: float  # GB/s.
    windows: int


def _copies(rank: Rank, *kinds: str) -> pd.DataFrame:
    return rank.copies[rank.copies["copy_kind"].isin(kinds)]


def _is_pageable(copies: pd.DataFrame) -> pd.Series:
    return copies["name"].astype(str).str.contains("Pageable", regex=False)


def _exposed(rank: Rank, copies: pd.DataFrame) -> Sets:
    """When the device makes these copies, and computes and communicates nothing."""
    return minus(sets_of(rank, copies), rank.busy(Kind.COMPUTE, Kind.COMM))


def _num_bytes(copies: pd.DataFrame) -> int:
    """Sum of the sizes that the trace records."""
    return int(copies["bytes"].clip(lower=0).sum())


def _rate(copies: pd.DataFrame) -> float:
    """Bandwidth of copies in GB/s; 0 without any."""
    sized = copies[copies["bytes"] > 0]
    time = int(sized["dur"].sum())
    return _num_bytes(sized) / time if time else 0.0


@dataclass(frozen=True, kw_only=True)
class PageableCopiesEvidence(CopyEvidence):
    """Copies from pageable memory, and at which rate they would run from pinned memory."""

    pinned_rate: float  # GB/s.
    has_pinned: bool  # Whether pinned copies of the trace show it.


@dataclass(frozen=True)
class PageableCopies(Rule[PageableCopiesEvidence]):
    """Batches are copied to the device from pageable memory, slowly and while the host waits.

    ## When it speaks
    Copies to the device from pageable memory move at least `size` MB per step, and for at least `least` of the step the
    device computes and communicates nothing meanwhile. AMD's traces don't say which memory it is.

    ## What it could save
    That time, except what copies from pinned memory would take: at the rate of pinned copies in the trace, else at 0.8
    of the rate of the link.

    ## What to do
    Let the data loader pin its batches (`pin_memory=True`), and copy them with `non_blocking=True`.

    ## How to verify
    The names of the copies say *Pinned*, and they take less time.
    """

    code, title, family, section = "H16", "Copies to the device from pageable memory", Family.HOST, _SECTION
    requires = frozenset({Capability.GPU, Capability.COPIES})
    confidence = "high"

    size: float = 1.0
    least: float = 0.005

    def look(self, rank: Rank) -> PageableCopiesEvidence | None:
        copies = _copies(rank, _TO_DEVICE)
        is_pageable = _is_pageable(copies)
        pageable, pinned = copies[is_pageable], copies[~is_pageable & (copies["bytes"] >= _MIN_LARGE_BYTES)]
        exposed = _exposed(rank, pageable)
        num_bytes = _num_bytes(pageable)
        if num_bytes < self.size * 1e6 * per(rank) or rank.share(exposed) < self.least:
            return None
        rate, pinned_rate = _rate(pageable), _rate(pinned) or _link_rate(rank)
        if not 0 < rate < pinned_rate:
            return None
        claim = {lane: _shortened(times, 1 - rate / pinned_rate) for lane, times in exposed.items()}
        return PageableCopiesEvidence(
            claim=claim,
            edit=edit_of_copies(rank, pageable, 1 - rate / pinned_rate),
            spans=rank.spans(exposed, name=_TO_DEVICE),
            num_bytes=num_bytes,
            num_copies=len(pageable),
            rate=rate,
            pinned_rate=pinned_rate,
            has_pinned=bool(len(pinned)),
            windows=per(rank),
        )

    def tell(self, job: JobEvidence[PageableCopiesEvidence]) -> Finding:
        worst = job.worst
        rate, pinned_rate = (text(1e9 * rate, Unit.BYTES_PER_SECOND) for rate in (worst.rate, worst.pinned_rate))
        size = text(worst.num_bytes / worst.windows, Unit.BYTES)
        source = "as the trace's pinned copies do" if worst.has_pinned else "as the link should"
        return self.finding(
            job,
            f"The GPU waits for copies from pageable memory: {size} {job.per_step} at {rate}",
            evidence=f"{counted(worst.num_copies / worst.windows, 'copy', 'copies')} {job.per_step}, of which pageable "
            f"memory costs {job.max_saving}.",
            assumption=f"Pinned memory is copied at {pinned_rate}, {source}.",
            snippet="loader = DataLoader(dataset, pin_memory=True)\nbatch = batch.to(device, non_blocking=True)",
        )


def _link_rate(rank: Rank) -> float:
    """GB/s that the slowest link of the devices reaches, by their names."""
    names = {rank.device_name(device) for device, _ in rank.lanes}
    rates = [next((rate for pattern, rate in _LINK_RATES if pattern.search(name)), _MIN_LINK_RATE) for name in names]
    return min(rates, default=_MIN_LINK_RATE)


def _shortened(rows: Intervals, share: float) -> Intervals:
    """The first part of each interval, as long as a share of it."""
    return intervals.union(rows[:, 0], rows[:, 0] + (share * (rows[:, 1] - rows[:, 0])).astype(np.int64))


@dataclass(frozen=True)
class ExposedCopies(Rule[CopyEvidence]):
    """Copies to the device do not overlap its other work.

    ## When it speaks
    For at least `least` of the step the device copies from pinned memory, or from memory of which the trace doesn't
    say whether it is pinned, and computes and communicates nothing meanwhile.

    ## What it could save
    That time.

    ## What to do
    Copy the next batch on a stream of its own, from pinned memory and with `non_blocking=True`, while the device works
    on this one.

    ## How to verify
    `exposed_memory_pct` goes down in `htareport diff`.
    """

    code, title, family, section = "H17", "Copies to the device are not overlapped", Family.HOST, _SECTION
    requires = frozenset({Capability.GPU, Capability.COPIES})

    least: float = 0.02

    def look(self, rank: Rank) -> CopyEvidence | None:
        copies = _copies(rank, _TO_DEVICE)
        copies = copies[~_is_pageable(copies)]
        claim = _exposed(rank, copies)
        if rank.share(claim) < self.least:
            return None
        return CopyEvidence(
            claim=claim,
            spans=rank.spans(claim, name=_TO_DEVICE),
            num_bytes=_num_bytes(copies),
            num_copies=len(copies),
            rate=_rate(copies),
            windows=per(rank),
        )

    def tell(self, job: JobEvidence[CopyEvidence]) -> Finding:
        worst = job.worst
        number, num_bytes = worst.num_copies / worst.windows, worst.num_bytes / worst.windows
        size, rate = text(num_bytes, Unit.BYTES), text(1e9 * worst.rate, Unit.BYTES_PER_SECOND)
        return self.finding(
            job,
            f"The GPU does nothing but copy its input for {job.max_saving} {job.per_step}",
            evidence=f"{number:,.3g} copies move {size} to the device {job.per_step} at {rate}.",
            assumption="All of it is hidden behind the device's work.",
            snippet="with torch.cuda.stream(copy_stream):\n    next_batch = next(batches).to(device, "
            "non_blocking=True)\n...  # Work on this batch.\ntorch.cuda.current_stream().wait_stream(copy_stream)",
        )


@dataclass(frozen=True, kw_only=True)
class TinyCopiesEvidence(CopyEvidence):
    """Tiny copies, and how many there are of each direction."""

    kinds: list[tuple[str, int]]


@dataclass(frozen=True)
class TinyCopies(Rule[TinyCopiesEvidence]):
    """Many tiny copies, each launched by itself.

    ## When it speaks
    There are at least `number` copies per step of less than `size` KB to the device or within it. They, and the idle
    time in front of them in which the host is late, take at least `least` of the step.

    ## What it could save
    That time, except for one copy per step.

    ## What to do
    Put small values into one tensor and copy it once. Create constants on the device. Copy lists of tensors with
    `torch._foreach_copy_`.

    ## How to verify
    A step has fewer copies.
    """

    code, title, family, section = "H18", "Many tiny copies", Family.HOST, _SECTION
    requires = frozenset({Capability.GPU, Capability.COPIES, Capability.LAUNCHES})
    about_idle = True

    number: float = 50.0
    size: float = 64.0
    least: float = 0.01

    def look(self, rank: Rank) -> TinyCopiesEvidence | None:
        copies = _copies(rank, _TO_DEVICE, "Memcpy DtoD")
        copies = copies[(copies["bytes"] >= 0) & (copies["bytes"] < 1024 * self.size)]
        if len(copies) < self.number * per(rank):
            return None
        before = {lane: idle[np.isin(idle[:, 1], copies["ts"].to_numpy())] for lane, idle in rank.idle.items()}
        claim = joined(common(before, late(rank)), _exposed(rank, copies))
        if rank.share(claim) < self.least:
            return None
        kinds = copies["copy_kind"].value_counts()
        return TinyCopiesEvidence(
            claim=claim,
            spans=rank.spans(claim),
            num_copies=len(copies),
            num_bytes=_num_bytes(copies),
            rate=_rate(copies),
            windows=per(rank),
            kinds=[(str(kind), int(count)) for kind, count in kinds.items()],
        )

    def tell(self, job: JobEvidence[TinyCopiesEvidence]) -> Finding:
        worst = job.worst
        kinds = " and ".join(f"{count / worst.windows:,.0f} {kind}" for kind, count in worst.kinds)
        size = text(worst.num_bytes / worst.num_copies, Unit.BYTES)
        return self.finding(
            job,
            f"Tiny copies take {job.max_saving} {job.per_step}: {worst.num_copies / worst.windows:,.0f} of {size} each",
            evidence=f"{kinds} {job.per_step}, each of less than {self.size:g} KB; their own time and the idle time "
            "before them count.",
            assumption="One copy takes the place of all.",
            snippet="values = torch.tensor([a, b, c], pin_memory=True).to(device, non_blocking=True)",
        )
