"""Rules about one rank that all the others wait for: which it is, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from htareport.job.arrival_skew import ArrivalSkew
from htareport.job.arrivals import is_late
from htareport.job.own_work import Difference, difference
from htareport.job.replay import JobChange
from htareport.rank.capability import Capability
from htareport.rank.host_rows import short
from htareport.rank.idle import Cause
from htareport.rank.own_work import COPIES, HOST, MORE, SLOWER
from htareport.rank.rank import Rank
from htareport.rank.steps import OUTSIDE
from htareport.report.findings import Finding, Span
from htareport.report.number_lists import listed as numbers
from htareport.report.units import counted
from htareport.rules.engine.base import Family, Rule, severity_of
from htareport.rules.engine.evidence import Evidence, JobEvidence

_REQUIRES = frozenset({Capability.GPU, Capability.COMM})
_MOST_SPANS, _MOST_NAMED = 5, 3
_EXPLAINS = 0.6


@dataclass(frozen=True)
class Straggler(Rule[Evidence]):
    """One rank comes late to collectives, and all the others wait for it.

    ## When it speaks
    The section *Stragglers* names the rank: after clocks are aligned, it alone is late in more than half of the
    collectives in which anybody is, more often than chance would have it (below 1 %), and for at least 2 % of its step
    time.

    ## What it could save
    How much later it starts than the second-latest rank, summed over those collectives; on each rank no more than the
    communication that compute waits for there.

    ## What to do
    - **explained**: Most likely {cause|its own work differs}; “{title|Rank N is late because} …” says more.
    - **unexplained**: Its kernels, launches, input and copies take no longer than those of the others. Compare its
      host: how the process is bound to cores and memory (`numactl`), the network card (`nvidia-smi topo -m`, `amd-smi
      topology`), other jobs.

    ## How to verify
    *Holds up* under *Stragglers* goes down.
    """

    code, title, family, section = "N4", "One rank is late", Family.COMMUNICATION, "stragglers"
    requires = _REQUIRES
    reattributes_from, confidence, enables = "N1", "high", True

    def look(self, rank: Rank) -> Evidence | None:
        del rank  # What is said of it stands in the facts of the job.
        return Evidence()

    def reattributed_ns(self, job: JobEvidence[Evidence]) -> Mapping[int, float]:
        return job.facts.arrival_skew.straggling_ns

    def change(self, job: JobEvidence[Evidence]) -> JobChange:
        return JobChange(without_lateness=frozenset(job.facts.arrival_skew.stragglers))

    def tell(self, job: JobEvidence[Evidence]) -> Finding | None:
        skew = job.facts.arrival_skew
        if not skew.stragglers or job.facts.pipeline:  # In a pipeline, stages are done at different times.
            return None
        named = skew.stragglers[:_MOST_NAMED]
        # What is waited for, where that is known: lateness alone counts again at each collective that hides it.
        held = (
            [job.max_saving_ns or skew.delays_others_ns(named[0])]
            if len(named) == 1
            else [skew.delays_others_ns(rank) for rank in named]
        )
        costs = " and ".join(map(job.time, held))
        cause = cause_of(job, named[0], _EXPLAINS)
        return self.finding(
            job,
            f"{_ranks(skew.stragglers)} the others for {costs} {job.per_step}",
            evidence=" ".join(_evidence(skew, rank, job) for rank in named),
            values={"cause": _BRIEFLY[cause.cause], "title": _LATE.format(named[0])} if cause else None,
            cases=("explained" if cause else "unexplained",),
            assumption="It comes with the second-latest rank; where others have compute to run meanwhile, that costs "
            "nothing, and is not counted.",
            ranks=tuple(sorted(skew.stragglers)),
            spans=_spans(skew, job),
        )


_LATE = "Rank {} is late because"  # How the title of a cause begins.


def _ranks(named: list[int]) -> str:
    return f"Ranks {numbers(named)} hold up" if len(named) > 1 else f"Rank {named[0]} holds up"


def _evidence(skew: ArrivalSkew, rank: int, job: JobEvidence[Evidence]) -> str:
    late, there = skew.late_arrivals(rank), (skew.arrivals["rank"] == rank).sum()
    what = late.groupby(["name", "process_group"])["margin"].sum().sort_values(ascending=False, kind="stable").index[0]
    others = skew.arrivals[is_late(skew.arrivals) & (skew.arrivals["rank"] != rank)]
    next_most = int(others["rank"].value_counts().max()) if len(others) else 0
    more = f"more than {next_most}" if next_most else "any"
    return (
        f"Rank {rank} alone is late to {len(late)} of {there} collectives, no other rank to {more}: by "
        f"{job.time(float(late['margin'].mean()))} on average, mostly to {' · '.join(filter(None, what))}."
    )


def _spans(skew: ArrivalSkew, job: JobEvidence[Evidence]) -> tuple[Span, ...]:
    """Where the stragglers come latest, on their own clocks: from the second-latest rank's start to theirs."""
    offset = job.facts.matching.clocks.offset
    rows = skew.arrivals[skew.arrivals["rank"].isin(skew.stragglers) & (skew.arrivals["margin"] > 0)]
    rows = rows.sort_values("margin", ascending=False, kind="stable").head(_MOST_SPANS)
    return tuple(_span(row, offset.get(row["rank"], 0)) for row in rows.to_dict("records"))


