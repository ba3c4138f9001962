"""Rules about when collectives are issued: on the stream of compute, or only when their result is needed."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from htareport.algorithms import intervals
from htareport.algorithms.intervals import EMPTY, Intervals
from htareport.rank.capability import Capability
from htareport.rank.communication import awaited, compute, is_of_layers, kernels, launched_in, limited, sets_of
from htareport.rank.host_rows import per
from htareport.rank.interval_sets import Lane, Sets, common, minus
from htareport.rank.rank import Rank
from htareport.report.findings import Finding
from htareport.report.units import counted
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence

_REQUIRES = frozenset({Capability.GPU, Capability.COMM})
_LIBRARY = re.compile(r"(?<![A-Za-z])(?:[nr]ccl|hccl)", re.IGNORECASE)
_SHARDED = re.compile(r"FSDP|FullySharded|fully_shard")
_SHARD_GROUP = re.compile(r"fsdp|shard|(?:^|_)dp", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class SerialisedCollectiveEvidence(Evidence):
    """What was seen on one rank: collectives on the compute stream."""

    what: str
    calls: float
    stream: str


@dataclass(frozen=True)
class SerialisedCollective(Rule[SerialisedCollectiveEvidence]):
    """Collectives run on the stream of compute, so that nothing can overlap them.

    ## When it speaks
    Kernels of NCCL or RCCL run on a stream that also computes, are exposed there for at least `least` of the step, and
    there is compute without communication that could run meanwhile.

    ## What it could save
    Their exposed time, but in each step no more than the compute that runs without communication.

    ## What to do
    Issue them with `async_op=True` and wait where the result is needed. What needs the result at once cannot overlap:
    split the batch in two, and compute one half meanwhile.

    ## How to verify
    *Of communication hidden* goes up.
    """

    code, title, family, section = "N14", "Collectives on the compute stream", Family.COMMUNICATION, "comm_overlap"
    requires = _REQUIRES
    about_idle = True

    least: float = 0.05
    computes: float = 0.05

    def look(self, rank: Rank) -> SerialisedCollectiveEvidence | None:
        rows = kernels(rank)
        events = rank.device_events
        computing = events[(events["kind"] == "compute").to_numpy()]
        times = computing.groupby("lane")["dur"].sum()
        shared = times.index[times >= self.computes * times.sum()]
        of_library = rows["name"].astype(object).str.contains(_LIBRARY).to_numpy(dtype=bool)
        rows = rows[of_library & rows["lane"].isin(shared).to_numpy()]
        free = minus(compute(rank), rank.busy("comm"))
        claim = limited(rank, common(awaited(rank), sets_of(rank, rows)), free)
        if rank.share(claim) < self.least:
            return None
        what = str(rows.groupby("what")["dur"].sum().idxmax())
        return SerialisedCollectiveEvidence(
            claim=claim,
            spans=rank.spans(claim, name=what),
            what=what,
            calls=len(rows) / per(rank),
            stream=str(rows["stream"].iloc[0]),
        )

    def tell(self, job: JobEvidence[SerialisedCollectiveEvidence]) -> Finding:
        worst = job.worst
        return self.finding(
            job,
            f"Collectives hold up compute on its own stream for {job.max_saving} {job.per_step}",
            evidence=f"{counted(worst.calls, 'collective')} {job.per_step} on stream {worst.stream}, which also "
            f"computes; "
            f"mostly {worst.what}.",
            assumption="Other compute of the step can run meanwhile.",
            snippet="work = dist.all_reduce(tensor, async_op=True)\n...  # compute meanwhile\nwork.wait()",
        )


@dataclass(frozen=True, kw_only=True)
class LateGatherEvidence(Evidence):
    """What was seen on one rank: parameters are gathered late."""

    late: float
    calls: float
    what: str


@dataclass(frozen=True)
class LateGather(Rule[LateGatherEvidence]):
    """A shard's parameters are gathered only when they are needed, and compute waits for them.

    ## When it speaks
    All-gathers of FSDP (by an annotation around the launch, or the name of their group) start no more than `near` µs
    after compute has ended, and compute goes on no more than `near` µs after they end; that takes at least `least` of
    the step.

    ## What it could save
    Their exposed time, but for each no more than the compute before it, since the gather before.

    ## What to do
    Prefetch the next unit's parameters. It takes the memory of one more unit.

    ## How to verify
    *Of communication hidden* goes up.
    """

    code, title, family, section = "N13", "Parameters are gathered late", Family.COMMUNICATION, "comm_overlap"
    requires = _REQUIRES
    about_idle = True

    near: float = 50.0
    least: float = 0.02

    def look(self, rank: Rank) -> LateGatherEvidence | None:
        rows = kernels(rank)
        gathers = rows["collective"].str.startswith("all_gather").to_numpy(dtype=bool)
        of_group = rows["process_group"].str.contains(_SHARD_GROUP).to_numpy(dtype=bool)
        rows = rows[gathers & ~is_of_layers(rows) & (of_group | launched_in(rank, _SHARDED, rows))]
        claim, late = Sets(), 0
        for lane in rank.lanes:
            found = self._late(rank, lane, rows)
            claim[lane], late = intervals.union(found[:, 0], found[:, 1]), late + len(found)
        claim = common(claim, awaited(rank))
        if rank.share(claim) < self.least:
            return None
        return LateGatherEvidence(
            claim=claim,
            spans=rank.spans(claim, name=str(rows["what"].iloc[0])),
            late=late / per(rank),
            calls=len(rows) / per(rank),
            what=str(rows["what"].iloc[0]),
        )

    def _late(self, rank: Rank, lane: Lane, rows: pd.DataFrame) -> Intervals:
        """Gathers between which and compute there is no time, as far as they would fit under the compute before."""
        rows = rows[(rows["device"] == lane[0]).to_numpy() & (rows["capture"] == lane[1]).to_numpy()]
        busy = compute(rank).get(lane, EMPTY)
        if not len(rows) or not len(busy):
            return EMPTY
        start, end = rows["ts"].to_numpy(), rows["end"].to_numpy()
        before = np.searchsorted(busy[:, 1], start, side="right") - 1
        after = np.searchsorted(busy[:, 0], end)
        there = (before >= 0) & (after < len(busy)) & (after == before + 1)
        gap = 1000 * self.near
        there &= start - busy[np.maximum(before, 0), 1] <= gap
        there &= busy[np.minimum(after, len(busy) - 1), 0] - end <= gap
        since = np.concatenate(([busy[0, 0]], end[:-1]))
        room = intervals.covered(busy, since, np.maximum(start, since))
        late: Intervals = np.column_stack((start, start + np.minimum(end - start, room)))[there & (room > 0)]
        return late

    def tell(self, job: JobEvidence[LateGatherEvidence]) -> Finding:
        worst = job.worst
        return self.finding(
            job,
            f"Compute waits {job.max_saving} {job.per_step} for parameters that are gathered late",
            evidence=f"{worst.late:,.3g} of {worst.calls:,.3g} all-gathers {job.per_step} ({worst.what}) start when "
            f"compute "
            "has stopped, and it goes on when they end.",
            assumption="Each is hidden under the compute of the unit before.",
            snippet="for block, following in zip(blocks, blocks[1:]):\n"
            "    block.set_modules_to_forward_prefetch([following])",
        )
