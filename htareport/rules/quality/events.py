"""Rules about device events that cannot be right: without a launch, or with impossible times."""

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

_MAX_OVERLAP_NS = 1_000  # What rounding of stamps explains.
_MIN_EVENTS = 10  # Of a name, for its median to mean something.


@dataclass(frozen=True, kw_only=True)
class OrphansEvidence(Evidence):
    """Device events without a launch, after the first one that has one."""

    share: float
    streams: list[tuple[str, int]]  # The three with most of them, and how many.


@dataclass(frozen=True)
class Orphans(Rule[OrphansEvidence]):
    """Device events have no launch in the trace.

    ## When it speaks
    After the first device event with a launch, more than `share` of the device events have none. Events before it do
    not count: they were launched before the recording began, which is normal.

    ## What it could save
    Nothing. Such work is missing from operators, modules and steps, and idle time before it has no known cause.

    ## What to do
    Record `ProfilerActivity.CPU` as well, and use a current PyTorch. Old versions do not record the driver calls that
    launch Triton kernels.

    ## How to verify
    Every device event has a launch.
    """

    code, title, family = "Q5", "Work without a launch", Family.QUALITY
    section, confidence = "operator_kernels", "high"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})

    share: float = 0.05

    def look(self, rank: Rank) -> OrphansEvidence | None:
        events = rank.device_events
        has_launch = events["launch"].to_numpy() != UNLINKED
        is_later = (np.cumsum(has_launch) - has_launch) > 0
        orphans, num_later = events[is_later & ~has_launch], int(is_later.sum())
        if len(orphans) <= self.share * num_later:
            return None
        counts = orphans["stream"].astype(str).value_counts().head(3)
        streams = [(str(stream), int(count)) for stream, count in counts.items()]
        return OrphansEvidence(share=len(orphans) / num_later, streams=streams)

    def tell(self, job: JobEvidence[OrphansEvidence]) -> Finding:
        worst = job.worst
        streams = joined_words([f"{count:,} on stream {stream}" for stream, count in worst.streams])
        return self.finding(
            job,
            f"{job.percent(worst.share)} of the GPU's work has no launch in the trace",
            evidence=f"Events without a launch: {streams}. They belong to no operator, and idle time before them has "
            "no known cause.",
            severity=Severity.LOW,
        )


@dataclass(frozen=True, kw_only=True)
class ImpossibleTimesEvidence(Evidence):
    """Events that overlap others of their stream, and one that is far too long."""

    num_overlaps: int
    overlap_ns: int
    outlier: tuple[str, int, float] | None  # Its name, its length, and the median of its name (ns).
    device_ns: int  # Sum of all device events.


@dataclass(frozen=True)
class ImpossibleTimes(Rule[ImpossibleTimesEvidence]):
    """Device events have impossible times.

    ## When it speaks
    Events of one stream overlap by more than 1 µs, although a stream runs one event after the other. The overlaps take
    at least `share` of the device's time. Graphs do not count, nor do launches that may begin early
    (`cudaLaunchKernelExC`). Or one event takes more than half of the recording and more than 100 times the median of
    its name, of which there are more than ten events.

    ## What it could save
    Nothing. Sums of kernels are too large, and idle time is too small.

    ## What to do
    Record again with a current driver and a current PyTorch, or leave the step out.

    ## How to verify
    The kernels of a stream take no longer in sum than the recording.
    """

    code, title, family = "Q6", "Device events with impossible times", Family.QUALITY
    section = "kernel_breakdown"
    requires = frozenset({Capability.GPU})

    share: float = 0.01

    def look(self, rank: Rank) -> ImpossibleTimesEvidence | None:
        num_overlaps, overlap_ns = _overlaps(rank)
        outlier = _outlier(rank)
        device_ns = int(rank.device_events["dur"].sum())
        if overlap_ns < self.share * device_ns and not outlier:
            return None
        return ImpossibleTimesEvidence(
            num_overlaps=num_overlaps, overlap_ns=overlap_ns, outlier=outlier, device_ns=device_ns
        )

    def tell(self, job: JobEvidence[ImpossibleTimesEvidence]) -> Finding:
        worst, clauses = job.worst, list[str]()
        if worst.overlap_ns >= self.share * worst.device_ns:
            clauses.append(
                f"{counted(worst.num_overlaps, 'event overlaps another', 'events overlap others')} of the same stream, "
                f"by {job.time(worst.overlap_ns)} in all"
            )
        if worst.outlier:
            name, length, median = worst.outlier
            clauses.append(f"one `{name}` takes {job.time(length)}, while others take {job.time(median)}")
        words = " and ".join(clauses)
        return self.finding(
            job,
            "Some device events have impossible times",
            evidence=f"{words[:1].upper()}{words[1:]}. Sums of kernels are too large, and idle time is too small.",
            severity=Severity.LOW,
        )


def _overlaps(rank: Rank) -> tuple[int, int]:
    """How many device events begin before the previous one of their stream has ended, and by how much in all, ns."""
    events, calls = rank.device_events, rank.launches
    events = events.sort_values(["capture", "lane"], kind="stable")
    ts, launch = events["ts"].to_numpy(), events["launch"].to_numpy()
    reach = events.groupby(["capture", "lane"])["end"].cummax().to_numpy()
    lane = events["capture"].to_numpy(np.int64) * (int(events["lane"].max()) + 1) + events["lane"].to_numpy()
    overlaps = np.zeros(len(events), np.int64)
    overlaps[1:] = np.where(lane[1:] == lane[:-1], reach[:-1] - ts[1:], 0)
    may_overlap = calls["graph"].to_numpy() | calls["name"].astype(str).str.contains("ExC", regex=False).to_numpy()
    overlaps[(launch != UNLINKED) & np.append(may_overlap, False)[launch]] = 0
    overlaps = overlaps[overlaps > _MAX_OVERLAP_NS]
    return len(overlaps), int(overlaps.sum())


def _outlier(rank: Rank) -> tuple[str, int, float] | None:
    """Name and length of an event of half the recording and 100 times its name's median, and that median; else None."""
    events = rank.device_events
    longest = int(events["dur"].argmax())
    name, length = str(events["name"].iloc[longest]), int(events["dur"].iloc[longest])
    lengths = events["dur"].to_numpy()[(events["name"] == name).to_numpy()]
    median = float(np.median(lengths))
    if 2 * length > rank.whole and len(lengths) > _MIN_EVENTS and length > 100 * median:
        return name, length, median
    return None