def _span(row: Mapping[Any, Any], offset: int) -> Span:
    start, step = int(row["start"]) + offset, int(row["step"])
    return Span(
        int(row["rank"]), start - int(row["margin"]), start, str(row["name"]), None if step == OUTSIDE else step
    )


def cause_of(job: JobEvidence[Evidence], rank: int, least: float) -> Difference | None:
    """In what a straggler differs from the others, where that explains as much of what it holds up."""
    skew = job.facts.arrival_skew
    made = difference(skew.own_work, rank)
    return made if made.more_ns >= least * _waited(skew, rank) > 0 else None


def _waited(skew: ArrivalSkew, rank: int) -> float:
    """For how long others wait for a straggler. Its lateness alone counts again at each collective that hides it."""
    lateness, waited = skew.delays_others_ns(rank), max(skew.straggling_ns.values(), default=0.0)
    return min(lateness, waited) if waited else lateness


@dataclass(frozen=True)
class StragglerCause(Rule[Evidence]):
    """Why a straggler is late: slower kernels, more kernels, its input, its host, or its copies.

    ## When it speaks
    A straggler was named (N4), and in one of these its own time exceeds the median of the other ranks by at least
    `explains` of what it holds up.

    ## What it could save
    What N4 says: it is the same time.

    ## What to do
    - **data loading**: Its input alone is slow: the samples it gets, its disk or network storage, the cores its loader
      workers share. More workers and prefetching hide it.
    - **compilation**: Mark changing dimensions as dynamic; let every rank see the same shapes.
    - **garbage collection**: Collect on all ranks at the same time, and rarely: `gc.disable()`, and `gc.collect()`
      every n steps.
    - **memory allocation**: Its memory is fuller or more fragmented: `PYTORCH_ALLOC_CONF=expandable_segments:True`; let
      every rank have inputs of the same size.
    - **host**: Look for what only this rank does (logging, metrics, checkpoints), for other processes on its cores, for
      its CPU's clock and binding (`numactl --cpunodebind`).
    - **copies**: Compare its copies with those of the others: pinned memory, the PCIe link (`nvidia-smi -q`, `amd-smi
      metric`).
    - **more kernels**: Balance the work: batches of equal token counts, sequence packing, experts, layers per stage.
    - **slower device**: The device itself is slower: compare clocks, power limit, temperature, ECC errors and what else
      runs on it (`nvidia-smi -q -d PERFORMANCE,CLOCK`, `amd-smi metric`), and try another one.
    - **slower kernels**: Some kernels only: it has larger inputs (sequence lengths, experts) or another kernel was
      chosen. Compare shapes with `record_shapes=True`, and balance batches.

    ## How to verify
    What differs there is as on the other ranks.
    """

    code, title, family, section = "N5", "Why a rank is late", Family.COMMUNICATION, "stragglers"
    requires = _REQUIRES
    follows = "N4"

    explains: float = _EXPLAINS

    def look(self, rank: Rank) -> Evidence | None:
        del rank  # What is said of it stands in the facts of the job.
        return Evidence()

    def tell(self, job: JobEvidence[Evidence]) -> Finding | None:
        skew = job.facts.arrival_skew
        causes = {
            rank: cause for rank in skew.stragglers[:_MOST_NAMED] if (cause := cause_of(job, rank, self.explains))
        }
        if not causes or job.facts.pipeline:
            return None
        rank, cause = next(iter(causes.items()))
        share = max(skew.straggling_ns.values()) / job.step_ns if job.step_ns else 0.0
        usual = "than the median of the other ranks"
        evidence = [
            f"Rank {each}: {job.time(it.more_ns)} more {_words(it)} {job.per_step} {usual}, while it holds up the "
            f"others "
            f"for {job.time(_waited(skew, each))}. {_details(it, job)}{_of_cpu(it, each, job)}{_same(it)}".strip()
            for each, it in causes.items()
        ]
        return self.finding(
            job,
            f"{_LATE.format(rank)} {_reason(cause, job)}",
            severity=severity_of(share),
            evidence=" ".join(evidence),
            cases=(_case(cause),),
            ranks=tuple(sorted(causes)),
            spans=(),
        )


