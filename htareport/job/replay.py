"""The replay of a job: what a step would take if something were different, with ranks that wait for each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.longest_paths import LongestPaths
from htareport.rank.replay.summary import DEVICE, HOST, SCALES

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

EVERYTHING = "*"  # The code of the change that holds the changes of all rules.
_MAX_NUMBERS = 8_000_000  # In an array.


@dataclass(frozen=True)
class JobChange:
    """What is different in a job.

    `codes` are rules whose changes of ranks are made, with the share of each. Ranks `without_lateness` arrive at
    collectives no later than the others. With `is_balanced`, all ranks take equally long between collectives.
    `transfer_ns` is by how much the transfer of a collective takes less, by row of its calls among those of all ranks;
    `transfer_share` is the share of their time that all transfers take. `device_scale` and `host_scale` are the shares
    of their time that a rank's kernels take, and its host's work.
    """

    codes: Mapping[str, float] = field(default_factory=dict[str, float])
    without_lateness: frozenset[int] = frozenset()
    is_balanced: bool = False
    transfer_ns: Mapping[int, float] = field(default_factory=dict[int, float])
    transfer_share: float = 1.0
    device_scale: Mapping[int, float] = field(default_factory=dict[int, float])
    host_scale: Mapping[int, float] = field(default_factory=dict[int, float])

    def and_also(self, other: JobChange) -> JobChange:
        """Return both changes."""
        return JobChange(
            codes=_joined(self.codes, other.codes, max),
            without_lateness=self.without_lateness | other.without_lateness,
            is_balanced=self.is_balanced or other.is_balanced,
            transfer_ns=_joined(self.transfer_ns, other.transfer_ns, max),
            transfer_share=min(self.transfer_share, other.transfer_share),
            device_scale=_joined(self.device_scale, other.device_scale, min),
            host_scale=_joined(self.host_scale, other.host_scale, min),
        )


Key = TypeVar("Key")


def _joined(
    one: Mapping[Key, float], other: Mapping[Key, float], choose: Callable[[float, float], float]
) -> dict[Key, float]:
    """All that is in either; of what is in both, the chosen one."""
    both = {key: choose(one[key], other[key]) for key in one if key in other}
    return dict(one) | dict(other) | both


@dataclass(frozen=True)
class Change:
    """How much the delays of some edges of the graph are longer under a change, ns."""

    edge: Ints
    ns: Floats


@dataclass(frozen=True)
class RankNodes:
    """Which nodes of the graph belong to a rank, from `first` to below `stop`, and at which its last step ends.

    `role` says of each what it is: equal ones of two ranks have the same part in the program.
    """

    rank: int
    first: int
    stop: int
    end: int
    role: Ints


@dataclass(frozen=True)
class JobReplay:
    """The graphs of all ranks as one, joined where ranks meet.

    A collective begins at a node of its own once its last rank is ready (`meet_edge` leads there from a rank's node,
    `meet_rank` is that rank), and ends on each rank after the transfer (`transfer_edge`, of the collective
    `transfer_of`, a row of `calls`: places among the calls of all ranks). `codes` are the rules that changed any rank,
    `changes` what they changed, by code, `claims` how much less transfers take with them, by code and collective.
    """

    ranks: tuple[RankNodes, ...]
    source: Ints
    target: Ints
    delay: Floats
    begin: Floats
    meet_edge: Ints
    meet_rank: Ints
    transfer_edge: Ints
    transfer_of: Ints
    calls: Mapping[int, int]
    codes: frozenset[str]
    changes: Mapping[str, Change]
    claims: Mapping[str, Floats]
    paths: LongestPaths
    num_steps: int
    error_ns: float

    @property
    def end_ns(self) -> float:
        """When the last rank is done, as replayed without changes."""
        return float(self._ends(self.delay[:, None], [JobChange()])[0])

    def saving(self, change: JobChange) -> float:
        """By how much a step gets shorter, ns; below zero: longer."""
        return self.savings([change])[0]

    def savings(self, changes: Sequence[JobChange]) -> list[float]:
        """The same for several changes, each by itself."""
        end, savings = self.end_ns, list[float]()
        width = max(1, _MAX_NUMBERS // max(len(self.delay), 1))
        for first in range(0, len(changes), width):
            some = changes[first : first + width]
            delays = np.stack([self._delays(change) for change in some], axis=1)
            savings += ((end - self._ends(delays, some)) / self.num_steps).tolist()
        return savings

    def _ends(self, delays: Floats, changes: Sequence[JobChange]) -> Floats:
        """When the last rank is done under each change; where all take the mean, when they are done on average."""
        ends = self.paths.times(delays, self.begin)[[nodes.end for nodes in self.ranks]]
        latest: Floats = np.empty(len(changes))
        for column, change in enumerate(changes):
            if change.is_balanced:
                latest[column] = self._mean_end(delays[:, [column]])
                continue
            left_out = np.array([nodes.rank in change.without_lateness for nodes in self.ranks])
            chosen = ends[~left_out, column] if not left_out.all() else ends[:, column]
            latest[column] = chosen.max()
        return latest

    def _mean_end(self, delay: Floats) -> float:
        """When all ranks are done if each arrives with the mean of all at every collective.

        The earlier of two ways to tell: all take the median of what they take between the same points, where their
        graphs are alike; or collectives begin at the mean of the arrivals, which leaves each rank its other work.
        """
        meets = np.zeros(self.paths.num_nodes, np.bool_)
        meets[self.target[self.meet_edge]] = True
        ends = [nodes.end for nodes in self.ranks]
        by_arrival = self.paths.times(delay, self.begin, meets)[ends].mean()
        by_interval = self.paths.times(self._usual_delays(delay[:, 0])[:, None], self.begin)[ends].max()
        return float(min(by_arrival, by_interval))

    def _usual_delays(self, delay: Floats) -> Floats:
        """Delays where every rank takes the median of all ranks that have the same part in the program."""
        rank_of, role = (np.full(self.paths.num_nodes, -1, np.int64) for _ in range(2))
        for number, nodes in enumerate(self.ranks):
            rank_of[nodes.first : nodes.stop], role[nodes.first : nodes.stop] = number, nodes.role
        own = np.flatnonzero((rank_of[self.source] == rank_of[self.target]) & (rank_of[self.target] >= 0))
        key = role[self.source[own]] * (int(role.max(initial=0)) + 2) + role[self.target[own]]
        order = np.lexsort((delay[own], key))
        _, first, count = np.unique(key[order], return_index=True, return_counts=True)
        low, high = (delay[own[order[first + half]]] for half in ((count - 1) // 2, count // 2))
        shared = np.repeat(count == len(self.ranks), count)
        delays = delay.copy()
        delays[own[order[shared]]] = np.repeat((low + high) / 2, count)[shared]
        return delays

    def _delays(self, change: JobChange) -> Floats:
        delay = self.delay.copy()
        self._change(delay, change.codes)
        for factors, what in ((change.device_scale, DEVICE), (change.host_scale, HOST)):
            for rank, factor in factors.items():
                self._scale(delay, what, rank, factor)
        self._shorten_transfers(delay, change)
        if change.without_lateness:
            delay[self.meet_edge[self._on_time(change.without_lateness)]] = -np.inf
        return delay

    def _on_time(self, ranks: Iterable[int]) -> NDArray[np.bool_]:
        """Which ways to collectives are those of these ranks, where others take part as well."""
        late = np.isin(self.meet_rank, list(ranks))
        others = np.bincount(self.target[self.meet_edge[~late]], minlength=self.paths.num_nodes)
        return np.asarray(late & (others[self.target[self.meet_edge]] > 0), np.bool_)

    def _change(self, delay: Floats, codes: Mapping[str, float]) -> None:
        """Make the changes of some rules; together they take no more than all rules do."""
        known = [(self.changes[code], share) for code, share in codes.items() if code in self.changes and share > 0]
        longer = np.zeros(len(delay))
        for change, share in known:
            longer[change.edge] += change.ns * share
        if len(known) > 1 and EVERYTHING in self.changes:
            whole = np.zeros(len(delay))
            whole[self.changes[EVERYTHING].edge] = self.changes[EVERYTHING].ns
            longer = np.maximum(longer, np.minimum(whole, 0.0))
        delay += longer

    def _scale(self, delay: Floats, what: str, rank: int, factor: float) -> None:
        """Let a rank's kernels, or its host's work, take a share of their time: between the shares that are known."""
        nodes = next((nodes for nodes in self.ranks if nodes.rank == rank), None)
        if nodes is None:
            return
        known = np.zeros((len(SCALES) + 1, len(delay)))
        for place, scale in enumerate(SCALES, 1):
            change = self.changes.get(f"{what}{scale}")
            if change is not None:
                known[place, change.edge] = change.ns
        own = (self.target >= nodes.first) & (self.target < nodes.stop)
        shares = np.array([1.0, *SCALES])
        if factor > 1:  # As much more for each share as is known to be less.
            delay[own] -= known[1, own] * (factor - 1) / (1 - SCALES[0])
            return
        place = int(np.clip(np.searchsorted(-shares, -factor), 1, len(SCALES)))
        weight = (shares[place - 1] - factor) / (shares[place - 1] - shares[place])
        longer = known[place - 1] + (known[place] - known[place - 1]) * weight
        delay[own] += longer[own]

    def _shorten_transfers(self, delay: Floats, change: JobChange) -> None:
        less = np.zeros(self.num_collectives)
        for code, share in change.codes.items():
            if code in self.claims:
                less += share * self.claims[code]
        if change.transfer_ns:
            for call, ns in change.transfer_ns.items():
                if (number := self.calls.get(call)) is not None:
                    less[number] = max(less[number], ns)
        lasts = delay[self.transfer_edge]
        moving = np.full(self.num_collectives, np.inf)
        np.minimum.at(moving, self.transfer_of, np.maximum(lasts, 0.0))
        less = np.minimum(less + (1 - change.transfer_share) * np.where(np.isinf(moving), 0.0, moving), moving)
        delay[self.transfer_edge] = lasts - less[self.transfer_of]

    @property
    def num_collectives(self) -> int:
        """How many collectives are joined across ranks."""
        return int(self.transfer_of.max(initial=-1)) + 1
