"""Rules about what one rank sends to another: the bubble of a pipeline, and who waits for whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from htareport.algorithms import intervals
from htareport.algorithms.frame_packing import Packed
from htareport.algorithms.intervals import Intervals
from htareport.job.direct_waits import direct_waits
from htareport.rank.capability import Capability
from htareport.rank.communication import awaited, compute, first, moving, sets_of, steps_of
from htareport.rank.direct_calls import direct_calls, other_direct_kernels, pipeline_kernels
from htareport.rank.host_rows import per
from htareport.rank.interval_sets import Lane, Sets, common, total
from htareport.rank.rank import Rank
from htareport.rank.steps import OUTSIDE
from htareport.report.findings import Finding, Span
from htareport.report.units import counted
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence

_REQUIRES = frozenset({Capability.GPU, Capability.COMM})
_UNEVEN = 0.1  # Of the mean: stages whose compute differs by more are unbalanced.
_MOST_SPANS, _MOST_TOLD = 5, 3


@dataclass(frozen=True, kw_only=True)
class BubbleEvidence(Evidence):
    """How long a stage of a pipeline waits for others, as shares of the step, and what its schedule costs by itself."""

    bubble_share: float
    ideal_share: float
    stages: int
    micro_batches: float  # Per step.
    compute_ns: float  # Per step and device.


@dataclass(frozen=True)
class PipelineBubble(Rule[BubbleEvidence]):
    """Stages of a pipeline wait for each other longer than its schedule must.

    ## When it speaks
    Compute waits for what other stages send, without the bytes that move, for a share of the step that is more than
    `points` above what p stages and m micro-batches cost by themselves, (p − 1)/(m + p − 1). p is the size of the
    pipeline's group, m how much comes per step from the stage that sends most (with several chunks per stage, of all).
    What sends must be recorded with the rank (`Src Rank`, PyTorch 2.5 and later), in a group of the whole pipeline;
    calls that go together in one kernel are not told apart, and not counted.

    ## What it could save
    In each step those waits, but for what the schedule costs by itself.

    ## What to do
    {uneven|Move layers from the stages that compute longest to the others. }Compare the compute of all stages, with
    embedding and loss; use more micro-batches, or several chunks per stage (an interleaved schedule).

    ## How to verify
    Compute by rank differs less; exposed communication goes down.
    """

    code, title, family, section = "N16", "Pipeline stages wait", Family.COMMUNICATION, "temporal_breakdown"
    requires = frozenset({Capability.GPU, Capability.COMM, Capability.STEPS})

    points: float = 0.05

    def look(self, rank: Rank) -> BubbleEvidence | None:
        rows = pipeline_kernels(rank)
        if not len(rows):
            return None
        received = rows[~rows["sends"].to_numpy(dtype=bool) & (rows["step"] != OUTSIDE).to_numpy()]
        if not len(received):
            return None
        stages, batches = int(received["group_size"].max()), float(received["peer"].value_counts().max()) / per(rank)
        ideal = (stages - 1) / (batches + stages - 1)
        waits = common(awaited(rank), sets_of(rank, rows.assign(end=rows["end"] - moving(rows))))
        bubble, claim = rank.share(waits), Sets()
        if bubble > ideal + self.points:
            claim = {lane: _beyond(rank, lane, mine, ideal) for lane, mine in waits.items()}
        return BubbleEvidence(
            claim=claim,
            spans=rank.spans(claim, name="wait for another stage"),
            bubble_share=bubble,
            ideal_share=ideal,
            stages=stages,
            micro_batches=batches,
            compute_ns=total(compute(rank)) / per(rank),
        )

    def tell(self, job: JobEvidence[BubbleEvidence]) -> Finding | None:
        if not job.max_saving_ns:
            return None
        worst = job.worst
        times = {rank: evidence.compute_ns for rank, evidence in job.by_rank.items()}
        least, most = min(times, key=times.__getitem__), max(times, key=times.__getitem__)
        uneven = times[most] - times[least] > _UNEVEN * sum(times.values()) / len(times)
        ranks = tuple(sorted(rank for rank, saving in job.saving_by_rank.items() if saving))
        stages = f"rank {most} computes {job.time(times[most])} per step, rank {least} {job.time(times[least])}"
        return self.finding(
            job,
            f"Pipeline stages wait for each other in {job.percent(worst.bubble_share)} of the step, where the schedule "
            f"costs {job.percent(worst.ideal_share)}",
            evidence=f"So it is on rank {job.worst_rank}: {worst.micro_batches:.3g} micro-batches per step go through "
            f"{worst.stages} stages, which by itself costs (p − 1)/(m + p − 1){f'; {stages}' if uneven else ''}.",
            values={} if uneven else {"uneven": ""},
            assumption="What is waited for beyond the schedule's own bubble goes away when stages are even.",
            snippet="schedule = ScheduleInterleaved1F1B(stages, n_microbatches=4 * num_stages)",
            ranks=ranks if len(ranks) < job.num_ranks else (),
        )


def _beyond(rank: Rank, lane: Lane, waits: Intervals, ideal: float) -> Intervals:
    """Of waits, in each step what is left behind so much of the step: the earliest counts as the schedule's own."""
    parts = [intervals.EMPTY]
    for window in steps_of(rank, lane):
        mine = intervals.intersection(waits, window[None])
        parts.append(intervals.difference(mine, first(mine, round(ideal * int(window[1] - window[0])))))
    return np.concatenate(parts)


