"""Rules about idle time as a whole: the host launches late, stops between steps, or is not to blame."""

from __future__ import annotations

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

_EDGES = 0.1  # Of the idle time: what is worth saying of the part whose cause is not known.


@dataclass(frozen=True, kw_only=True)
class HostBoundEvidence(Evidence):
    """Idle time in which the host has not launched what comes next."""

    idle: float  # Share of the windows.
    late: float  # Share of the idle time.
    names: list[tuple[str, int]]  # Host rows that fill it, with ns in all steps.
    edges: float  # Share of the idle time before the first event and after the last.
    nothing: int  # ns in which no host row is recorded.
    graphs: bool  # Whether most of it is before launches of graphs.
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
            idle=idle,
            late=share / idle,
            names=rank.idle_names(*ON_HOST),
            edges=1 - total(rank.idle_by(*Cause)) / max(total(rank.idle), 1),
            nothing=total(rank.idle_by(Cause.NOTHING)),
            graphs=2 * total(common(claim, in_front(rank, rank.launches["graph"].to_numpy()))) > total(claim),
            windows=per(rank),
            frame=frame_in(rank, spans),
        )

    def tell(self, job: JobEvidence[HostBoundEvidence]) -> Finding:
        worst = job.worst
        runs = [f"runs {listed(worst.names, job, worst.windows)}"] if worst.names else []
        python = list[str]()
        if worst.nothing > 0.1 * job.max_saving_ns * worst.windows:
            runs.append(f"does something that is not recorded for {job.time(worst.nothing / worst.windows)}")
            python.append("not recorded")
        more = "graphs" if worst.graphs else job.purpose
        where = f" The longest gap is in `{worst.frame}`." if worst.frame else ""
        edges = f", and {job.percent(worst.edges)} of it lies before the first or behind the last recorded GPU event"
        edges = edges if worst.edges > _EDGES else ""
        return self.finding(
            job,
            f"The GPU waits for the host in {job.percent(job.saving_share)} of {job.window}",
            evidence=f"It is idle for {job.percent(worst.idle)} of {job.window}; in {job.percent(worst.late)} of that "
            f"time the next launch comes late{edges}. Meanwhile the host {' and '.join(runs)} {job.per_step}.{where}",
            cases=(more, *python),
            assumption="All of the host's delay goes away; half of it is the lower estimate.",
            snippet="" if worst.graphs else 'model = torch.compile(model, mode="reduce-overhead")',
        )


@dataclass(frozen=True, kw_only=True)
class BetweenStepsEvidence(Evidence):
    """What was seen on one rank: the device is idle between steps."""

    borders: int
    frame: str


@dataclass(frozen=True)
class BetweenSteps(Rule[BetweenStepsEvidence]):
    """The device is idle from the last work of a step to the first of the next.

    ## When it speaks
    From the end of the last device event launched in a step to the start of the first launched in the next one the
    device is idle, for at least `least` of the step in the median, not counting what the data loader fills.

    ## What it could save
    Those gaps but for the data loader, and for the first `free` µs of each, which a step may well take to begin.

    ## What to do
    - **training**: Do logging, metrics, checkpoints and the like every n steps, or in a thread; keep values on the
      device until they are printed.
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
        number = sum(map(len, borders.values()))
        each = [intervals.covered(mine, borders[lane][:, 0], borders[lane][:, 1]) for lane, mine in claim.items()]
        step = rank.whole / per(rank)
        if not each or np.median(np.concatenate(each)) < self.least * step or rank.share(claim) < self.least:
            return None
        spans = rank.spans(claim, name="between steps")
        return BetweenStepsEvidence(claim=claim, spans=spans, borders=number, frame=frame_in(rank, spans))

    def tell(self, job: JobEvidence[BetweenStepsEvidence]) -> Finding:
        worst = job.worst
        where = f", in `{worst.frame}` at the longest" if worst.frame else ""
        return self.finding(
            job,
            f"The GPU is idle for {job.max_saving} per step between steps",
            evidence=f"At {worst.borders} borders between steps the device has run all of the last step's work, and "
            f"the "
            f"host has not yet launched any of the next one's{where}. The data loader is not counted.",
            cases=(job.purpose,),
            assumption="A step begins 1 ms behind the last one's end.",
            snippet="" if job.infers else "if step % 50 == 0:\n    log(loss.item())  # Not in every step.",
        )


def _borders(rank: Rank, lane: Lane, free: int) -> intervals.Intervals:
    """From the end of a step's last device event to the start of the next step's first, but for so many ns."""
    steps = rank.steps
    numbers = steps["number"].to_numpy()[(steps["capture"] == lane[1]).to_numpy()]
    by_step = rank.events_by_lane[lane].groupby("step")
    end, start = (by_step[name].agg(how).reindex(numbers) for name, how in (("end", "max"), ("ts", "min")))
    known = (end.notna().to_numpy()[:-1] & start.notna().to_numpy()[1:]) & (np.diff(numbers) == 1)
    begin, stop = end.to_numpy()[:-1][known].astype(np.int64) + free, start.to_numpy()[1:][known].astype(np.int64)
    return intervals.union(begin, stop)


@dataclass(frozen=True, kw_only=True)
class WorkQueuedEvidence(Evidence):
    """What was seen on one rank: the device is idle although work is queued."""

    busy_names: list[tuple[str, int]]
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
    Record waits between streams; where there are none, the trace may lack work.

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
        return WorkQueuedEvidence(
            claim=claim, spans=rank.spans(claim), busy_names=_behind(rank, claim), windows=per(rank)
        )

    def tell(self, job: JobEvidence[WorkQueuedEvidence]) -> Finding:
        worst = job.worst
        return self.finding(
            job,
            f"The GPU is idle for {job.max_saving} {job.per_step} although its work is queued",
            severity=least_of(severity_of(job.saving_share), Severity.MEDIUM),
            evidence="The work behind these gaps was launched before the device ran empty, so the host does not hold "
            f"it up: {listed(worst.busy_names, job, worst.windows)} {job.per_step}.",
            assumption="What it waits for can go; the lower estimate is that it cannot.",
            snippet="experimental_config=torch.profiler._ExperimentalConfig(enable_cuda_sync_events=True)",
        )


def _behind(rank: Rank, gaps: Sets, most: int = 3) -> list[tuple[str, int]]:
    """Names of the device events behind gaps, those of the longest gaps first, with the time of the gaps."""
    sums = dict[str, int]()
    for lane, mine in gaps.items():
        events = rank.events_by_lane[lane]
        place = np.searchsorted(events["ts"].to_numpy(), mine[:, 1])
        there = place < len(events)
        names = events["name"].astype(object).to_numpy()[place[there]].tolist()
        for name, length in zip(names, (mine[there, 1] - mine[there, 0]).tolist(), strict=True):
            sums[name] = sums.get(name, 0) + length
    return sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:most]
