"""A rule about exchanges in which some ranks send or receive more than others: experts that are asked unequally."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from htareport.findings import Finding
from htareport.packed import Packed, pack
from htareport.room import at_most
from htareport.rules.base import Change, Evidence, Family, Found, Rule
from htareport.rules.communication_groups import TAKEN, transfers
from htareport.rules.communication_sets import awaited, kernels, sets_of
from htareport.rules.communication_skew import calls_of, skew_of
from htareport.rules.compute_time import in_steps
from htareport.rules.host_rows import per
from htareport.rules.rank import Rank, common, total
from htareport.trace import Capability
from htareport.units import counted

_MOST_CALLS = 2_000  # Of a group; the first, which are the same on every rank.
_MOST_CALLS_IN_ALL = 4_000  # Of a rank; those of the groups with most calls.
_GROUP = ["process_group", "members", "group_size"]
_SHOWN = 8


class _Exchange(NamedTuple):
    """The calls of one group: elements that each rank (row) sends or gets, whichever is more, and of all ranks.

    `mean` is what each gets if all get as many; `transfer` is how long the shortest takes, ns.
    """

    group: str
    ranks: tuple[int, ...]
    received: NDArray[np.int64]  # By rank, of all calls.
    most: NDArray[np.int64]
    mean: NDArray[np.float64]
    transfer: NDArray[np.int64]

    @property
    def ratio(self) -> float:
        """What the fullest rank of each call moves against the mean, over all calls."""
        return float(self.most.sum() / self.mean.sum()) if self.mean.sum() else 1.0

    @property
    def excess(self) -> float:
        """What calls would take less if all ranks moved as much, ns."""
        share = 1 - np.divide(self.mean, self.most, out=np.ones(len(self.mean)), where=self.most > 0)
        return float((np.maximum(share, 0) * self.transfer).sum())


@dataclass(frozen=True)
class UnevenExchange(Rule):
    """Ranks send or receive unequal amounts in all-to-alls, so that these take as long as for the fullest one.

    ## When it speaks
    All ranks of a group are recorded, and the trace has the sizes of its all-to-alls. Summed over the calls, the rank
    that moves most in each moves at least `ratio` times the mean; and compute waits for all-to-alls for at least
    `least` of the step.

    ## What it could save
    Of what each call takes once all ranks are there, the part that the fullest rank moves above the mean; on each rank
    no more than compute waits there for all-to-alls.

    ## What to do
    Mixtures of experts: a loss that balances them, a capacity per expert, other experts together on a rank, or copies
    of those that are asked most. Tables of embeddings: spread the large or hot ones over the ranks.

    ## How to verify
    Ranks receive equal shares, and all-to-alls take less time in *Collectives*.
    """

    code, title, family, section = "N15", "All-to-alls are uneven", Family.COMMUNICATION, "collectives"
    requires = frozenset({Capability.GPU, Capability.COMM})
    takes_from = "N1"

    ratio: float = 1.3
    least: float = 0.02

    def look(self, rank: Rank) -> Evidence | None:
        rows = kernels(rank)
        rows = rows[rows["collective"].str.startswith("all_to_all").to_numpy(dtype=bool)]
        rows = rows[in_steps(rank)[rows.index.to_numpy()] & (rows["received"] >= 0).to_numpy()]
        rows = rows[rows.groupby(_GROUP).cumcount().to_numpy() < at_most(_MOST_CALLS)]
        counts = rows.groupby(_GROUP)["dur"].transform("size")
        first = np.lexsort((np.arange(len(rows)), rows.groupby(_GROUP).ngroup().to_numpy(), -counts.to_numpy()))
        rows = rows.iloc[np.sort(first[: at_most(_MOST_CALLS_IN_ALL, len(rows))])]
        sizes = pack({"exchanges": rows[[*_GROUP, "sent", "received", "dur"]].astype({"group_size": "int64"})})
        calls = calls_of(rank)
        waits = total(common(awaited(rank), sets_of(rank, rows))) / per(rank)
        return replace(calls, numbers={**calls.numbers, "exchanges": sizes, "exchange waits": waits})

    def takes(self, found: Found) -> Mapping[int, float]:
        skew, others = skew_of(found), found.shared.get(TAKEN, {})
        numbers = {rank: each.numbers for rank, each in found.ranks.items()}
        taken = dict.fromkeys(found.ranks, 0.0)
        if max(each["exchange waits"] for each in numbers.values()) < self.least * found.step_ns:
            return taken
        for each in self._uneven(found):
            for rank in each.ranks:
                taken[rank] += each.excess / skew.per[rank]
        for rank, mine in numbers.items():
            left = mine["awaited"] - skew.straggling[rank] - skew.waiting[rank] - others.get(rank, 0.0)
            taken[rank] = min(taken[rank], mine["exchange waits"], max(left, 0.0))
        return taken

    def change(self, found: Found) -> Change:
        shares = {
            (each.group, each.ranks): each.excess / max(int(each.transfer.sum()), 1) for each in self._uneven(found)
        }
        every = transfers(found)
        every = every[every["collective"].str.startswith("all_to_all").to_numpy(dtype=bool)]
        share = [shares.get(key, 0.0) for key in zip(every["process_group"], every["ranks"], strict=True)]
        return Change(shorter=dict(zip(every["first"].tolist(), (every["transfer"] * share).tolist(), strict=True)))

    def tell(self, found: Found) -> Finding | None:
        uneven = self._uneven(found)
        if not found.most or not uneven:
            return None
        most = max(uneven, key=lambda each: each.excess)
        shares = most.received / max(int(most.received.sum()), 1)
        order = np.argsort(-shares, kind="stable")[:_SHOWN].tolist()
        told = ", ".join(f"rank {most.ranks[place]} {found.percent(float(shares[place]))}" for place in order)
        group = f" of {most.group}" if most.group else ""
        return self.finding(
            found,
            f"All-to-alls{group} are uneven: the fullest rank moves {most.ratio:.2g} times the mean",
            evidence=f"{counted(len(most.transfer), 'call')} among {len(most.ranks)} ranks; of all elements arrive: "
            f"{told} (even: {found.percent(1 / len(most.ranks))}).",
            advice="Balance what is exchanged: a balancing loss or a capacity per expert, experts that are asked most "
            "on different ranks or copied; large and hot tables spread over ranks.",
            assumption="All ranks move the mean; a call then takes that much less.",
            verify="Ranks receive equal shares, and all-to-alls take less time in *Collectives*.",
            ranks=tuple(sorted({rank for each in uneven for rank in each.ranks})),
            spans=(),
        )

    def _uneven(self, found: Found) -> list[_Exchange]:
        """The groups whose exchanges are uneven."""
        if "exchanges" not in found.shared:
            found.shared["exchanges"] = list(_exchanges(found))
        every: list[_Exchange] = found.shared["exchanges"]
        return [each for each in every if each.ratio >= self.ratio]


def _exchanges(found: Found) -> list[_Exchange]:
    """Groups of which all ranks are recorded, with as many calls on each."""
    sizes = dict[tuple[str, str, int], dict[int, NDArray[np.int64]]]()
    for rank, each in sorted(found.ranks.items()):
        packed: Packed = each.numbers["exchanges"]
        for (group, members, size), mine in packed.frames()["exchanges"].groupby(_GROUP):
            key = str(group), str(members), int(cast("int", size))
            sizes.setdefault(key, {})[rank] = mine[["sent", "received", "dur"]].to_numpy(np.int64)
    return [
        _exchange(key[0], by_rank)
        for key, by_rank in sorted(sizes.items())
        if len(by_rank) == key[2] > 1 and len({len(calls) for calls in by_rank.values()}) == 1
    ]


def _exchange(group: str, by_rank: Mapping[int, NDArray[np.int64]]) -> _Exchange:
    sent, received, took = np.stack(list(by_rank.values())).transpose(2, 0, 1)
    most = np.maximum(sent, received).max(axis=0)
    return _Exchange(group, tuple(by_rank), received.sum(axis=1), most, received.mean(axis=0), took.min(axis=0))
