"""Rules about ranks that wait for each other although none of them is always the late one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from htareport.job.arrival_skew import ArrivalSkew
from htareport.job.facts import JobFacts
from htareport.job.replay import JobChange
from htareport.rank.capability import Capability
from htareport.rank.rank import Rank
from htareport.rank.steps import OUTSIDE
from htareport.report.findings import Finding, Span
from htareport.report.units import counted
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence

_REQUIRES = frozenset({Capability.GPU, Capability.COMM})
_MOST_SPANS, _MOST_TOLD = 5, 3
_KIND = ["name", "process_group"]  # Of a row of arrivals.


@dataclass(frozen=True)
class SkewDominates(Rule[Evidence]):
    """Collectives take long because ranks wait for each other in them, not because of the network.

    ## When it speaks
    After clocks are aligned, at least `waiting` of the time of a kind of collective lies before the last rank's start,
    and that is at least `least` of the step. What a straggler causes (N4), or uneven compute (N6), does not count.

    ## What it could save
    On each rank its waits, but in each collective no more than the mean wait of those who wait, and no more than the
    communication that compute waits for.

    ## What to do
    Let ranks arrive together: batches of equal size (sequence lengths, experts), and nothing that only one rank does in
    between.

    - **training**: Log, evaluate and save checkpoints on all ranks or on none; or synchronise less often, with
      `model.no_sync()`.
    - **inference**: A faster network does not help.

    ## How to verify
    *Waiting* in the section *Collectives* goes down.
    """

    code, title, family, section = "N3", "Ranks wait for each other", Family.COMMUNICATION, "collectives"
    requires = _REQUIRES
    reattributes_from, is_general = "N1", True

    waiting: float = 0.5
    least: float = 0.02

    def look(self, rank: Rank) -> Evidence | None:
        del rank  # What is said of it stands in the facts of the job.
        return Evidence()

    def reattributed_ns(self, job: JobEvidence[Evidence]) -> Mapping[int, float]:
        skew = job.facts.arrival_skew
        kinds = waiting_kinds(skew.arrivals, self.waiting)
        share = float(kinds["rest"].sum() / skew.arrivals["rest"].sum()) if len(kinds) else 0.0
        uneven = uneven_compute(job)
        taken = {rank: share * max(wait - uneven.get(rank, 0.0), 0.0) for rank, wait in skew.waiting_ns.items()}
        return taken if max(taken.values()) >= self.least * job.step_ns else {}

    def change(self, job: JobEvidence[Evidence]) -> JobChange:
        del job
        return JobChange(is_balanced=True)

    def tell(self, job: JobEvidence[Evidence]) -> Finding | None:
        if not job.max_saving_ns or job.facts.pipeline:  # There, waiting is part of the schedule.
            return None
        skew = job.facts.arrival_skew
        kinds = waiting_kinds(skew.arrivals, self.waiting)
        longest = _longest(skew)
        where = "; ".join(_words(row, job) for row in longest[:_MOST_TOLD])
        several = skew.arrivals["collective"].nunique() > 1
        return self.finding(
            job,
            f"Ranks wait for each other in collectives, {job.max_saving} {job.per_step}: it is not the network",
            evidence=f"Of the time of {_kinds_words(kinds)} {job.percent(_share(kinds))} lies before the last rank's "
            f"start, on aligned clocks. The longest waits: {where}."
            + ("" if several else " One collective may be chance."),
            cases=(job.purpose,),
            assumption="All ranks arrive together; each wait counts with no more than the mean of those who wait.",
            snippet=""
            if job.infers
            else "with model.no_sync():  # DDP: reduce every n micro-batches\n    loss.backward()",
            spans=tuple(_span(row, job) for row in longest),
        )


def waiting_kinds(every: pd.DataFrame, least: float) -> pd.DataFrame:
    """Kinds of collectives in whose time waits have a share of at least `least`, the most waited for first."""
    groups = every.groupby(_KIND, sort=True)[["rest", "transfer"]].sum()
    chosen = groups[groups["rest"] >= least * (groups["rest"] + groups["transfer"])]
    return chosen[chosen["rest"] > 0].sort_values("rest", ascending=False, kind="stable")


def _share(kinds: pd.DataFrame) -> float:
    return float(kinds["rest"].sum() / (kinds["rest"].sum() + kinds["transfer"].sum()))


def _kinds_words(kinds: pd.DataFrame) -> str:
    names = [" · ".join(filter(None, kind)) for kind in kinds.index[:_MOST_TOLD]]
    return ", ".join(names) + (" and others" if len(kinds) > _MOST_TOLD else "")


def _longest(skew: ArrivalSkew) -> list[dict[str, Any]]:
    """The longest waits, one of each collective: its row, and the rank that starts last."""
    rows = skew.arrivals.sort_values(["wait", "collective", "rank"], ascending=[False, True, True])
    rows = rows[rows["wait"] > 0].drop_duplicates("collective").head(_MOST_SPANS)
    last = skew.arrivals[skew.arrivals["last"].astype(bool)].set_index("collective")["rank"]
    return rows.assign(late=rows["collective"].map(last)).to_dict("records")  # type: ignore[return-value]


def _words(row: Mapping[str, Any], job: JobEvidence[Evidence]) -> str:
    what = " · ".join(part for part in (row["name"], row["process_group"]) if part)
    step = f" of step {row['step']}" if row["step"] != OUTSIDE else ""
    return f"{job.time(float(row['wait']))} of rank {row['rank']} for rank {row['late']}, at {what}{step}"


def _span(row: Mapping[str, Any], job: JobEvidence[Evidence]) -> Span:
    """The wait, on the clock of who waits."""
    start = int(row["start"]) + job.facts.matching.clocks.offset.get(row["rank"], 0)
    step = None if row["step"] == OUTSIDE else int(row["step"])
    return Span(int(row["rank"]), start, start + int(row["wait"]), str(row["name"]), step)


@dataclass(frozen=True)
class UnevenCompute(Rule[Evidence]):
    """Ranks have unequal amounts of compute, so that those with less wait for those with more.

    ## When it speaks
    Compute time per step differs between the ranks by more than `spread` of its mean, and by more than it varies from
    step to step would explain; no straggler is named, and ranks wait for each other.

    ## What it could save
    What the rank with most compute has over the mean; on each rank no more than it waits for others while compute
    waits for that.

    ## What to do
    Balance the work: batches of equal token counts, sequence packing, layers per pipeline stage, experts per rank.

    ## How to verify
    Compute time by rank differs less.
    """

    code, title, family, section = "N6", "Ranks compute unequal amounts", Family.COMMUNICATION, "temporal_breakdown"
    requires = _REQUIRES
    reattributes_from = "N1"

    spread: float = 0.05

    def look(self, rank: Rank) -> Evidence | None:
        del rank  # What is said of it stands in the facts of the job.
        return Evidence()

    def reattributed_ns(self, job: JobEvidence[Evidence]) -> Mapping[int, float]:
        return uneven_compute(job, self.spread)

    def change(self, job: JobEvidence[Evidence]) -> JobChange:
        times = compute_times(job.facts)
        mean = sum(times.values()) / len(times)
        return JobChange(device_scale={rank: mean / time for rank, time in times.items() if time})

    def tell(self, job: JobEvidence[Evidence]) -> Finding | None:
        if not job.max_saving_ns:
            return None
        times = compute_times(job.facts)
        least, most = min(times, key=times.__getitem__), max(times, key=times.__getitem__)
        kernels = {
            rank: float(job.facts.arrival_skew.own_work[rank].kernel_table()["count"].sum()) for rank in (least, most)
        }
        mean = sum(times.values()) / len(times)
        return self.finding(
            job,
            f"Compute is uneven: {job.time(times[least])} {job.per_step} on rank {least}, {job.time(times[most])} on "
            f"rank {most}",
            evidence=f"That is {job.percent((times[most] - times[least]) / mean)} of the mean, {job.time(mean)}. "
            f"Rank {least} runs {counted(kernels[least], 'kernel')} {job.per_step}, rank {most} {kernels[most]:,.0f}; "
            "ranks with less wait for those with more in collectives.",
            assumption=f"Every rank computes for the mean; waits are part of {job.window}.",
            spans=(),
        )


def compute_times(facts: JobFacts) -> dict[int, float]:
    """Compute per step of each rank that takes part in matched collectives, ns; of slow devices as if they were not."""
    there, slow = set(facts.arrival_skew.arrivals["rank"]), facts.slow_devices
    return {
        rank: work.compute_ns / (slow[rank].ratio if rank in slow else 1.0)
        for rank, work in facts.arrival_skew.own_work.items()
        if rank in there
    }


def uneven_compute(job: JobEvidence[Evidence], spread: float = 0.05) -> Mapping[int, float]:
    """What waits are due to unequal compute, ns per step by rank.

    Nothing where a straggler is named, or only some of the ranks are recorded: others may have more or less.
    """
    skew = job.facts.arrival_skew
    times = compute_times(job.facts)
    if skew.stragglers or job.facts.pipeline or not times or len(times) < job.facts.world_size / 2:
        return {}
    mean, apart = sum(times.values()) / len(times), max(times.values()) - min(times.values())
    error = math.sqrt(sum(skew.own_work[rank].compute_error_ns ** 2 for rank in times) / len(times))
    by_chance = (2 + 2 * math.sqrt(2 * math.log(len(times)))) * error  # Hardly any range of so many means is larger.
    if apart <= max(spread * mean, by_chance):
        return {}
    return {rank: min(skew.waiting_ns[rank], max(times.values()) - mean) for rank in times}
