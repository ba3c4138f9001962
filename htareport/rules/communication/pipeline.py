"""Rules about what one rank sends to another: the bubble of a pipeline, and who waits for whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from htareport.algorithms.frame_packing import Packed
from htareport.job.direct_waits import direct_waits
from htareport.job.replay import JobChange
from htareport.rank.capability import Capability
from htareport.rank.communication import awaited, sets_of
from htareport.rank.direct_calls import direct_calls, other_direct_kernels
from htareport.rank.host_rows import per
from htareport.rank.interval_sets import common, total
from htareport.rank.pipeline_stage import stage_work
from htareport.rank.rank import Rank
from htareport.rank.steps import OUTSIDE
from htareport.report.findings import Finding, Severity, Span
from htareport.report.number_lists import listed as numbers
from htareport.report.units import counted
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence

_REQUIRES = frozenset({Capability.GPU, Capability.COMM})
_MOST_SPANS, _MOST_TOLD = 5, 3


@dataclass(frozen=True)
class PipelineBubble(Rule[Evidence]):
    """Stages of a pipeline wait for each other: for one that computes longer, or because of the schedule.

    ## When it speaks
    Ranks are stages of a pipeline, and wait for other stages for at least `least` of the step, bytes that move apart.
    A stage whose compute takes at least 10 % longer than that of the others is named. What p stages and m micro-batches
    cost by themselves is (p − 1)/(m + p − 1); p is the size of the pipeline's group, m how much comes per step from the
    stage that sends most. What sends must be recorded with the rank (`Src Rank`, PyTorch 2.5 and later), in a group of
    the whole pipeline; calls that go together in one kernel are not told apart, and not counted.

    ## What it could save
    What the step gains if the stages that compute longest take as long as the others, by a replay of the job. Nothing
    where stages are even: then the waiting is the schedule's.

    ## What to do
    - **slow device**: The device of rank {ranks|N} is slow: it takes longer for the same kernels. Compare clocks, power
      limit, temperature and ECC errors (`nvidia-smi -q -d PERFORMANCE,CLOCK`, `amd-smi metric`), and try another one.
    - **uneven**: Move layers from rank {ranks|N} to other stages. Count the embedding and the loss.
    - **schedule**: Use more micro-batches, or several chunks per stage (an interleaved schedule).

    ## How to verify
    Compute by rank differs less, and exposed communication goes down.
    """

    code, title, family, section = "N16", "Pipeline stages wait", Family.COMMUNICATION, "temporal_breakdown"
    requires = frozenset({Capability.GPU, Capability.COMM, Capability.STEPS})

    least: float = 0.05

    def look(self, rank: Rank) -> Evidence | None:
        return Evidence() if stage_work(rank) else None

    def change(self, job: JobEvidence[Evidence]) -> JobChange | None:
        pipeline = job.facts.pipeline
        long = _long_stages(job)
        if pipeline is None or not long:
            return None
        return JobChange(device_scale={rank: 1 / ratio for rank, ratio in long.items()})

    def tell(self, job: JobEvidence[Evidence]) -> Finding | None:
        pipeline = job.facts.pipeline
        if pipeline is None or pipeline.bubble_share < self.least:
            return None
        stage = next(iter(pipeline.stages.values()))
        long, bubble = _long_stages(job), job.percent(pipeline.bubble_share)
        schedule = job.percent(stage.schedule_share)
        evidence = (
            f"Stages wait for each other in {bubble} of the step on average, bytes that move apart. "
            f"{stage.stages} stages and {stage.micro_batches:.3g} micro-batches per step cost {schedule} by themselves."
        )
        if not long:
            return self.finding(
                job,
                f"The pipeline's schedule leaves its stages idle for {bubble} of the step",
                severity=Severity.LOW,
                evidence=evidence,
                cases=("schedule",),
                snippet=_INTERLEAVED,
                spans=(),
            )
        worst = max(long, key=lambda rank: long[rank])
        times, others = pipeline.stages[worst].compute_ns, pipeline.stages[worst].compute_ns / long[worst]
        slow = [rank for rank in long if rank in job.facts.slow_devices]
        because = "its device is slow" if worst in slow else "it computes more"
        return self.finding(
            job,
            f"The pipeline waits for rank {worst}, whose stage takes {long[worst]:.2f} times as long as the others",
            evidence=f"Rank {worst} computes for {job.time(times)} per step, the other stages for {job.time(others)} "
            f"on average: {because}. {evidence}",
            values={"ranks": numbers(sorted(long))},
            cases=("slow device",) if worst in slow else ("uneven",),
            assumption="That stage takes as long as the others do.",
            snippet="" if worst in slow else _INTERLEAVED,
            ranks=tuple(sorted(long)),
            spans=(),
        )


_INTERLEAVED = "schedule = ScheduleInterleaved1F1B(stages, n_microbatches=4 * num_stages)"


def _long_stages(job: JobEvidence[Evidence]) -> dict[int, float]:
    """Stages that compute longer than the others, with how many times as long; slow devices among them first."""
    pipeline = job.facts.pipeline
    if pipeline is None:
        return {}
    long, slow = pipeline.long_stages(), job.facts.slow_devices
    named = {rank: slow[rank].ratio for rank in long if rank in slow}
    return named or long


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
