"""A rule about large messages that move more slowly than smaller ones of the same group: a wrong protocol for the size.

The protocol itself is not in the trace. NCCL builds kernels for its LL protocol only, which run all the others too, so
that `_LL` in a kernel's name says nothing about how it moved its bytes: their rate does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.job.replay import JobChange
from htareport.job.transfers import KIND, MIN_TRANSFERS, excess_by_call, medians_by_group
from htareport.rank.capability import Capability
from htareport.rank.rank import Rank
from htareport.report import Unit
from htareport.report.findings import Finding
from htareport.report.units import text
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence

_GROUP = ["collective", "process_group", "group_size", "ranks"]
_SHOWN = 3
_CERTAIN_NS = 50_000  # Of a transfer: clocks of ranks agree to about that, so that less says little about a rate.


@dataclass(frozen=True)
class FallingBandwidth(Rule[Evidence]):
    """Large messages reach less bandwidth than smaller ones of the same kind and group.

    ## When it speaks
    All ranks of a group are recorded; once all have come, its messages of at least `large` MiB reach less than `peer`
    of the bandwidth that messages of the same collective reach there which are smaller by no more than a factor `span`
    and take 50 µs or more (medians of three calls or more); and what they take longer for that is at least `least` of
    the step. Bandwidth grows with size where the library chooses the protocol: LL, for small messages, moves as many
    flags as data, and so at most half of what a link carries. A kernel's name does not tell the protocol: `_LL` stands
    in all of NCCL's.

    ## What it could save
    On the ranks of such groups, what these messages take longer than at the bandwidth of the smaller ones, as far as
    compute waits for communication and N7 does not speak of it.

    ## What to do
    Let NCCL choose: unset `NCCL_PROTO` and `NCCL_ALGO`, and leave out tuner plug-ins and their files. `NCCL_DEBUG=INFO`
    with `NCCL_DEBUG_SUBSYS=TUNING` shows what it chooses for each size.

    ## How to verify
    The bandwidth grows with the size of messages in *Collectives*.
    """

    code, title, family, section = (
        "N11",
        "Large messages are slower than small ones",
        Family.COMMUNICATION,
        "collectives",
    )
    requires = frozenset({Capability.GPU, Capability.COMM})
    reattributes_from, confidence = "N1", "low"

    large: float = 4.0
    peer: float = 0.6
    span: float = 16.0
    least: float = 0.01

    def look(self, rank: Rank) -> Evidence | None:
        del rank  # What is said of it stands in the facts of the job.
        return Evidence()

    def reattributed_ns(self, job: JobEvidence[Evidence]) -> Mapping[int, float]:
        windows, others = job.facts.arrival_skew.windows, job.shared.slow_group_ns
        sums = dict.fromkeys(job.by_rank, 0.0)
        for row in self._slow(job).to_dict("records"):
            for rank in row["ranks"]:
                sums[rank] += row["excess"] / windows[rank]
        return {
            rank: min(excess, max(job.facts.transfer_wait_ns(rank) - others.get(rank, 0.0), 0.0))
            for rank, excess in sums.items()
        }

    def change(self, job: JobEvidence[Evidence]) -> JobChange:
        return JobChange(transfer_ns=excess_by_call(job.facts.transfers, self._slow(job), "usual"))

    def tell(self, job: JobEvidence[Evidence]) -> Finding | None:
        slow = self._slow(job)
        if not job.max_saving_ns or not len(slow):
            return None
        row = slow.iloc[0]
        ranks = sorted({rank for each in slow["ranks"] for rank in each})
        what = " · ".join(filter(None, (row["collective"], row["process_group"])))
        return self.finding(
            job,
            f"{what} moves {text(row['bytes'], Unit.BYTES)} at {row['share']:.0%} of the bandwidth of smaller messages",
            evidence=f"{'; '.join(_words(each, job) for each in slow.head(_SHOWN).to_dict('records'))} (medians, "
            "without waiting).",
            assumption="Larger messages reach the bandwidth of the smaller ones; nothing else held up their links or "
            "took their processors.",
            snippet="unset NCCL_PROTO NCCL_ALGO NCCL_TUNER_PLUGIN",
            ranks=tuple(ranks) if len(ranks) < job.num_ranks else (),
            spans=(),
        )

    def _slow(self, job: JobEvidence[Evidence]) -> pd.DataFrame:
        return job.facts.cached(self, lambda: self._compared(job))

    def _compared(self, job: JobEvidence[Evidence]) -> pd.DataFrame:
        """Sizes of groups that are slow, those that cost most first: with their excess in all, and the `usual` time."""
        each = job.facts.transfers
        each = each[(each["bytes"] > 0) & (each["transfer"] > 0)]
        table = medians_by_group(each)
        table = table[table["size"] >= MIN_TRANSFERS].sort_values([*_GROUP, "bytes"], kind="stable", ignore_index=True)
        table["rate"] = table["bytes"] / table["transfer"]
        best = [self._best(mine) for _, mine in table.groupby(_GROUP, sort=False)]
        table = table.assign(best=np.concatenate(best) if best else np.zeros(0))
        table["share"] = (table["rate"] / table["best"]).where(table["best"] > 0, np.inf)
        slow = table[(table["bytes"] >= self.large * 2**20) & (table["share"] < self.peer)]
        if job.shared.slow_groups is not None:
            known = pd.MultiIndex.from_frame(job.shared.slow_groups[[*KIND, "ranks"]])
            slow = slow[~pd.MultiIndex.from_frame(slow[[*KIND, "ranks"]]).isin(known)]
        slow = slow.assign(usual=slow["bytes"] / slow["best"])
        slow = slow.assign(excess=(slow["sum"] - slow["size"] * slow["usual"]).clip(lower=0))
        windows = job.facts.arrival_skew.windows
        costs = [
            excess / min(windows[rank] for rank in ranks)
            for excess, ranks in zip(slow["excess"], slow["ranks"], strict=True)
        ]
        enough = max(costs, default=0.0) >= self.least * job.step_ns
        return slow.sort_values("excess", ascending=False, kind="stable") if enough else slow.iloc[:0]

    def _best(self, sizes: pd.DataFrame) -> NDArray[np.float64]:
        """The best rate of smaller messages, for each size of a group in order; 0 without any."""
        size = sizes["bytes"].to_numpy(np.float64)
        rate = np.where(sizes["transfer"] >= _CERTAIN_NS, sizes["rate"], 0.0)
        smaller = (size < size[:, None]) & (size * self.span >= size[:, None])
        best: NDArray[np.float64] = np.where(smaller, rate, 0.0).max(axis=1, initial=0.0)
        return best


def _words(row: Mapping[Any, Any], job: JobEvidence[Evidence]) -> str:
    took, usual = job.time(row["transfer"]), job.time(row["usual"])
    return f"{text(row['bytes'], Unit.BYTES)} take {took}, at the rate of smaller ones {usual}"
