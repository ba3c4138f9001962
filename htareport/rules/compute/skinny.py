"""Products of a few rows by a large matrix, again and again: each reads the whole matrix for little arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.work import Kind
from htareport.rank.cached import cached_until_release
from htareport.rank.capability import Capability
from htareport.rank.compute_time import WORTH, asked, shortened, spread, unknown_limits, work
from htareport.rank.host_rows import per
from htareport.rank.interval_sets import Sets
from htareport.rank.operator_groups import Group, GroupSummary, groups, of_kind
from htareport.rank.operator_work import NONE
from htareport.rank.rank import Rank
from htareport.rank.training import trains
from htareport.report.findings import Finding, Severity
from htareport.report.units import counted
from htareport.rules.engine.base import Family, Rule, severity_of
from htareport.rules.engine.evidence import JobEvidence, WorkEvidence
from htareport.rules.engine.wording import held_up

_GOOD = 0.85  # Of the bandwidth: what good kernels reach.
_BOUND = 0.7  # From which on each is taken to read a matrix of its own from memory.
_SHOWN = 3
_FUSED = "qkv = torch.nn.Linear(size, 3 * size)  # Instead of three layers.\nq, k, v = qkv(x).chunk(3, dim=-1)"


class _Skinny(NamedTuple):
    """Groups of such products; of each call how many there are in its run; what could be saved, and at least."""

    groups: list[Group]
    run: NDArray[np.int64]
    claim: Sets
    asked: float
    low: float


@dataclass(frozen=True, kw_only=True)
class SkinnyProductsEvidence(WorkEvidence):
    """What was seen on one rank: narrow products again and again."""

    groups: list[GroupSummary]
    count: int
    time: float
    calls: float
    bandwidth: float
    together: float
    trains: bool
    low_share: float


@dataclass(frozen=True)
class SkinnyProducts(Rule[SkinnyProductsEvidence]):
    """Products of a few rows by a matrix of weights are computed many times, each alone.

    ## When it speaks
    Products with at most `rows` rows (or columns) on one side, which memory bounds, are computed at least `repeated`
    times per step with the same shapes on the same kernel, and take at least `least` of the step. The matrix is read
    for each of them anew, so that a few rows take as long as many.

    ## What it could save
    Of products of one shape that follow each other on a stream with nothing computed between, none needs another's
    result: k of them can be one, and all but a k-th of their time is the ceiling, if they share one matrix (a loop over
    inputs). If each has its own (query, key and value), all must be read still: then what they take above what 85 % of
    the memory's bandwidth takes, which is the lower estimate, and all that is claimed where they reach 70 % of it
    already (I3). Where each stands alone nothing is claimed. What is claimed here, C1 and C9 leave out.

    ## What to do
    - **together**: Compute them as one: query, key and value (or gate and up) in one layer, inputs stacked, a grouped
      product.
    - **apart**: Give each product more rows: a larger batch, or several inputs stacked.
    - **inference**: More sequences at once make the same time serve more of them; weights of 8 or 4 bits are read
      faster.

    ## How to verify
    Fewer calls of these shapes in *Compute efficiency*, and less time in all.
    """

    code, title, family, section = "C15", "Narrow products again and again", Family.COMPUTE, "compute_efficiency"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES, Capability.SHAPES})

    rows: int = 16
    repeated: int = 20
    least: float = 0.02

    def lacking(self, rank: Rank) -> tuple[str, ...]:
        return super().lacking(rank) or unknown_limits(rank)

    def own_events(self, rank: Rank) -> NDArray[np.bool_] | None:
        own_events = None if self.lacking(rank) else _skinny(rank, self)
        if own_events is None or not own_events.claim:
            return None
        owner = work(rank).owner
        return np.asarray((owner != NONE) & (np.append(own_events.run, 0)[owner] > 1), np.bool_)

    def look(self, rank: Rank) -> SkinnyProductsEvidence | None:
        found = _skinny(rank, self)
        if found is None:
            return None
        most = sorted(found.groups, key=lambda each: -each.time)
        calls = np.concatenate([group.calls for group in found.groups])
        time = sum(each.time for each in most)
        inside = found.run[calls] > 1
        return SkinnyProductsEvidence(
            claim=found.claim,
            spans=rank.spans(found.claim, name=most[0].signature.name),
            groups=[each.summary(rank.num_steps) for each in most[:_SHOWN]],
            count=len(most),
            time=time / per(rank),
            calls=len(calls) / per(rank),
            bandwidth=sum(each.by_memory for each in most) / time,
            together=len(calls) / float((1 / found.run[calls]).sum()) if inside.any() else 1.0,
            trains=trains(rank),
            low_share=found.low,
            requested_ns=found.asked,
        )

    def tell(self, job: JobEvidence[SkinnyProductsEvidence]) -> Finding | None:
        worst = job.worst
        each = "; ".join(
            f"`{g.name}` {g.shapes} in {g.precision}: {counted(g.calls, 'call')}, {job.time(g.time_ns)} {job.per_step}"
            for g in worst.groups
        )
        evidence = (
            f"{each}{'; …' if worst.count > len(worst.groups) else ''}. They read their matrices at "
            f"{job.percent(worst.bandwidth)} of the memory's bandwidth"
        )
        serving = () if worst.trains else ("inference",)
        title = f"{worst.calls:,.0f} products of at most {self.rows} rows take {job.time(worst.time)} {job.per_step}"
        if not job.max_saving_ns:
            alone = "each stands alone between other kernels" if worst.together <= 1 else "memory allows little more"
            return self.finding(
                job,
                title,
                severity=Severity.LOW,
                evidence=f"{evidence}; {alone}.",
                cases=("apart", *serving),
            )
        return self.finding(
            job,
            title,
            severity=severity_of(job.saving_share),
            evidence=f"{evidence}; on average {worst.together:.2g} of one shape follow each other with nothing "
            f"computed "
            "between.",
            cases=("together", *serving),
            low_ns=round(job.max_saving_ns * worst.low_share),
            assumption="They share one matrix, which is read once for all, unless they reach 70 % of the bandwidth "
            "already. The lower estimate is for a matrix of each: they are read at 85 % of it." + held_up(job),
            snippet=_FUSED,
        )


@cached_until_release
def _skinny(rank: Rank, rule: SkinnyProducts) -> _Skinny | None:
    """The products that the rule is about; None where they are too few or take too little."""
    found = work(rank)
    products = [signature.work.product if signature.work else None for signature in found.signatures]
    is_narrow = np.array([bool(p and p.batch == 1 and min(p.m, p.n) <= rule.rows) for p in products] or [False])
    wanted = of_kind(rank, Kind.PRODUCT) & is_narrow[found.calls["signature"].to_numpy()]
    if not wanted.any():
        return None
    chosen = [
        group
        for group in groups(rank, wanted)
        if group.by_memory >= group.by_compute and len(group.calls) >= rule.repeated * rank.num_steps
    ]
    if not chosen or sum(each.time for each in chosen) < rule.least * rank.whole:
        return None
    run = _runs(rank, chosen)
    high = 1 - 1 / run
    low = np.zeros(len(run))
    for each in chosen:
        of_bandwidth = each.by_memory / each.time
        low[each.calls] = np.minimum(high[each.calls], max(1 - of_bandwidth / _GOOD, 0.0))
        if of_bandwidth >= _BOUND:
            high[each.calls] = low[each.calls]
    saving = spread(rank, high)
    claim = shortened(rank, saving)
    if not claim or rank.share(claim) < WORTH:  # They stand alone, or nothing hangs on them.
        return _Skinny(chosen, run, {}, 0.0, 0.0)
    times = found.calls["time"].to_numpy()
    return _Skinny(chosen, run, claim, asked(rank, saving), float(times @ low) / float(times @ high))


def _runs(rank: Rank, chosen: list[Group]) -> NDArray[np.int64]:
    """How many calls of its group follow each other with each call, nothing else computed between; 1 for all others."""
    events, owner = rank.device_events, work(rank).owner
    group = np.full(len(work(rank).calls) + 1, NONE, np.int64)  # The last is for events of no call.
    for number, each in enumerate(chosen):
        group[each.calls] = number
    run = np.ones(len(group) - 1, np.int64)
    mine = np.flatnonzero((events["kind"] == "compute").to_numpy())
    mine = mine[np.lexsort((mine, events["lane"].to_numpy()[mine], events["capture"].to_numpy()[mine]))]
    call, of_group = owner[mine], group[owner[mine]]
    breaks = np.diff(of_group, prepend=NONE - 1) != 0
    for name in ("capture", "lane", "step"):
        breaks[1:] |= np.diff(events[name].to_numpy()[mine]) != 0
    of_run = np.cumsum(breaks)
    inside = of_group != NONE
    firsts = np.flatnonzero(inside & (breaks | (np.diff(call, prepend=NONE) != 0)))  # One of each call.
    run[call[firsts]] = np.bincount(of_run[firsts])[of_run[firsts]]
    return run
