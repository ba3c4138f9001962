"""Rules that compare process groups and ranks: which group is slow, and whether all ranks run the same collectives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from htareport.algorithms.collectives import Matched, arrivals
from htareport.job.arrival_skew import calls_of, matched, skew_of
from htareport.rank.capability import Capability
from htareport.rank.collective_calls import PER_SEQ, Matching
from htareport.rank.rank import Rank
from htareport.rank.steps import OUTSIDE
from htareport.report import Unit
from htareport.report.findings import Finding, Severity
from htareport.report.units import text
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Change, Evidence, JobEvidence

_REQUIRES = frozenset({Capability.GPU, Capability.COMM})
KIND = ["collective", "process_group", "group_size", "bytes"]
FEWEST = 3  # Transfers of a group that say something.
TAKEN = "taken by slow groups"  # Where other rules find what N7 has taken, by rank.
SLOW = "slow groups"  # And the groups.


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
    Look at what these ranks have in common: host, network card, switch, PCIe slot. `NCCL_DEBUG=INFO` says which way
    they take, `nvidia-smi topo -m` or `amd-smi topology` how devices are connected.

    ## How to verify
    All groups have the same bus bandwidth in the section *Collectives*.
    """

    code, title, family, section = "N7", "One group is slower than its peers", Family.COMMUNICATION, "collectives"
    requires = _REQUIRES
    takes_from = "N1"

    large: float = 32.0
    peer: float = 0.7

    def look(self, rank: Rank) -> Evidence | None:
        return calls_of(rank)

    def takes(self, job: JobEvidence[Any]) -> Mapping[int, float]:
        skew, slow = skew_of(job), self._slow(job)
        taken = dict.fromkeys(job.by_rank, 0.0)
        for row in slow.to_dict("records"):
            for rank in row["ranks"]:
                left = job.by_rank[rank].numbers["awaited"] - skew.straggling[rank] - skew.waiting[rank] - taken[rank]
                taken[rank] += min(max(left, 0.0), row["excess"] / skew.per[rank])
        job.shared[TAKEN] = taken
        return taken

    def change(self, job: JobEvidence[Any]) -> Change:
        return Change(shorter=shortened(job, self._slow(job), "best"))

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
            advice="Look for what these ranks share: host, network card, switch, PCIe slot. Compare the ways that "
            "`NCCL_DEBUG=INFO` shows, and links with `nvidia-smi topo -m` or `amd-smi topology`.",
            assumption="All groups reach the bandwidth of the best one.",
            verify="Transfers of all groups take as long.",
            snippet="NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH python main.py",
            ranks=tuple(ranks),
            spans=(),
        )

    def _slow(self, job: JobEvidence[Any]) -> pd.DataFrame:
        if SLOW not in job.shared:
            job.shared[SLOW] = self._compared(transfers(job))
        slow: pd.DataFrame = job.shared[SLOW]
        return slow

    def _compared(self, each: pd.DataFrame) -> pd.DataFrame:
        """Slow groups, the slowest first: with their share of the best one's bandwidth and excess time in all."""
        each = each[(each["bytes"] >= self.large * 2**20) & (each["transfer"] > 0)]
        table = each.groupby([*KIND, "ranks"], sort=True)["transfer"].agg(["median", "size", "sum"]).reset_index()
        table = table.rename(columns={"median": "transfer"})
        table["best"] = table.groupby(KIND)["transfer"].transform("min")
        table["share"] = table["best"] / table["transfer"]
        table["excess"] = (table["sum"] - table["size"] * table["best"]).clip(lower=0)
        slow = table[(table["share"] < self.peer) & (table["size"] >= FEWEST)]
        return slow.sort_values("share", kind="stable")


def shortened(job: JobEvidence[Any], groups: pd.DataFrame, usual: str) -> dict[int, float]:
    """By how much transfers of some groups take longer than is usual: ns by place of a collective's first call."""
    every = transfers(job)
    table = every.merge(groups[[*KIND, "ranks", usual]], on=[*KIND, "ranks"])
    more = (table["transfer"] - table[usual]).clip(lower=0)
    return dict(zip(table["first"].tolist(), more.tolist(), strict=True))


def transfers(job: JobEvidence[Any]) -> pd.DataFrame:
    """All transfers, worked out once for all rules that ask: see `_transfers`."""
    if "transfers" not in job.shared:
        job.shared["transfers"] = _transfers(matched(job), has_steps=job.has_steps)
    every: pd.DataFrame = job.shared["transfers"]
    return every


def _transfers(found: Matching, *, has_steps: bool) -> pd.DataFrame:
    """Matched collectives of which all ranks are recorded, within steps: kind, ranks, bytes and transfer (ns).

    `first` is the place of the first of its calls.
    """
    kinds = found.kinds.set_index("kind")
    parts = [_rows_of(one, found, kinds) for one in found.together]
    columns = [*KIND, "ranks", "transfer", "step", "first"]
    every = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame({name: [] for name in columns})
    kept: pd.DataFrame = every[every["step"] != OUTSIDE] if has_steps else every
    return kept


def _rows_of(one: Matched, found: Matching, kinds: pd.DataFrame) -> pd.DataFrame:
    calls = found.calls.iloc[one.rows[:, 0]]
    each: pd.DataFrame = kinds.loc[calls["kind"], ["collective", "process_group", "group_size"]].reset_index(drop=True)
    whole = each["group_size"].to_numpy() == len(one.ranks)
    made: pd.DataFrame = each.assign(
        bytes=found.calls["bytes"].to_numpy()[one.rows].max(axis=1),
        ranks=pd.Series([tuple(one.ranks.tolist())] * len(each), each.index, dtype=object),
        transfer=arrivals(one, found.clocks).transfer,
        step=calls["step"].to_numpy(),
        first=one.rows[:, 0],
    )
    kept: pd.DataFrame = made[whole]
    return kept


@dataclass(frozen=True)
class Desynchronised(Rule[Evidence]):
    """Ranks of a group run different collectives under the same number: results may be wrong.

    ## When it speaks
    Under one sequence number of a process group, ranks run different collectives, or all_reduces and the like of
    different size.

    ## What it could save
    Nothing: it is about correctness.

    ## What to do
    Find the branch that ranks take differently (data-dependent conditions, unused parameters, uneven last batches).
    Catch it with `TORCH_DISTRIBUTED_DEBUG=DETAIL`; the flight recorder shows the stacks.

    ## How to verify
    The finding is gone.
    """

    code, title, family, section = "N22", "Ranks run different collectives", Family.COMMUNICATION, "collectives"
    requires = _REQUIRES

    def look(self, rank: Rank) -> Evidence | None:
        return calls_of(rank)

    def tell(self, job: JobEvidence[Any]) -> Finding | None:
        apart = _apart(matched(job))
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
            advice="Results may be wrong, or the job hangs. Find the branch that ranks take differently: conditions "
            "on data, unused parameters, uneven last batches.",
            verify="All ranks run the same collectives in the same order.",
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
