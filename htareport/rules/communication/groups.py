"""Rules that compare process groups and ranks: which group is slow, and whether all ranks run the same collectives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from htareport.job.matching import Matching
from htareport.job.replay import JobChange
from htareport.job.transfers import KIND, MIN_TRANSFERS, excess_by_call, medians_by_group
from htareport.rank.capability import Capability
from htareport.rank.collective_calls import PER_SEQ
from htareport.rank.rank import Rank
from htareport.report import Unit
from htareport.report.findings import Finding, Severity
from htareport.report.units import text
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence

_REQUIRES = frozenset({Capability.GPU, Capability.COMM})


@dataclass(frozen=True)
class SlowGroup(Rule[Evidence]):
    """One process group moves the same messages much more slowly than the others of its kind.

    ## When it speaks
    Several groups of one name and size run the same collective with messages of at least `large` MiB; all ranks of them
    are recorded; and without waiting a group reaches less than `peer` of the best one's bandwidth (medians).

    ## What it could save
    On the ranks of that group, what its transfers take longer than at the best group's bandwidth, as far as compute
    waits for communication.

    ## What to do
    Look for what these ranks share: host, network card, switch, PCIe slot. Compare the ways that `NCCL_DEBUG=INFO`
    shows, and links with `nvidia-smi topo -m` or `amd-smi topology`.

    ## How to verify
    Transfers of all groups take as long.
    """

    code, title, family, section = "N7", "One group is slower than its peers", Family.COMMUNICATION, "collectives"
    requires = _REQUIRES
    reattributes_from = "N1"

    large: float = 32.0
    peer: float = 0.7

    def look(self, rank: Rank) -> Evidence | None:
        del rank  # What is said of it stands in the facts of the job.
        return Evidence()

    def reattributed_ns(self, job: JobEvidence[Any]) -> Mapping[int, float]:
        costs = dict.fromkeys(job.by_rank, 0.0)
        for row in self._slow(job).to_dict("records"):
            for rank in row["ranks"]:
                unexplained = job.facts.transfer_wait_ns(rank) - costs[rank]
                costs[rank] += min(max(unexplained, 0.0), row["excess"] / job.facts.arrival_skew.windows[rank])
        job.shared.slow_group_ns = costs
        return costs

    def change(self, job: JobEvidence[Any]) -> JobChange:
        return JobChange(transfer_ns=excess_by_call(job.facts.transfers, self._slow(job), "best"))

    def tell(self, job: JobEvidence[Any]) -> Finding | None:
        slow = self._slow(job)
        if not len(slow):
            return None
        row = slow.iloc[0]
        ranks = sorted({rank for each in slow["ranks"] for rank in each})
        return self.finding(
            job,
            f"{row['collective']} of ranks {', '.join(map(str, row['ranks']))} runs at {row['share']:.0%} of the "
            "bandwidth of its peers",
            evidence=f"Groups {row['process_group']} of {row['group_size']} ranks move "
            f"{text(row['bytes'], Unit.BYTES)} in {job.time(row['transfer'])} there, in {job.time(row['best'])} in "
            "the best group (medians, without waiting).",
            assumption="All groups reach the bandwidth of the best one.",
            snippet="NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH python main.py",
            ranks=tuple(ranks),
            spans=(),
        )

    def _slow(self, job: JobEvidence[Any]) -> pd.DataFrame:
        if job.shared.slow_groups is None:
            job.shared.slow_groups = self._compared(job.facts.transfers)
        return job.shared.slow_groups

    def _compared(self, each: pd.DataFrame) -> pd.DataFrame:
        """Slow groups, the slowest first: with their share of the best one's bandwidth and excess time in all."""
        each = each[(each["bytes"] >= self.large * 2**20) & (each["transfer"] > 0)]
        table = medians_by_group(each)
        table["best"] = table.groupby(KIND)["transfer"].transform("min")
        table["share"] = table["best"] / table["transfer"]
        table["excess"] = (table["sum"] - table["size"] * table["best"]).clip(lower=0)
        slow = table[(table["share"] < self.peer) & (table["size"] >= MIN_TRANSFERS)]
        return slow.sort_values("share", kind="stable")


@dataclass(frozen=True)
class Desynchronised(Rule[Evidence]):
    """Ranks of a group run different collectives under the same number: results may be wrong.

    ## When it speaks
    Under one sequence number of a process group, ranks run different collectives, or all_reduces and the like of
    different size.

    ## What it could save
    Nothing: it is about correctness.

    ## What to do
    Results may be wrong, or the job hangs. Find the branch that ranks take differently: conditions on data, unused
    parameters, uneven last batches.

    ## How to verify
    All ranks run the same collectives in the same order.
    """

    code, title, family, section = "N22", "Ranks run different collectives", Family.COMMUNICATION, "collectives"
    requires = _REQUIRES

    def look(self, rank: Rank) -> Evidence | None:
        del rank  # What is said of it stands in the facts of the job.
        return Evidence()

    def tell(self, job: JobEvidence[Any]) -> Finding | None:
        apart = _apart(job.facts.matching)
        if not len(apart):
            return None
        group, number = apart.iloc[0][["process_group", "number"]]
        mine = apart[(apart["process_group"] == group) & (apart["number"] == number)]
        told = "; ".join(
            f"rank {row['rank']} {row['collective']}"
            + (f" of {text(row['bytes'], Unit.BYTES)}" if row["bytes"] >= 0 else "")
            for row in mine.drop_duplicates(["collective", "bytes"]).to_dict("records")
        )
        times = apart.drop_duplicates(["members", "number"]).shape[0]
        return self.finding(
            job,
            f"Ranks run different collectives under the same number, {times:,} time{'s' * (times > 1)}",
            severity=Severity.HIGH,
            evidence=f"First in process group {group}, number {number}: {told}.",
            snippet="TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun main.py",
            ranks=tuple(sorted(set(mine["rank"].tolist()))),
            spans=(),
        )


def _apart(found: Matching) -> pd.DataFrame:
    """Calls whose sequence number has another collective or size on another rank of the group, in order of number."""
    named = ["collective", "process_group", "members", "group", "size", "has_seq"]
    calls = found.calls.join(found.kinds.set_index("kind")[named], on="kind")
    calls = calls[calls["has_seq"].to_numpy(dtype=bool) & calls["members"].ne("").to_numpy()]
    calls = calls.assign(number=calls["ordinal"] // PER_SEQ)
    place = ["group", "members", "number"]
    groups = calls.groupby(place)
    different = groups[["collective", "size"]].transform("nunique").gt(1).any(axis=1)
    calls = calls[different & groups["rank"].transform("nunique").gt(1)]
    calls = calls.sort_values([*place, "rank", "collective", "size"], kind="stable")
    what = calls["collective"] + calls["size"].map(" {}".format)
    runs = what.groupby([calls[name] for name in (*place, "rank")]).agg(", ".join)
    differ = runs.groupby(place).transform("nunique") > 1
    wanted = pd.MultiIndex.from_frame(calls[[*place, "rank"]])
    apart: pd.DataFrame = calls[differ.reindex(wanted).to_numpy(dtype=bool)]
    return apart.sort_values(["number", "group", "rank"], kind="stable")
