"""A rule about exchanges in which some ranks send or receive more than others: experts that are asked unequally."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms.frame_packing import Packed, pack
from htareport.job.replay import JobChange
from htareport.rank.budget import at_most
from htareport.rank.capability import Capability
from htareport.rank.communication import awaited, kernels, sets_of
from htareport.rank.compute_time import in_steps
from htareport.rank.host_rows import per
from htareport.rank.interval_sets import common, total
from htareport.rank.rank import Rank
from htareport.report.findings import Finding
from htareport.report.units import counted
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence

_MOST_CALLS = 2_000  # Of a group; the first, which are the same on every rank.
_MOST_CALLS_IN_ALL = 4_000  # Of a rank; those of the groups with most calls.
_GROUP = ["process_group", "members", "group_size"]
_SHOWN = 8


class _Exchange(NamedTuple):
    """Calls of one group, the first of so many: elements that a rank of each sends or gets at most.

    `mean` is what each gets if all get as many; `transfer` is how long the shortest takes, ns.
    """

    group: str
    ranks: tuple[int, ...]
    calls: int  # In all.
    received: NDArray[np.int64]  # By rank.
    most: NDArray[np.int64]
    mean: NDArray[np.float64]
    transfer: NDArray[np.int64]

    @property
    def ratio(self) -> float:
        """What the fullest rank of each call moves against the mean, over all calls."""
        return float(self.most.sum() / self.mean.sum()) if self.mean.sum() else 1.0

    @property
    def excess(self) -> float:
        """What all calls would take less if all ranks moved as much, ns: those that are not here as those that are."""
        return self.share * float(self.transfer.mean()) * self.calls

    @property
    def share(self) -> float:
        """The part of their time that this is."""
        less = 1 - np.divide(self.mean, self.most, out=np.ones(len(self.mean)), where=self.most > 0)
        return float((np.maximum(less, 0) * self.transfer).sum()) / max(int(self.transfer.sum()), 1)


@dataclass(frozen=True, kw_only=True)
class ExchangeEvidence(Evidence):
    """All-to-alls of a rank: a frame `exchanges` of the first of each group, and how long compute waits for all."""

    exchanges: Packed
    waits_ns: float  # Per step and device.


@dataclass(frozen=True)
class UnevenExchange(Rule[ExchangeEvidence]):
    """Ranks send or receive unequal amounts in all-to-alls, so that these take as long as for the fullest one.

    ## When it speaks
    All ranks of a group are recorded, and the trace has the sizes of its all-to-alls. Summed over the calls, the rank
    that moves most in each moves at least `ratio` times the mean; and compute waits for all-to-alls for at least
    `least` of the step.

    ## What it could save
    Of what each call takes once all ranks are there, the part that the fullest rank moves above the mean; on each rank
    no more than compute waits there for all-to-alls.

    ## What to do
    Balance what is exchanged: a balancing loss or a capacity per expert, experts that are asked most on different ranks
    or copied; large and hot tables spread over ranks.

    ## How to verify
    Ranks receive equal shares, and all-to-alls take less time in *Collectives*.
    """

    code, title, family, section = "N15", "All-to-alls are uneven", Family.COMMUNICATION, "collectives"
    requires = frozenset({Capability.GPU, Capability.COMM})
    reattributes_from = "N1"

    ratio: float = 1.3
    least: float = 0.02

    def look(self, rank: Rank) -> ExchangeEvidence | None:
        rows = kernels(rank)
        rows = rows[rows["collective"].str.startswith("all_to_all").to_numpy(dtype=bool)]
        rows = rows[in_steps(rank)[rows.index.to_numpy()] & (rows["received"] >= 0).to_numpy()]
        waits = total(common(awaited(rank), sets_of(rank, rows))) / per(rank)
        return ExchangeEvidence(exchanges=_sent(rows), waits_ns=waits)

    def reattributed_ns(self, job: JobEvidence[ExchangeEvidence]) -> Mapping[int, float]:
        windows = job.facts.arrival_skew.windows
        costs = dict.fromkeys(job.by_rank, 0.0)
        if max(evidence.waits_ns for evidence in job.by_rank.values()) < self.least * job.step_ns:
            return costs
        for exchange in self._uneven(job):
            for rank in exchange.ranks:
                costs[rank] += exchange.excess / windows[rank]
        for rank, evidence in job.by_rank.items():
            unexplained = job.facts.transfer_wait_ns(rank) - job.shared.slow_group_ns.get(rank, 0.0)
            costs[rank] = min(costs[rank], evidence.waits_ns, max(unexplained, 0.0))
        return costs

    def change(self, job: JobEvidence[ExchangeEvidence]) -> JobChange:
        shares = {(each.group, each.ranks): each.share for each in self._uneven(job)}
        every = job.facts.transfers
        every = every[every["collective"].str.startswith("all_to_all").to_numpy(dtype=bool)]
        share = [shares.get(key, 0.0) for key in zip(every["process_group"], every["ranks"], strict=True)]
        return JobChange(
            transfer_ns=dict(zip(every["first"].tolist(), (every["transfer"] * share).tolist(), strict=True))
        )

    def tell(self, job: JobEvidence[ExchangeEvidence]) -> Finding | None:
        uneven = self._uneven(job)
        if not job.max_saving_ns or not uneven:
            return None
        most = max(uneven, key=lambda each: each.excess)
        shares = most.received / max(int(most.received.sum()), 1)
        order = np.argsort(-shares, kind="stable")[:_SHOWN].tolist()
        told = ", ".join(f"rank {most.ranks[place]} {job.percent(float(shares[place]))}" for place in order)
        group = f" of {most.group}" if most.group else ""
        return self.finding(
            job,
            f"All-to-alls{group} are uneven: the fullest rank moves {most.ratio:.2g} times the mean",
            evidence=f"{counted(most.calls, 'call')} among {len(most.ranks)} ranks; of all elements arrive: "
            f"{told} (even: {job.percent(1 / len(most.ranks))}).",
            assumption="All ranks move the mean; a call then takes that much less.",
            ranks=tuple(sorted({rank for each in uneven for rank in each.ranks})),
            spans=(),
        )

    def _uneven(self, job: JobEvidence[ExchangeEvidence]) -> list[_Exchange]:
        """The groups whose exchanges are uneven."""
        exchanges = job.facts.cached("exchanges", lambda: _exchanges(job))
        return [exchange for exchange in exchanges if exchange.ratio >= self.ratio]


def _sent(rows: pd.DataFrame) -> Packed:
    """The first exchanges of each group, and how many it has in all (`calls`): a rank may have room for fewer rows."""
    rows = rows.assign(calls=rows.groupby(_GROUP)["dur"].transform("size").astype("int64"))
    most = at_most(_MOST_CALLS, int(rows["calls"].max()) if len(rows) else 0)
    rows = rows[rows.groupby(_GROUP).cumcount().to_numpy() < most]
    first = np.lexsort((np.arange(len(rows)), rows.groupby(_GROUP).ngroup().to_numpy(), -rows["calls"].to_numpy()))
    rows = rows.iloc[np.sort(first[:_MOST_CALLS_IN_ALL])]
    return pack({"exchanges": rows[[*_GROUP, "calls", "sent", "received", "dur"]].astype({"group_size": "int64"})})


def _exchanges(job: JobEvidence[ExchangeEvidence]) -> list[_Exchange]:
    """Groups of which all ranks are recorded, with as many calls on each."""
    sizes = dict[tuple[str, str, int], dict[int, NDArray[np.int64]]]()
    for rank, each in sorted(job.by_rank.items()):
        for (group, members, size), mine in each.exchanges.frames()["exchanges"].groupby(_GROUP):
            key = str(group), str(members), int(cast("int", size))
            sizes.setdefault(key, {})[rank] = mine[["calls", "sent", "received", "dur"]].to_numpy(np.int64)
    return [
        _exchange(key[0], by_rank)
        for key, by_rank in sorted(sizes.items())
        if len(by_rank) == key[2] > 1 and len({int(calls[0, 0]) for calls in by_rank.values()}) == 1
    ]


def _exchange(group: str, by_rank: Mapping[int, NDArray[np.int64]]) -> _Exchange:
    shortest = min(map(len, by_rank.values()))  # A rank may have sent fewer.
    calls, sent, received, took = np.stack([each[:shortest] for each in by_rank.values()]).transpose(2, 0, 1)
    most, mean, count = np.maximum(sent, received).max(axis=0), received.mean(axis=0), int(calls[0, 0])
    return _Exchange(group, tuple(by_rank), count, received.sum(axis=1), most, mean, took.min(axis=0))
