"""A rule about groups whose transfers stand out among many of their kind, and the ranks that these have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from htareport.job.replay import JobChange
from htareport.job.transfers import KIND, MIN_TRANSFERS, excess_by_call, medians_by_group
from htareport.rank.capability import Capability
from htareport.rank.rank import Rank
from htareport.report import Unit
from htareport.report.findings import Finding
from htareport.report.number_lists import listed
from htareport.report.units import text
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence

_DEVIATION = 1.4826  # Of a normal distribution: its standard deviation over the median distance from the middle.
_SCATTER = 0.05  # Of the middle: groups that differ by less are equal, however well the others agree.
_SHOWN = 3


class _Slow(NamedTuple):
    """Groups that stand out, the slowest first, those that N7 does not speak of, and ranks that are behind all."""

    groups: pd.DataFrame
    own: pd.DataFrame
    suspects: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class HostEvidence(Evidence):
    """The host of a rank, empty where the trace does not name it."""

    host: str


@dataclass(frozen=True)
class SlowLink(Rule[HostEvidence]):
    """Some groups of many move the same messages more slowly, and one rank may be in all of them.

    ## When it speaks
    At least `groups` groups of one name and size run the same collective with messages of one size, all ranks of them
    are recorded, and without waiting the transfers of a group (their median) are more than `z` deviations above the
    middle of all: deviations are the median distance from the middle, as that of a normal distribution, and at least
    5 % of the middle. What its transfers take longer than the middle is at least `least` of the step. Sends from one
    rank to another are not compared.

    ## What it could save
    On the ranks of such groups, what their transfers take longer than the middle, as far as compute waits for
    communication and N7 does not speak of it.

    ## What to do
    - **rank**: Look at the ranks that all slow groups have in common: the network card and PCIe slot of the device
      (`nvidia-smi topo -m`, `amd-smi topology`), link errors (`nvidia-smi nvlink -e`, `ethtool -S`), other jobs on the
      host. Then run with that device left out.
    - **link**: Look at what lies between these ranks, not at one of them: switch, cable, PCIe slot. `NCCL_DEBUG=INFO`
      says which way they take: compare it with that of a group that is not slow.

    ## How to verify
    Transfers of all groups take as long.
    """

    code, title, family, section = "N8", "A link or rank is slow", Family.COMMUNICATION, "collectives"
    requires = frozenset({Capability.GPU, Capability.COMM})
    reattributes_from, follows = "N1", "N7"

    z: float = 3.0
    least: float = 0.01
    groups: float = 4.0

    def look(self, rank: Rank) -> HostEvidence | None:
        return HostEvidence(host=next((capture.host for capture in rank.captures if capture.host), ""))

    def reattributed_ns(self, job: JobEvidence[HostEvidence]) -> Mapping[int, float]:
        costs = dict.fromkeys(job.by_rank, 0.0)
        for rank, excess in self._excess(job, self._slow(job).own).items():
            unexplained = job.facts.transfer_wait_ns(rank) - job.shared.slow_group_ns.get(rank, 0.0)
            costs[rank] = min(max(unexplained, 0.0), excess)
        return costs

    def change(self, job: JobEvidence[HostEvidence]) -> JobChange:
        return JobChange(transfer_ns=excess_by_call(job.facts.transfers, self._slow(job).own, "middle"))

    def tell(self, job: JobEvidence[HostEvidence]) -> Finding | None:
        slow = self._slow(job)
        told = slow.groups if slow.suspects else slow.own  # A rank behind what N7 speaks of is news, too.
        if not len(told):
            return None
        ranks = slow.suspects or tuple(sorted({rank for each in told["ranks"] for rank in each}))
        row, many = told.iloc[0], "s" * (len(slow.suspects) != 1)
        times = f"{row['ratio']:.2g} times as long"
        title = (
            f"Rank{many} {listed(slow.suspects)} {'are' if many else 'is'} in every slow group: transfers take up to "
            f"{times} as elsewhere"
            if slow.suspects
            else f"{row['collective']} of ranks {listed(row['ranks'])} takes {times} as in other groups of its kind"
        )
        return self.finding(
            job,
            title,
            evidence=f"{'; '.join(_words(each, job) for each in told.head(_SHOWN).to_dict('records'))} (medians, "
            f"without waiting).{_hosts(job, ranks)}",
            cases=("rank" if slow.suspects else "link",),
            assumption="Transfers of the slow groups take as long as those of the middle one.",
            snippet="NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH python main.py",
            ranks=ranks,
            spans=(),
        )

    def _excess(self, job: JobEvidence[HostEvidence], groups: pd.DataFrame) -> dict[int, float]:
        """What transfers of groups take longer, ns per step by rank."""
        windows, sums = job.facts.arrival_skew.windows, dict[int, float]()
        for row in groups.to_dict("records"):
            for rank in row["ranks"]:
                sums[rank] = sums.get(rank, 0.0) + row["excess"] / windows[rank]
        return sums

    def _slow(self, job: JobEvidence[HostEvidence]) -> _Slow:
        return job.facts.cached(self, lambda: self._compared(job))

    def _compared(self, job: JobEvidence[HostEvidence]) -> _Slow:
        table = _groups(job.facts.transfers)
        enough = table.groupby(KIND)["transfer"].transform("size") >= self.groups
        stands_out = enough & (table["z"] > self.z)
        worth = self._excess(job, table[stands_out])
        if max(worth.values(), default=0.0) < self.least * job.step_ns:
            return _Slow(table.iloc[:0], table.iloc[:0], ())
        others = table.iloc[:0] if job.shared.slow_groups is None else job.shared.slow_groups
        known = set(zip(*(others[name] for name in (*KIND, "ranks")), strict=True))
        keys = zip(*(table[name] for name in (*KIND, "ranks")), strict=True)
        also = pd.Series([key in known for key in keys], table.index, dtype=bool)
        slow = table[stands_out].sort_values("ratio", ascending=False, kind="stable")
        own = slow[~also[slow.index]]
        return _Slow(slow, own, _suspects(table, stands_out | also))


def _groups(each: pd.DataFrame) -> pd.DataFrame:
    """Groups by kind: median transfer, how often, the middle of the kind, and how far each stands out from it."""
    each = each[each["transfer"] > 0]
    table = medians_by_group(each)
    table = table[table["size"] >= MIN_TRANSFERS].reset_index(drop=True)
    middle = table.groupby(KIND)["transfer"].transform("median")
    away = (table["transfer"] - middle).abs().groupby([table[name] for name in KIND]).transform("median")
    scale = (_DEVIATION * away).clip(lower=_SCATTER * middle)
    return table.assign(
        middle=middle,
        z=(table["transfer"] - middle) / scale,
        ratio=table["transfer"] / middle,
        excess=(table["sum"] - table["size"] * middle).clip(lower=0),
    )


def _suspects(table: pd.DataFrame, slow: pd.Series[Any]) -> tuple[int, ...]:
    """Ranks that are in all of several slow groups, and in no other group of the same kinds."""
    sets = {frozenset(ranks) for ranks in table.loc[slow, "ranks"]}
    if len(sets) < 2:  # noqa: PLR2004  what one group has in common says nothing
        return ()
    common = frozenset.intersection(*sets)
    kinds = pd.MultiIndex.from_frame(table[KIND])
    fine = table[~slow & kinds.isin(kinds[slow])]
    found = common - {rank for ranks in fine["ranks"] for rank in ranks}
    return tuple(sorted(found)) if all(found < each for each in sets) else ()


def _words(row: Mapping[Any, Any], job: JobEvidence[HostEvidence]) -> str:
    what = " · ".join(filter(None, (row["collective"], row["process_group"])))
    size = f" of {text(row['bytes'], Unit.BYTES)}" if row["bytes"] >= 0 else ""
    return (
        f"{what}{size} takes {job.time(row['transfer'])} among ranks {listed(row['ranks'])}, "
        f"{job.time(row['middle'])} in the middle of its {row['group_size']}-rank groups"
    )


def _hosts(job: JobEvidence[HostEvidence], ranks: tuple[int, ...]) -> str:
    """Which hosts these ranks are on, as far as the traces tell and they are few."""
    hosts = sorted({job.by_rank[rank].host for rank in ranks if rank in job.by_rank})
    if not hosts or "" in hosts or len(hosts) > _SHOWN:
        return ""
    return f" {'They are' if len(ranks) > 1 else 'It is'} on {' and '.join(hosts)}."
