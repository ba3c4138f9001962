"""Products of a few rows by a large matrix, many times: each reads the whole matrix for little arithmetic."""

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
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import JobEvidence, WorkEvidence

_GOOD = 0.85  # Of the bandwidth: what good kernels reach.
_OWN_MATRIX = 0.7  # Of the bandwidth: from here on each product is taken to read a matrix of its own from memory.
_MAX_GROUPS = 3  # In a sentence.
_FUSED = "qkv = torch.nn.Linear(size, 3 * size)  # Instead of three layers.\nq, k, v = qkv(x).chunk(3, dim=-1)"


class _Skinny(NamedTuple):
    """Groups of narrow products, and the length of the run that each call belongs to; what could be saved."""

    groups: list[Group]
    run_lengths: NDArray[np.int64]
    claim: Sets
    requested_ns: float
    low_share: float  # Of the saving: the lower estimate.


@dataclass(frozen=True, kw_only=True)
class SkinnyProductsEvidence(WorkEvidence):
    """Narrow products that are computed many times; times and calls are per step and device."""

    groups: list[GroupSummary]  # Those of most time.
    num_groups: int
    time_ns: float
    calls: float
    bandwidth_share: float
    run_length: float  # How many calls of one shape follow each other on average.
    trains: bool
    low_share: float


@dataclass(frozen=True)
class SkinnyProducts(Rule[SkinnyProductsEvidence]):
    """Products of a few rows by a matrix of weights are computed many times, each alone.

    ## When it speaks
    Matrix products with at most `rows` rows (or columns) on one side are bound by memory. They are computed at least
    `repeated` times per step with the same shapes on the same kernel, and take at least `least` of the step. Each reads
    the whole matrix, so a few rows take as long as many.

    ## What it could save
    Products of one shape that follow each other on a stream, with nothing computed between, do not need each other's
    results: k of them can be one. If they share a matrix (a loop over inputs), all but a k-th of their time is the
    ceiling. If each has its own matrix (query, key and value), all must still be read. Then only the time above 85 % of
    the memory bandwidth can be saved: the lower estimate, and the whole claim where they reach 70 % of it already (I3).
    Nothing is claimed for products that stand alone. C1 and C9 leave out what is claimed here.

    ## What to do
    - **together**: Compute the products as one: query, key and value (or gate and up) in one layer, stacked inputs, or
      a grouped product.
    - **apart**: Give each product more rows: use a larger batch, or stack several inputs.
    - **inference**: Serve more sequences at once, which takes the same time. Quantize the weights to 8 or 4 bits, so
      that they are read faster.

    ## How to verify
    *Compute efficiency* shows fewer calls of these shapes, and less time in all.
    """

    code, title, family, section = "C15", "Narrow products, computed many times", Family.COMPUTE, "compute_efficiency"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES, Capability.SHAPES})

    rows: int = 16
    repeated: int = 20
    least: float = 0.02

    def lacking(self, rank: Rank) -> tuple[str, ...]:
        return super().lacking(rank) or unknown_limits(rank)

    def own_events(self, rank: Rank) -> NDArray[np.bool_] | None:
        skinny = None if self.lacking(rank) else _skinny(rank, self)
        if skinny is None or not skinny.claim:
            return None
        return np.asarray(np.append(skinny.run_lengths, 0)[work(rank).owner] > 1, np.bool_)

    def look(self, rank: Rank) -> SkinnyProductsEvidence | None:
        skinny = _skinny(rank, self)
        if skinny is None:
            return None
        by_time = sorted(skinny.groups, key=lambda group: -group.time)
        run_lengths = skinny.run_lengths[np.concatenate([group.calls for group in skinny.groups])]
        time = sum(group.time for group in by_time)
        return SkinnyProductsEvidence(
            claim=skinny.claim,
            spans=rank.spans(skinny.claim, name=by_time[0].signature.name),
            groups=[group.summary(rank.num_steps) for group in by_time[:_MAX_GROUPS]],
            num_groups=len(by_time),
            time_ns=time / per(rank),
            calls=len(run_lengths) / per(rank),
            bandwidth_share=sum(group.by_memory for group in by_time) / time,
            run_length=len(run_lengths) / float((1 / run_lengths).sum()) if run_lengths.max() > 1 else 1.0,
            trains=trains(rank),
            low_share=skinny.low_share,
            requested_ns=skinny.requested_ns,
        )

    def tell(self, job: JobEvidence[SkinnyProductsEvidence]) -> Finding | None:
        worst = job.worst
        groups = "; ".join(
            f"`{group.name}` {group.shapes} in {group.precision}: {counted(group.calls, 'call')}, "
            f"{job.time(group.time_ns)} {job.per_step}"
            for group in worst.groups
        )
        evidence = (
            f"{groups}{'; …' if worst.num_groups > len(worst.groups) else ''}. They read their matrices at "
            f"{job.percent(worst.bandwidth_share)} of the memory's bandwidth"
        )
        serving = () if worst.trains else ("inference",)
        title = f"{worst.calls:,.0f} products of at most {self.rows} rows take {job.time(worst.time_ns)} {job.per_step}"
        if not job.max_saving_ns:
            is_alone = worst.run_length <= 1
            reason = "each stands alone between other kernels" if is_alone else "memory allows little more"
            return self.finding(
                job, title, severity=Severity.LOW, evidence=f"{evidence}; {reason}.", cases=("apart", *serving)
            )
        return self.finding(
            job,
            title,
            evidence=f"{evidence}; on average {worst.run_length:.2g} of one shape follow each other with nothing "
            "computed between.",
            cases=("together", *serving),
            low_ns=round(job.max_saving_ns * worst.low_share),
            assumption="They share one matrix, which is read once for all, unless they reach 70 % of the bandwidth "
            "already. The lower estimate is for a matrix each, read at 85 % of it.",
            snippet=_FUSED,
        )