_CAUSES = (Cause.LOADING, Cause.COMPILING, Cause.COLLECTING, Cause.ALLOCATING)
_WORDS = {SLOWER: "compute", MORE: "compute", COPIES: "copying", HOST: "idle time behind the host"}
_BRIEFLY: dict[str, str] = {
    Cause.LOADING: "it waits for its data loader",
    Cause.COMPILING: "it compiles",
    Cause.COLLECTING: "Python collects garbage",
    Cause.ALLOCATING: "it asks the driver for memory",
    HOST: "its host launches late",
    COPIES: "its copies take longer",
    SLOWER: "its kernels take longer",
    MORE: "it runs more kernels",
}


def _words(cause: Difference) -> str:
    return _WORDS.get(cause.cause, f"idle time in {cause.cause}")


def _reason(cause: Difference, job: JobEvidence[Evidence]) -> str:
    kernels = cause.compute
    if kernels and cause.cause == SLOWER:
        return f"its kernels take {kernels.ratio:.2f}× as long"
    if kernels:
        return f"it runs {kernels.count:,.0f} kernels {job.per_step}, the others {kernels.usual_count:,.0f}"
    return f"{_BRIEFLY[cause.cause]}: {job.time(cause.more_ns)} more {job.per_step}"


def _details(cause: Difference, job: JobEvidence[Evidence]) -> str:
    kernels = cause.compute
    if kernels and cause.cause == SLOWER and kernels.is_even:
        return "All kinds of kernels are slower alike."
    if kernels:
        kernel = kernels.slowest if cause.cause == SLOWER else kernels.additional
        calls = f"{counted(kernel.calls, 'call')} (the others {kernel.usual_calls:,.3g})"
        return f"Most of it is `{short(kernel.name)}`: {job.time(kernel.more_ns)} more in {calls}."
    names = [f"`{name}` {job.time(time)}" for name, time in cause.names]
    return f"It fills idle time with {', '.join(names)}." if names else ""


def _same(cause: Difference) -> str:
    """That what other findings say of idle time on that rank is no further saving."""
    return " What findings say of that time on this rank is no further saving." if cause.cause in _CAUSES else ""


def _of_cpu(cause: Difference, rank: int, job: JobEvidence[Evidence]) -> str:
    """What another finding says of the rank's CPU, where the host is the cause."""
    ratio = job.shared.cpu_time_ratio.get(rank) if cause.cause == HOST else None
    if ratio is None:
        return ""
    times = f"{ratio:.2g} times"
    return f" Its operators take {times} the CPU time of its host's other ranks, which has a finding of its own."


def _case(cause: Difference) -> str:
    """The case of the advice."""
    return "slower device" if cause.cause == SLOWER and cause.compute and cause.compute.is_even else cause.cause
