"""Rules about copies that the device waits for: from pageable memory, not overlapped, many and tiny."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from htareport.algorithms import intervals
from htareport.algorithms.intervals import EMPTY, Intervals
from htareport.rank.capability import Capability
from htareport.rank.host_rows import late, per
from htareport.rank.interval_sets import Sets, common, joined, minus
from htareport.rank.rank import Rank
from htareport.report import Unit
from htareport.report.findings import Finding
from htareport.report.units import counted, text
from htareport.rows.classify import Kind
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence

_SECTION = "memory_bandwidth"
_LARGE = 1_000_000  # Bytes from which a copy shows what the link can do.
_TO_DEVICE = "Memcpy HtoD"
# GB/s that pinned memory reaches where the trace has no such copy: 0.8 of PCIe 5.0, 4.0 and 3.0 with 16 lanes.
_LINKS = (
    (re.compile(r"H100|H200|H800|H20\b|B[123]00|GB\d|MI3\d\d"), 50.0),
    (re.compile(r"A100|A800|A\d0\b|A\d000|L4|RTX [34]0|MI2\d\d"), 25.0),
)
_SLOWEST_LINK = 12.0


def _copies(rank: Rank, kinds: tuple[str, ...]) -> pd.DataFrame:
    copies = rank.copies
    return copies[copies["copy_kind"].isin(kinds)]


def _is_pageable(copies: pd.DataFrame) -> pd.Series:
    return copies["name"].astype(str).str.contains("Pageable", regex=False)


def _sets(rank: Rank, copies: pd.DataFrame) -> Sets:
    """When the device makes these copies, by lane within the windows."""
    sets = Sets()
    for device, capture in rank.lanes:
        mine = copies[(copies["device"] == device) & (copies["capture"] == capture)]
        sets[device, capture] = intervals.union(mine["ts"].to_numpy(), mine["end"].to_numpy())
    return rank.clipped(sets)


def _exposed(rank: Rank, copies: pd.DataFrame) -> Sets:
    """When it makes them and computes and communicates nothing."""
    return minus(_sets(rank, copies), rank.busy(Kind.COMPUTE, Kind.COMM))


def _rate(copies: pd.DataFrame) -> float:
    """Bytes per ns of copies, which is GB/s; 0 without any."""
    known = copies[copies["bytes"] > 0]
    time = int(known["dur"].sum())
    return int(known["bytes"].sum()) / time if time else 0.0


@dataclass(frozen=True, kw_only=True)
class PageableCopiesEvidence(Evidence):
    """What was seen on one rank: copies to the device from pageable memory."""

    size: int
    number: int
    rate: float
    better: float
    has_pinned: bool
    windows: int


@dataclass(frozen=True)
class PageableCopies(Rule[PageableCopiesEvidence]):
    """Batches are copied to the device from pageable memory, slowly and with the host waiting.

    ## When it speaks
    Copies to the device from pageable memory move at least `size` MB per step, and for at least `least` of the step the
    device computes and communicates nothing meanwhile. AMD's traces don't say which memory it is.

    ## What it could save
    That time, but for what pinned memory would take: at the rate of pinned copies in the trace, else at 0.8 of the
    link's.

    ## What to do
    Let the loader pin its batches, and copy without waiting.

    ## How to verify
    The copies are called *Pinned* and take less time.
    """

    code, title, family, section = "H16", "Copies to the device from pageable memory", Family.HOST, _SECTION
    requires = frozenset({Capability.GPU, Capability.COPIES})
    confidence = "high"

    size: float = 1.0
    least: float = 0.005

    def look(self, rank: Rank) -> PageableCopiesEvidence | None:
        copies = _copies(rank, (_TO_DEVICE,))
        pageable = _is_pageable(copies)
        mine, pinned = copies[pageable], copies[~pageable & (copies["bytes"] >= _LARGE)]
        exposed = _exposed(rank, mine)
        size = int(mine["bytes"].clip(lower=0).sum())
        if size < self.size * 1e6 * per(rank) or rank.share(exposed) < self.least:
            return None
        rate, better = _rate(mine), _rate(pinned) or _link(rank)
        if not 0 < rate < better:
            return None
        claim = {lane: _shortened(each, 1 - rate / better) for lane, each in exposed.items()}
        return PageableCopiesEvidence(
            claim=claim,
            spans=rank.spans(exposed, name=_TO_DEVICE),
            size=size,
            number=len(mine),
            rate=rate,
            better=better,
            has_pinned=bool(len(pinned)),
            windows=per(rank),
        )

    def tell(self, job: JobEvidence[PageableCopiesEvidence]) -> Finding:
        worst = job.worst
        rate, better = (text(1e9 * rate, Unit.BYTES_PER_SECOND) for rate in (worst.rate, worst.better))
        size = text(worst.size / worst.windows, Unit.BYTES)
        source = "as the trace's pinned copies do" if worst.has_pinned else "as the link should"
        return self.finding(
            job,
            f"The GPU waits for copies from pageable memory: {size} {job.per_step} at {rate}",
            evidence=f"{counted(worst.number / worst.windows, 'copy', 'copies')} {job.per_step}, of which pageable "
            f"memory costs "
            f"{job.max_saving}.",
            assumption=f"Pinned memory is copied at {better}, {source}.",
            snippet="loader = DataLoader(dataset, pin_memory=True)\nbatch = batch.to(device, non_blocking=True)",
        )


def _link(rank: Rank) -> float:
    names = {rank.device_name(device) for device, _ in rank.lanes}
    rates = [next((rate for link, rate in _LINKS if link.search(name)), _SLOWEST_LINK) for name in names]
    return min(rates, default=_SLOWEST_LINK)


def _shortened(rows: Intervals, share: float) -> Intervals:
    """The first part of each interval."""
    return intervals.union(rows[:, 0], rows[:, 0] + (share * (rows[:, 1] - rows[:, 0])).astype(np.int64))


@dataclass(frozen=True, kw_only=True)
class ExposedCopiesEvidence(Evidence):
    """What was seen on one rank: copies to the device are not overlapped."""

    size: int
    number: int
    rate: float
    windows: int


@dataclass(frozen=True)
class ExposedCopies(Rule[ExposedCopiesEvidence]):
    """Copies to the device are not hidden behind its work.

    ## When it speaks
    For at least `least` of the step the device copies from pinned memory, or from memory of which the trace doesn't
    say whether it is pinned, and computes and communicates nothing meanwhile.

    ## What it could save
    That time.

    ## What to do
    Copy the next batch on a stream of its own, from pinned memory and with `non_blocking=True`, while the device works
    on this one.

    ## How to verify
    *Exposed copies* go down.
    """

    code, title, family, section = "H17", "Copies to the device are not overlapped", Family.HOST, _SECTION
    requires = frozenset({Capability.GPU, Capability.COPIES})

    least: float = 0.02

    def look(self, rank: Rank) -> ExposedCopiesEvidence | None:
        copies = _copies(rank, (_TO_DEVICE,))
        mine = copies[~_is_pageable(copies)]
        claim = _exposed(rank, mine)
        if rank.share(claim) < self.least:
            return None
        return ExposedCopiesEvidence(
            claim=claim,
            spans=rank.spans(claim, name=_TO_DEVICE),
            size=int(mine["bytes"].clip(lower=0).sum()),
            number=len(mine),
            rate=_rate(mine),
            windows=per(rank),
        )

    def tell(self, job: JobEvidence[ExposedCopiesEvidence]) -> Finding:
        worst = job.worst
        size, rate = text(worst.size / worst.windows, Unit.BYTES), text(1e9 * worst.rate, Unit.BYTES_PER_SECOND)
        return self.finding(
            job,
            f"The GPU does nothing but copy its input for {job.max_saving} {job.per_step}",
            evidence=f"{worst.number / worst.windows:,.3g} copies move {size} to the device {job.per_step} at {rate}.",
            assumption="All of it is hidden behind the device's work.",
            snippet="with torch.cuda.stream(copy_stream):\n    next_batch = next(batches).to(device, "
            "non_blocking=True)\n...  # Work on this batch.\ntorch.cuda.current_stream().wait_stream(copy_stream)",
        )


@dataclass(frozen=True, kw_only=True)
class TinyCopiesEvidence(Evidence):
    """Copies of a few bytes, in all steps."""

    number: int
    size: int  # Bytes.
    windows: int
    kinds: list[tuple[str, int]]


@dataclass(frozen=True)
class TinyCopies(Rule[TinyCopiesEvidence]):
    """Many tiny copies, each launched by itself.

    ## When it speaks
    There are at least `number` copies per step of less than `size` KB to the device or within it, and they and the idle
    time in front of them in which the host is late take at least `least` of the step.

    ## What it could save
    That time, but for one copy per step.

    ## What to do
    Put small values into one tensor and copy it once; create constants on the device; copy lists of tensors with
    `torch._foreach_copy_`.

    ## How to verify
    Fewer copies per step.
    """

    code, title, family, section = "H18", "Many tiny copies", Family.HOST, _SECTION
    requires = frozenset({Capability.GPU, Capability.COPIES, Capability.LAUNCHES})
    about_idle = True

    number: float = 50.0
    size: float = 64.0
    least: float = 0.01

    def look(self, rank: Rank) -> TinyCopiesEvidence | None:
        copies = _copies(rank, (_TO_DEVICE, "Memcpy DtoD"))
        mine = copies[(copies["bytes"] >= 0) & (copies["bytes"] < 1024 * self.size)]
        if len(mine) < self.number * per(rank):
            return None
        before = Sets()
        for lane, idle in rank.idle.items():
            before[lane] = idle[np.isin(idle[:, 1], mine["ts"].to_numpy())] if len(idle) else EMPTY
        claim = joined(common(before, late(rank)), _exposed(rank, mine))
        if rank.share(claim) < self.least:
            return None
        kinds = mine["copy_kind"].value_counts()
        return TinyCopiesEvidence(
            claim=claim,
            spans=rank.spans(claim),
            number=len(mine),
            size=int(mine["bytes"].sum()),
            windows=per(rank),
            kinds=[(str(kind), int(count)) for kind, count in kinds.items()],
        )

    def tell(self, job: JobEvidence[TinyCopiesEvidence]) -> Finding:
        worst = job.worst
        kinds = " and ".join(f"{count / worst.windows:,.0f} {kind}" for kind, count in worst.kinds)
        size = text(worst.size / worst.number, Unit.BYTES)
        return self.finding(
            job,
            f"Tiny copies take {job.max_saving} {job.per_step}: {worst.number / worst.windows:,.0f} of {size} each",
            evidence=f"{kinds} {job.per_step}, each of less than {self.size:g} KB; their own time and the idle time "
            "before them count.",
            assumption="One copy takes the place of all.",
            snippet="values = torch.tensor([a, b, c], pin_memory=True).to(device, non_blocking=True)",
        )