@cached_until_release
def _skinny(rank: Rank, rule: SkinnyProducts) -> _Skinny | None:
    """The products that the rule is about; None where they are too few or take too little."""
    operators = work(rank)
    products = [signature.work.product if signature.work else None for signature in operators.signatures]
    is_narrow = np.array([bool(p and p.batch == 1 and min(p.m, p.n) <= rule.rows) for p in products] or [False])
    is_candidate = of_kind(rank, Kind.PRODUCT) & is_narrow[operators.calls["signature"].to_numpy()]
    if not is_candidate.any():
        return None
    repeated = [
        group
        for group in groups(rank, is_candidate)
        if group.by_memory >= group.by_compute and len(group.calls) >= rule.repeated * rank.num_steps
    ]
    if not repeated or sum(group.time for group in repeated) < rule.least * rank.whole:
        return None
    run_lengths = _run_lengths(rank, repeated)
    high, low = 1 - 1 / run_lengths, np.zeros(len(run_lengths))  # Shares of the time of each call.
    for group in repeated:
        bandwidth_share = group.by_memory / group.time
        low[group.calls] = np.minimum(high[group.calls], max(1 - bandwidth_share / _GOOD, 0.0))
        if bandwidth_share >= _OWN_MATRIX:
            high[group.calls] = low[group.calls]
    saving = spread(rank, high)
    claim = shortened(rank, saving)
    if not claim or rank.share(claim) < WORTH:  # They stand alone, or nothing hangs on them.
        return _Skinny(repeated, run_lengths, {}, 0.0, 0.0)
    times = operators.calls["time"].to_numpy()
    return _Skinny(repeated, run_lengths, claim, asked(rank, saving), float(times @ low) / float(times @ high))


def _run_lengths(rank: Rank, repeated: list[Group]) -> NDArray[np.int64]:
    """How many calls of its group follow each other with each call, nothing else computed between; 1 for all others."""
    # Compute kernels in order of start on their stream form runs, which end where the group, stream or step changes.
    events, owner = rank.device_events, work(rank).owner
    group_of_call = np.full(len(work(rank).calls) + 1, NONE, np.int64)  # The last is for events of no call.
    for number, group in enumerate(repeated):
        group_of_call[group.calls] = number
    capture, lane, step = (events[name].to_numpy() for name in ("capture", "lane", "step"))
    rows = np.flatnonzero((events["kind"] == "compute").to_numpy())
    rows = rows[np.lexsort((rows, lane[rows], capture[rows]))]
    call, groups_in_order = owner[rows], group_of_call[owner[rows]]
    is_break = np.diff(groups_in_order, prepend=NONE - 1) != 0
    for column in (capture, lane, step):
        is_break[1:] |= np.diff(column[rows]) != 0
    is_first_of_call = is_break | (np.diff(call, prepend=NONE) != 0)
    firsts = np.flatnonzero((groups_in_order != NONE) & is_first_of_call)
    run = np.cumsum(is_break)[firsts]
    run_lengths = np.ones(len(group_of_call) - 1, np.int64)
    run_lengths[call[firsts]] = np.bincount(run)[run]
    return run_lengths
