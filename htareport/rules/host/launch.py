"""Rules about launching: many small kernels one by one, steps that a CUDA graph could replay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from htareport.algorithms import intervals
from htareport.rank.capability import Capability
from htareport.rank.host_rows import DISPATCH, graphed, in_front, per, times
from htareport.rank.interval_sets import Sets, common, joined, minus, union_of
from htareport.rank.rank import Rank
from htareport.rank.repeats import Repeats, repeats_of
from htareport.rank.replay.host_edits import MAX_LAUNCH_NS, edit_of_launches
from htareport.report.findings import Finding
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence

_SECTION = "launch_stats"
_MIN_GAP_NS = 1_000  # Per kernel: what is left of its gap.
_REPLAY_NS = 10_000  # Per step: what a replay takes of the host.
_GRAPHED = 'model = torch.compile(model, mode="reduce-overhead")  # Or torch.cuda.make_graphed_callables.'


@dataclass(frozen=True, kw_only=True)
class LaunchBoundEvidence(Evidence):
    """Small kernels that the device waits for, and whether a CUDA graph could replay the step."""

    num_small: int
    num_events: int
    is_replayable: bool
    graph: str  # A sentence.
    windows: int


@dataclass(frozen=True)
class LaunchBound(Rule[LaunchBoundEvidence]):
    """Many small kernels, each of which the device waits for.

    ## When it speaks
    Idle time in front of compute kernels of less than `short` µs, in which the host dispatches and launches, takes at
    least `least` of the step. Gaps of more than `longest` µs don't count: no dispatch takes that long, so they have
    another cause. The number of small kernels alone says nothing: half of a healthy step's are. What a CUDA graph
    replays already does not count.

    ## What it could save
    Those gaps, but for 1 µs per kernel. Where a CUDA graph could replay the step (H3), what that could save.

    ## What to do
    Launch them together: CUDA graphs (`torch.compile(mode="reduce-overhead")`), {optimizer|fused optimizers
    (`fused=True`), }larger batches.

    ## How to verify
    The step has fewer launches. Idle time of operators and launch calls goes down.
    """

    code, title, family, section = "H2", "Small kernels are launched one by one", Family.HOST, _SECTION
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})
    about_idle = True

    short: float = 10.0
    longest: float = 500.0
    least: float = 0.05

    def look(self, rank: Rank) -> LaunchBoundEvidence | None:
        claim, num_small = self.gaps(rank)
        if rank.share(claim) < self.least:
            return None
        repeats = repeats_of(rank)
        if is_replayable := repeats.is_proven(GraphCandidate().equal):
            claim = joined(claim, replayable(rank, repeats))
        return LaunchBoundEvidence(
            claim=claim,
            edit=edit_of_launches(rank, union_of(rank.windows.values())) if is_replayable else None,
            spans=rank.spans(claim),
            num_small=num_small,
            num_events=sum(map(len, rank.events_by_lane.values())),
            is_replayable=is_replayable,
            graph=_candidate(repeats),
            windows=per(rank),
        )

    def gaps(self, rank: Rank) -> tuple[Sets, int]:
        """What of gaps in front of short kernels the host could save, and how many such kernels there are."""
        dispatch, savable, num_small = rank.idle_by(*DISPATCH), Sets(), 0
        for lane in rank.lanes:
            events = rank.events_by_lane[lane]
            starts = events["ts"].to_numpy()
            is_short = ((events["kind"] == "compute") & (events["dur"] < 1000 * self.short)).to_numpy()
            is_short = is_short & ~graphed(rank, events["launch"].to_numpy())
            idle = rank.idle.get(lane, intervals.EMPTY)
            row = np.searchsorted(starts, idle[:, 1])
            last = np.minimum(row, len(starts) - 1)
            gaps = idle[(row < len(starts)) & (starts[last] == idle[:, 1]) & is_short[last]]
            length = gaps[:, 1] - gaps[:, 0]
            saving = np.where(length > 1000 * self.longest, 0, length - _MIN_GAP_NS)
            savable[lane] = np.column_stack((gaps[:, 0], gaps[:, 0] + saving))[saving > 0]
            num_small += int(is_short.sum())
        return common(savable, dispatch), num_small

    def tell(self, job: JobEvidence[LaunchBoundEvidence]) -> Finding:
        worst = job.worst
        launches = "that a CUDA graph could replay" if worst.is_replayable else f"of kernels under {self.short:g} µs"
        return self.finding(
            job,
            f"The GPU waits {job.max_saving} {job.per_step} for launches {launches}",
            evidence=f"{worst.num_small / worst.windows:,.0f} of {worst.num_events / worst.windows:,.0f} device events "
            f"{job.per_step} are kernels under {self.short:g} µs, and the device is idle before them while the host "
            f"dispatches. {worst.graph}".strip(),
            values={"optimizer": ""} if job.infers else None,
            assumption="One launch starts them all; 10 µs per step are kept."
            if worst.is_replayable
            else "One launch starts them all; each keeps 1 µs.",
            snippet=_GRAPHED,
            confidence="high" if worst.is_replayable else "medium",
        )


@dataclass(frozen=True, kw_only=True)
class GraphCandidateEvidence(Evidence):
    """How many steps launch the same work."""

    graph: str  # A sentence.


@dataclass(frozen=True)
class GraphCandidate(Rule[GraphCandidateEvidence]):
    """Steps launch the same work every time, so that one CUDA graph could replay it.

    ## When it speaks
    At least `equal` of the steps, three or more, launch the same kernels on the same streams in the same order, nothing
    between their first and last launch prevents CUDA graph capture (no synchronisation, no allocation from the
    driver), and the host is late there for at least `least` of the step. What graphs replay already, and the idle time
    before it, does not count. Where H2 speaks, it is said there.

    ## What it could save
    The idle time from the first launch to the last work of a step in which the host dispatches and launches, in gaps
    of at most 500 µs, except 10 µs per step.

    ## What to do
    Capture the step, or the model, in a CUDA graph. Keep shapes the same, and copy inputs into fixed buffers.

    ## How to verify
    The step has a few graph launches instead of one launch per kernel.
    """

    code, title, family, section = "H3", "A CUDA graph could replay the step", Family.HOST, _SECTION
    requires = frozenset({Capability.GPU, Capability.LAUNCHES, Capability.STEPS})
    about_idle, confidence = True, "high"

    equal: float = 0.9
    least: float = 0.05

    def look(self, rank: Rank) -> GraphCandidateEvidence | None:
        repeats, bound = repeats_of(rank), LaunchBound()
        if not repeats.is_proven(self.equal) or rank.share(bound.gaps(rank)[0]) >= bound.least:
            return None
        claim = replayable(rank, repeats)
        if rank.share(claim) < self.least:
            return None
        edit = edit_of_launches(rank, repeats.region)
        return GraphCandidateEvidence(claim=claim, edit=edit, spans=rank.spans(claim), graph=_candidate(repeats))

    def tell(self, job: JobEvidence[GraphCandidateEvidence]) -> Finding:
        return self.finding(
            job,
            f"The GPU waits {job.max_saving} {job.per_step} for launches that a CUDA graph could replay",
            evidence=job.worst.graph,
            assumption="One replay takes 10 µs of the host.",
            snippet=_GRAPHED,
        )


def replayable(rank: Rank, repeats: Repeats) -> Sets:
    """Idle time in which the host dispatches what a graph would replay, without the first 10 µs of each step.

    Before what a graph replays already, the device waits for one launch, which another graph would not spare.
    """
    region = repeats.region + np.array([_REPLAY_NS, 0])
    region = region[region[:, 1] > region[:, 0]]
    short = {lane: idle[idle[:, 1] - idle[:, 0] <= MAX_LAUNCH_NS] for lane, idle in rank.idle.items()}
    dispatch = minus(common(rank.idle_by(*DISPATCH), short), in_front(rank, rank.launches["graph"].to_numpy()))
    return common(dispatch, dict.fromkeys(rank.lanes, region))


def _candidate(repeats: Repeats) -> str:
    """Whether a CUDA graph could replay the step, as far as the trace shows."""
    if not repeats.steps:
        return ""
    blockers = f" Prevents CUDA graph capture: {times(repeats.blockers[:3], repeats.steps)} per step."
    blockers = blockers if repeats.blockers else ""
    if repeats.steps == 1:
        return f"A CUDA graph could replay the step if steps repeat, which one step cannot show.{blockers}"
    if repeats.equal < GraphCandidate().equal * repeats.steps:
        return f"Steps differ: {repeats.equal} of {repeats.steps} launch the same.{blockers}"
    return (
        f"{repeats.equal} of {repeats.steps} steps launch the same {repeats.events:,.0f} kernels and copies in the "
        f"same order: a CUDA graph could replay them.{blockers}"
    )