@dataclass(frozen=True, kw_only=True)
class DirectEvidence(Evidence):
    """What a rank sends to one rank and receives from one: the packed calls, and how long compute waits for them."""

    calls: Packed
    waits_ns: float  # Per step and device.


@dataclass(frozen=True)
class LateSends(Rule[DirectEvidence]):
    """A rank waits to receive what another sends late.

    ## When it speaks
    Calls that receive are paired with those that send by their ranks (`Src Rank` and `Dst Rank`, PyTorch 2.5 and
    later), group and order. On aligned clocks a rank waits for others to begin to send for at least `least` of the
    step, as far as compute waits for what is sent. Where the group is a whole pipeline, N16 speaks instead: there, some
    waiting is part of the schedule.

    ## What it could save
    On each rank those waits, but no more than compute waits there for what is sent between ranks.

    ## What to do
    Look at what rank {peer|that sends} does before that: more compute than others (unequal stages), or other sends
    first. Post receives early, and compute meanwhile.

    ## How to verify
    Compute waits less for what is sent.
    """

    code, title, family, section = "N17", "Ranks wait for what one sends", Family.COMMUNICATION, "comm_overlap"
    requires = _REQUIRES
    reattributes_from = "N1"

    least: float = 0.02

    def look(self, rank: Rank) -> DirectEvidence | None:
        rows = other_direct_kernels(rank)
        waits = total(common(awaited(rank), sets_of(rank, rows))) / per(rank) if len(rows) else 0.0
        return DirectEvidence(calls=direct_calls(rank), waits_ns=waits)

    def reattributed_ns(self, job: JobEvidence[DirectEvidence]) -> Mapping[int, float]:
        waits = _waits(job).groupby("rank")["wait"].sum()
        taken = {
            rank: min(float(waits.get(rank, 0)) / job.facts.collectives[rank].windows, each.waits_ns)
            for rank, each in job.by_rank.items()
        }
        return taken if max(taken.values()) >= self.least * job.step_ns else {}

    def tell(self, job: JobEvidence[DirectEvidence]) -> Finding | None:
        if not job.max_saving_ns:
            return None
        waits = _waits(job)
        every = {rank: calls.windows for rank, calls in job.facts.collectives.items()}
        pairs = waits.groupby(["rank", "peer"])["wait"].agg(["sum", "size"]).reset_index()
        pairs["sum"] = pairs["sum"] / pairs["rank"].map(every)
        pairs = pairs[pairs["sum"] > 0].sort_values("sum", ascending=False, kind="stable").head(_MOST_TOLD)
        worst, ranks = pairs.iloc[0], tuple(sorted(rank for rank, saving in job.saving_by_rank.items() if saving))
        return self.finding(
            job,
            f"Rank {int(worst['rank'])} waits for rank {int(worst['peer'])} to send: up to {job.max_saving} "
            f"{job.per_step}",
            evidence=f"On aligned clocks, {'; '.join(_words(row, job) for row in pairs.to_dict('records'))}.",
            values={"peer": str(int(worst["peer"]))},
            assumption="Who sends begins as soon as the other is ready. Of a pipeline, a part of the waiting is its "
            "schedule's own.",
            snippet="for work in dist.batch_isend_irecv(operations):\n    ...  # Compute meanwhile.\n    work.wait()",
            ranks=ranks if len(ranks) < job.num_ranks else (),
            spans=_spans(waits),
        )


def _waits(job: JobEvidence[DirectEvidence]) -> pd.DataFrame:
    packed = {rank: evidence.calls for rank, evidence in job.by_rank.items()}
    return job.facts.cached("direct waits", lambda: direct_waits(job.facts, packed))


def _words(row: Mapping[Any, Any], job: JobEvidence[DirectEvidence]) -> str:
    time, calls = job.time(row["sum"]), counted(row["size"], "call")
    return f"rank {row['rank']:.0f} waits {time} {job.per_step} for rank {row['peer']:.0f} to send ({calls})"


def _spans(waits: pd.DataFrame) -> tuple[Span, ...]:
    rows = waits.sort_values("wait", ascending=False, kind="stable").head(_MOST_SPANS).to_dict("records")
    return tuple(
        Span(
            int(row["rank"]), int(row["start"]), int(row["start"] + row["wait"]), f"wait for rank {row['peer']}",
            None if row["step"] == OUTSIDE else int(row["step"]),
        )
        for row in rows
        if row["wait"] > 0
    )  # fmt: skip
