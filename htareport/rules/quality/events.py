"""Rules about device events that don't fit: without a launch, or in two places at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from htareport.rank.capability import Capability
from htareport.rank.launch_links import UNLINKED
from htareport.rank.rank import Rank
from htareport.report.findings import Finding, Severity
from htareport.report.units import counted
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence
from htareport.rules.engine.recording import joined_words

_SLACK_NS = 1_000
_FEWEST = 10  # Of a name, to tell what is usual.


@dataclass(frozen=True, kw_only=True)
class OrphansEvidence(Evidence):
    """What was seen on one rank: work without a launch."""

    share: float
    streams: list[tuple[str, int]]


@dataclass(frozen=True)
class Orphans(Rule[OrphansEvidence]):
    """Work of the device without the call that launched it.

    ## When it speaks
    More than `share` of the device events that come after the first one with a launch have none. Those before it were
    launched before the recording began, which is normal.

    ## What it could save
    Nothing: such work is missing from operators, modules and steps, and its gaps have no cause.

    ## What to do
    Record `ProfilerActivity.CPU` too, with a current PyTorch: old ones lack the driver's calls that launch Triton
    kernels.

    ## How to verify
    Every device event has a launch.
    """

    code, title, family = "Q5", "Work without a launch", Family.QUALITY
    section, confidence = "operator_kernels", "high"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})

    share: float = 0.05

    def look(self, rank: Rank) -> OrphansEvidence | None:
        events = rank.device_events
        known = events["launch"].to_numpy() != UNLINKED
        later = (np.cumsum(known) - known) > 0
        orphans = events[later & ~known]
        if len(orphans) <= self.share * int(later.sum()):
            return None
        streams = orphans["stream"].astype(str).value_counts().head(3)
        return OrphansEvidence(
            share=len(orphans) / int(later.sum()), streams=[(str(k), int(v)) for k, v in streams.items()]
        )

    def tell(self, job: JobEvidence[OrphansEvidence]) -> Finding:
        worst = job.worst
        streams = joined_words([f"{count:,} on stream {stream}" for stream, count in worst.streams])
        return self.finding(
            job,
            f"{job.percent(worst.share)} of the GPU's work has no launch in the trace",
            evidence=f"{streams}. They belong to no operator, and idle time in front of them has no cause.",
            severity=Severity.LOW,
        )


@dataclass(frozen=True, kw_only=True)
class ImpossibleTimesEvidence(Evidence):
    """What was seen on one rank: device events with impossible times."""

    number: int
    length: int
    longest: tuple[str, int, float] | None
    whole: int


@dataclass(frozen=True)
class ImpossibleTimes(Rule[ImpossibleTimesEvidence]):
    """Device events whose times cannot be.

    ## When it speaks
    Events of one stream overlap by more than 1 µs, though a stream runs one after the other, and that takes at least
    `share` of the device's time; graphs and launches that may begin early (`cudaLaunchKernelExC`) are left out. Or one
    event takes more than half of the recording and a hundred times what ten others of its name take in the median.

    ## What it could save
    Nothing: sums of kernels are too large, and idle time is too small.

    ## What to do
    Record again with a current driver and PyTorch, or leave the step out.

    ## How to verify
    The sum of a stream's kernels is no more than the time recorded.
    """

    code, title, family = "Q6", "Device events with impossible times", Family.QUALITY
    section = "kernel_breakdown"
    requires = frozenset({Capability.GPU})

    share: float = 0.01

    def look(self, rank: Rank) -> ImpossibleTimesEvidence | None:
        number, length = _overlaps(rank)
        longest = _outlier(rank)
        whole = int(rank.device_events["dur"].sum())
        if length < self.share * whole and not longest:
            return None
        return ImpossibleTimesEvidence(number=number, length=length, longest=longest, whole=whole)

    def tell(self, job: JobEvidence[ImpossibleTimesEvidence]) -> Finding:
        worst, said = job.worst, list[str]()
        if worst.length >= self.share * worst.whole:
            said.append(
                f"{counted(worst.number, 'event overlaps another', 'events overlap others')} of the same stream, by "
                f"{job.time(worst.length)} in all"
            )
        if worst.longest:
            name, length, usual = worst.longest
            said.append(f"one `{name}` takes {job.time(length)}, others {job.time(usual)}")
        words = " and ".join(said)
        return self.finding(
            job,
            "Some device events have times that cannot be",
            evidence=f"{words[:1].upper()}{words[1:]}. Sums of kernels are too large, and idle time is too small.",
            severity=Severity.LOW,
        )


def _overlaps(rank: Rank) -> tuple[int, int]:
    """How many device events begin before the last of their stream has ended, and by how much in all, ns."""
    events, calls = rank.device_events, rank.launches
    events = events.sort_values(["capture", "lane"], kind="stable")
    ts, launch = events["ts"].to_numpy(), events["launch"].to_numpy()
    reach = events.groupby(["capture", "lane"])["end"].cummax().to_numpy()
    place = events["capture"].to_numpy(np.int64) * (int(events["lane"].max()) + 1) + events["lane"].to_numpy()
    over = np.zeros(len(events), np.int64)
    over[1:] = np.where(place[1:] == place[:-1], reach[:-1] - ts[1:], 0)
    early = calls["graph"].to_numpy() | calls["name"].astype(str).str.contains("ExC", regex=False).to_numpy()
    over[(launch != UNLINKED) & np.append(early, False)[launch]] = 0
    overlaps = over[over > _SLACK_NS]
    return len(overlaps), int(overlaps.sum())


def _outlier(rank: Rank) -> tuple[str, int, float] | None:
    """Name and length of an event that is as long as half the recording and unlike its name's, and what is usual."""
    events = rank.device_events
    at = int(events["dur"].argmax())
    name, length = str(events["name"].iloc[at]), int(events["dur"].iloc[at])
    others = events["dur"].to_numpy()[(events["name"] == name).to_numpy()]
    usual = float(np.median(others))
    if 2 * length > rank.whole and len(others) > _FEWEST and length > 100 * usual:
        return name, length, usual
    return None
