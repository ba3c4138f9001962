"""Rules about idle time as a whole: the host launches late, stops between steps, or is not to blame."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from htareport.algorithms import intervals
from htareport.rank.capability import Capability
from htareport.rank.host_rows import IDLE, ON_HOST, frame_in, in_front, late, per
from htareport.rank.idle import Cause
from htareport.rank.interval_sets import Lane, Sets, common, minus, total
from htareport.rank.rank import Rank
from htareport.report.findings import Finding, Severity
from htareport.rules.engine.base import Family, Rule, least_of, severity_of
from htareport.rules.engine.evidence import Evidence, JobEvidence
from htareport.rules.engine.wording import listed

_MIN_EDGES_SHARE = 0.1  # Of the idle time: from where idle time at the edges of the recording is named.


@dataclass(frozen=True, kw_only=True)
class HostBoundEvidence(Evidence):
    """Idle time in which the host has not launched what comes next."""

    idle_share: float  # Of the windows.
    late_share: float  # Of the idle time.
    names: list[tuple[str, int]]  # Host rows that fill it, with ns in all steps.
    edges_share: float  # Of the idle time: before the first event and after the last.
    unrecorded_ns: int  # In which no host row is recorded, in all steps.
    is_before_graphs: bool  # Whether most of it is before launches of graphs.
    windows: int
    frame: str  # The function of the user in the middle of the longest gap.


@dataclass(frozen=True)
class HostBound(Rule[HostBoundEvidence]):
    """The device waits for the host, which does not launch fast enough.

    ## When it speaks
    The device is idle for at least `idle` of the step, and the host has not launched what comes next in at least `late`
    of that time, or in as much of the step by itself. It stays silent where other findings explain nearly all of it.

    ## What it could save
    The idle time in which the host is late; half of it is the lower estimate.

    ## What to do
    - **graphs**: Let the host launch more at once: graphs that hold more of the step, or several steps, and larger
      batches.
    - **training**: Let the host launch more at once: `torch.compile`, CUDA graphs, fused optimizers, larger batches.
    - **inference**: Let the host launch more at once: `torch.compile`, CUDA graphs, larger batches.
    - **not recorded**: Where nothing is recorded it runs Python: take it out of the loop, or into another process.

    ## How to verify
    `idle_pct` and `host_wait_pct` go down in `htareport diff`.
    """

    code, title, family, section = "H1", "The host launches too late", Family.HOST, IDLE
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})
    about_idle = is_general = True

    idle: float = 0.15
    late: float = 0.5

    def look(self, rank: Rank) -> HostBoundEvidence | None:
        claim = late(rank)
        idle, share = rank.share(rank.idle), rank.share(claim)
        if idle < self.idle or share < min(self.late * idle, self.idle):
            return None
        spans = rank.spans(claim)
        return HostBoundEvidence(
            claim=claim,
            spans=spans,
            idle_share=idle,
            late_share=share / idle,
            names=rank.idle_names(*ON_HOST),
            edges_share=1 - total(rank.idle_by(*Cause)) / max(total(rank.idle), 1),
            unrecorded_ns=total(rank.idle_by(Cause.NOTHING)),
            is_before_graphs=2 * total(common(claim, in_front(rank, rank.launches["graph"].to_numpy()))) > total(claim),
            windows=per(rank),
            frame=frame_in(rank, spans),
        )

    def tell(self, job: JobEvidence[HostBoundEvidence]) -> Finding:
        worst = job.worst
        host_work = [f"runs {listed(worst.names, job, worst.windows)}"] if worst.names else []
        cases = ["graphs" if worst.is_before_graphs else job.purpose]
        if worst.unrecorded_ns > 0.1 * job.max_saving_ns * worst.windows:
            host_work.append(f"does something that is not recorded for {job.time(worst.unrecorded_ns / worst.windows)}")
            cases.append("not recorded")
        frame = f" The longest gap is in `{worst.frame}`." if worst.frame else ""
        edges = (
            f", and {job.percent(worst.edges_share)} of it lies before the first or after the last recorded GPU event"
        )
        edges = edges if worst.edges_share > _MIN_EDGES_SHARE else ""
        return self.finding(
            job,
            f"The GPU waits for the host in {job.percent(job.saving_share)} of {job.window}",
            evidence=f"It is idle for {job.percent(worst.idle_share)} of {job.window}; in "
            f"{job.percent(worst.late_share)} of that time the next launch comes late{edges}. Meanwhile the host "
            f"{' and '.join(host_work)} {job.per_step}.{frame}",
            cases=cases,
            assumption="All of the host's delay goes away; half of it is the lower estimate.",
            snippet="" if worst.is_before_graphs else 'model = torch.compile(model, mode="reduce-overhead")',
        )


@dataclass(frozen=True, kw_only=True)
class BetweenStepsEvidence(Evidence):
    """Gaps between the work of one step and of the next."""

    num_borders: int
    frame: str  # The function of the user in the middle of the longest gap.


@dataclass(frozen=True)
class BetweenSteps(Rule[BetweenStepsEvidence]):
    """The device is idle from the last work of a step to the first of the next.

    ## When it speaks
    From the end of the last device event launched in a step to the start of the first launched in the next one the
    device is idle, for at least `least` of the step in the median, not counting what the data loader fills.

    ## What it could save
    Those gaps but for the data loader, and for the first `free` µs of each, which a step may well take to begin.

    ## What to do
    - **training**: Do logging, metrics and checkpoints every n steps, or in a thread. Keep values on the device until
      they are printed.
    - **inference**: Prepare the next input, and use the last output, in a thread while the device works.

    ## How to verify
    The gaps at the borders of steps are gone from the timeline.
    """

    code, title, family, section = "H21", "The device is idle between steps", Family.HOST, IDLE
    requires = frozenset({Capability.GPU, Capability.LAUNCHES, Capability.STEPS})
    about_idle = True

    least: float = 0.03
    free: float = 1000.0

    def look(self, rank: Rank) -> BetweenStepsEvidence | None:
        borders = {lane: _borders(rank, lane, round(1000 * self.free)) for lane in rank.lanes}
        claim = minus(common(borders, late(rank)), rank.idle_by(Cause.LOADING))
        waits = [intervals.covered(gaps, borders[lane][:, 0], borders[lane][:, 1]) for lane, gaps in claim.items()]
        step = rank.whole / per(rank)
        if not waits or np.median(np.concatenate(waits)) < self.least * step or rank.share(claim) < self.least:
            return None
        spans, num_borders = rank.spans(claim, name="between steps"), sum(map(len, borders.values()))
        return BetweenStepsEvidence(claim=claim, spans=spans, num_borders=num_borders, frame=frame_in(rank, spans))

    def tell(self, job: JobEvidence[BetweenStepsEvidence]) -> Finding:
        worst = job.worst
        frame = f", in `{worst.frame}` at the longest" if worst.frame else ""
        return self.finding(
            job,
            f"The GPU is idle for {job.max_saving} per step between steps",
            evidence=f"At {worst.num_borders} borders between steps the device has run all of the last step's work, "
            f"and the host has not yet launched any of the next one's{frame}. The data loader is not counted.",
            cases=(job.purpose,),
            assumption="A step begins 1 ms after the last one's end.",
            snippet="" if job.infers else "if step % 50 == 0:\n    log(loss.item())  # Not in every step.",
        )


def _borders(rank: Rank, lane: Lane, free: int) -> intervals.Intervals:
    """From the end of a step's last device event to the start of the next step's first, but for so many ns."""
    steps = rank.steps
    numbers = steps["number"].to_numpy()[(steps["capture"] == lane[1]).to_numpy()]
    by_step = rank.events_by_lane[lane].groupby("step")
    end, start = (by_step[name].agg(how).reindex(numbers) for name, how in (("end", "max"), ("ts", "min")))
    has_both = (end.notna().to_numpy()[:-1] & start.notna().to_numpy()[1:]) & (np.diff(numbers) == 1)
    begin, stop = (stamps[has_both].astype(np.int64) for stamps in (end.to_numpy()[:-1], start.to_numpy()[1:]))
    return intervals.union(begin + free, stop)


@dataclass(frozen=True, kw_only=True)
class WorkQueuedEvidence(Evidence):
    """Idle time in front of work that was launched in time."""

    late_events: list[tuple[str, int]]  # Names of that work, with ns of idle time in all steps.
    windows: int


@dataclass(frozen=True)
class WorkQueued(Rule[WorkQueuedEvidence]):
    """The device is idle although its next work was launched long ago.

    ## When it speaks
    Idle time of more than 30 µs in front of work that was launched before the device ran empty takes at least `least`
    of the step: the host is not to blame.

    ## What it could save
    Those gaps, if what they wait for can go; nothing otherwise, which is the lower estimate.

    ## What to do
    Find what that work waits for: an event of another stream, a copy, another rank, another process on the device.
    Record waits between streams. Where there are none, the trace may lack work.

    ## How to verify
    *Wait on the device* is gone from *Idle time by what the host did*.
    """

    code, title, family, section = "H26", "The device is idle although work is queued", Family.HOST, IDLE
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})
    about_idle, low_share, confidence = True, 0.0, "low"

    least: float = 0.05

    def look(self, rank: Rank) -> WorkQueuedEvidence | None:
        claim = rank.idle_by(Cause.WAITING)
        if rank.share(claim) < self.least:
            return None
        events = _events_after(rank, claim)
        return WorkQueuedEvidence(claim=claim, spans=rank.spans(claim), late_events=events, windows=per(rank))

    def tell(self, job: JobEvidence[WorkQueuedEvidence]) -> Finding:
        worst = job.worst
        return self.finding(
            job,
            f"The GPU is idle for {job.max_saving} {job.per_step} although its work is queued",
            severity=least_of(severity_of(job.saving_share), Severity.MEDIUM),
            evidence="The work behind these gaps was launched before the device ran empty, so the host does not hold "
            f"it up: {listed(worst.late_events, job, worst.windows)} {job.per_step}.",
            assumption="What it waits for can go; the lower estimate is that it cannot.",
            snippet="experimental_config=torch.profiler._ExperimentalConfig(enable_cuda_sync_events=True)",
        )


def _events_after(rank: Rank, gaps: Sets) -> list[tuple[str, int]]:
    """Names of the device events after gaps with the time of these gaps: the three with most."""
    idle_ns = Counter[str]()
    for lane, lane_gaps in gaps.items():
        events = rank.events_by_lane[lane]
        row = np.searchsorted(events["ts"].to_numpy(), lane_gaps[:, 1])
        has_event = row < len(events)
        names = events["name"].astype(object).to_numpy()[row[has_event]].tolist()
        for name, length in zip(names, (lane_gaps[:, 1] - lane_gaps[:, 0])[has_event].tolist(), strict=True):
            idle_ns[name] += length
    return sorted(idle_ns.items(), key=lambda item: (-item[1], item[0]))[:3]
