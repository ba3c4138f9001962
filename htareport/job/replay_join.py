"""Joins the graphs of all ranks where ranks meet: collectives, and what goes from one rank to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms.collectives import Clocks, Matched, align, match
from htareport.algorithms.frames import Frames
from htareport.algorithms.longest_paths import LongestPaths
from htareport.job.facts import JobFacts
from htareport.job.replay import EVERYTHING, Change, JobReplay, RankNodes
from htareport.rank.replay.summary import RankReplay
from htareport.report.number_lists import listed

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_BEGIN, _END, _STEP, _INNER, _KINDS = 1, 2, 3, 4, 5  # Of nodes; a role is a number of each.
NOT_ALIKE = "ranks recorded different steps"
CIRCLE = "ranks wait for each other in a circle"
NOT_MATCHED = "no collective is matched across ranks"
_GONE = -(2**61)  # Delays below this stand for ways that are gone.
_CLOCK_ERROR_NS = 50_000  # A transfer that seems to end so long before it begins belongs to clocks that are wrong.


class _RankGraph(NamedTuple):
    rank: int
    frames: Frames
    start: int
    codes: tuple[str, ...]


@dataclass
class _Edges:
    source: list[Ints] = field(default_factory=list[Ints])
    target: list[Ints] = field(default_factory=list[Ints])
    delay: list[Floats] = field(default_factory=list[Floats])
    count: int = 0

    def add(self, source: Ints, target: Ints, delay: Floats) -> Ints:
        """Add edges; return their places."""
        self.source.append(np.asarray(source, np.int64))
        self.target.append(np.asarray(target, np.int64))
        self.delay.append(np.asarray(delay, np.float64))
        places = np.arange(self.count, self.count + len(source))
        self.count += len(source)
        return places


def job_replay(replays: Mapping[int, RankReplay | str], facts: JobFacts) -> JobReplay | str:
    """Return the replay of a job; as words, why there is none."""
    missing = {rank: replay for rank, replay in replays.items() if isinstance(replay, str)}
    if missing:
        named = f"rank{'s' * (len(missing) > 1)} {listed(missing)}: " if len(missing) < len(replays) else ""
        return named + next(iter(missing.values()))
    graphs = [
        _RankGraph(rank, replay.frames.frames(), replay.start, replay.codes)
        for rank, replay in replays.items()
        if isinstance(replay, RankReplay)
    ]
    steps = [graph.frames["steps"]["number"].tolist() for graph in graphs]
    shortest = min(steps, key=len, default=[])
    if any(numbers[: len(shortest)] != shortest for numbers in steps):
        return NOT_ALIKE
    return _Join(graphs, facts, len(shortest)).replay()


class _Join:
    def __init__(self, graphs: list[_RankGraph], facts: JobFacts, num_steps: int) -> None:
        self.graphs, self.facts, self.num_steps = graphs, facts, num_steps
        sizes = [len(graph.frames["nodes"]) for graph in graphs]
        self.first = np.append(0, np.cumsum(sizes))
        self.calls = self._calls()

    def replay(self) -> JobReplay | str:
        first_call, shared, clocks = self._meetings()
        if len(self.graphs) > 1 and not shared:
            return NOT_MATCHED
        return self._joined(first_call, clocks)

    def _calls(self) -> pd.DataFrame:
        """The collectives of all ranks: rank (its place), begin and end (nodes), times on the rank's clock, row."""
        first_row = self._first_rows()
        parts = []
        for place, graph in enumerate(self.graphs):
            table, times = graph.frames["collectives"], graph.frames["nodes"]["time"].to_numpy(np.int64)
            begin, end = (table[name].to_numpy(np.int64) for name in ("begin", "end"))
            row = table["row"].to_numpy(np.int64)
            parts.append(
                pd.DataFrame(
                    {
                        "place": place,
                        "rank": graph.rank,
                        "begin": begin + self.first[place],
                        "end": end + self.first[place],
                        "start": times[begin] + graph.start,
                        "stop": times[end] + graph.start,
                        "row": np.where(row >= 0, row + first_row.get(graph.rank, 0), -1),
                        "sender": table["sender"].to_numpy(np.int64),
                        "receiver": table["receiver"].to_numpy(np.int64),
                        "group": table["group"].to_numpy(object),
                        "local": np.arange(len(table)),
                    }
                )
            )
        return pd.concat(parts, ignore_index=True)

    def _first_rows(self) -> dict[int, int]:
        """The first row of each rank among the calls of all ranks."""
        if not self.facts.collectives:
            return {}
        ranks, first = np.unique(self.facts.matching.calls["rank"].to_numpy(), return_index=True)
        return dict(zip(ranks.tolist(), first.tolist(), strict=True))

    def _meetings(self) -> tuple[Ints, int, Clocks]:
        """The first call of each call's collective, how many collectives ranks share, and the clocks by these."""
        matched = self._pairs()
        together, offset = list[Matched](), dict[int, int]()
        first_call, shared = np.arange(len(self.calls)), 0
        tables = [pair.rows for pair in matched]
        if self.facts.collectives:
            matching = self.facts.matching
            place = np.full(len(matching.calls), -1, np.int64)
            rows = self.calls["row"].to_numpy()
            place[rows[rows >= 0]] = np.flatnonzero(rows >= 0)
            together, offset = list(matching.together), matching.clocks.offset
            tables += [place[one.rows] for one in together]
        for table in tables:
            whole = table[(table >= 0).all(axis=1)]
            first_call[whole.ravel()] = np.repeat(whole.min(axis=1), whole.shape[1])
            shared += len(whole)
        if all(graph.rank in offset for graph in self.graphs):
            return first_call, shared, self.facts.matching.clocks
        return first_call, shared, align([*together, *matched]) if together or matched else Clocks()

    def _pairs(self) -> list[Matched]:
        """What goes from one rank to another, matched by order."""
        calls = self.calls
        direct = np.flatnonzero((calls["sender"] >= 0).to_numpy())
        if not len(direct):
            return []
        rows = calls.iloc[direct]
        key = rows.groupby(["sender", "receiver", "group"]).ngroup().to_numpy().astype(np.int64)
        rank = rows["rank"].to_numpy(np.int64)
        per_rank = pd.DataFrame({"key": key, "rank": rank}).groupby(["key", "rank"])
        ordinal = per_rank.cumcount().to_numpy().astype(np.int64)
        count = np.zeros(len(rows), np.int64)
        times = (rows["start"].to_numpy(np.int64), rows["stop"].to_numpy(np.int64))
        matches = match(rank, key, ordinal, count, times)
        return [
            Matched(matched.ranks, matched.key, direct[matched.rows], matched.start, matched.end)
            for matched in matches
            if len(matched.ranks) == 2  # noqa: PLR2004  who sends and who receives
        ]

    def _joined(self, first_call: Ints, clocks: Clocks) -> JobReplay | str:
        """The replay with collectives of the calls that have the same `first_call`; apart where that is a circle."""
        offset = np.array([clocks.offset.get(graph.rank, 0) for graph in self.graphs], np.int64)
        zero = min((graph.start - int(shift) for graph, shift in zip(self.graphs, offset, strict=True)), default=0)
        start, stop = (
            self.calls[name].to_numpy(np.int64) - offset[self.calls["place"]] - zero for name in ("start", "stop")
        )
        first_call = _sound(first_call, start, stop)
        number = np.unique(first_call, return_inverse=True)[1].astype(np.int64)
        count, num_nodes = int(number.max(initial=-1)) + 1, int(self.first[-1])
        latest = np.full(count, np.iinfo(np.int64).min)
        np.maximum.at(latest, number, start)
        edges, changes = self._rank_edges()
        begins, ends = (self.calls[name].to_numpy(np.int64) for name in ("begin", "end"))
        meet_edge = edges.add(begins, num_nodes + number, np.zeros(len(number)))
        transfer_edge = edges.add(num_nodes + number, ends, (stop - latest[number]).astype(np.float64))
        source, target = np.concatenate(edges.source), np.concatenate(edges.target)
        paths = LongestPaths(num_nodes + count, source, target)
        if paths.in_circle.any():
            apart = np.where(paths.in_circle[num_nodes + number], np.arange(len(number)), first_call)
            return self._joined(apart, clocks) if (apart != first_call).any() else CIRCLE
        begin = np.full(paths.num_nodes, -np.inf)
        for place, graph in enumerate(self.graphs):
            begin[self.first[place]] = graph.start - int(offset[place]) - zero
        replay = JobReplay(
            ranks=tuple(self._nodes(place) for place in range(len(self.graphs))),
            source=source, target=target, delay=np.concatenate(edges.delay), begin=begin,
            meet_edge=meet_edge, meet_rank=self.calls["rank"].to_numpy(np.int64), transfer_edge=transfer_edge,
            transfer_of=number, calls=self._numbers(number), changes=changes,
            codes=frozenset(code for graph in self.graphs for code in graph.codes),
            claims=self._claims(number, count), paths=paths, num_steps=max(self.num_steps, 1),
            error_ns=0.0,
        )  # fmt: skip
        return self._with_error(replay, offset, zero)

    def _with_error(self, replay: JobReplay, offset: Ints, zero: int) -> JobReplay:
        """The replay with how far its ends are from the recorded ones."""
        times = replay.paths.times(replay.delay[:, None], replay.begin)[:, 0]
        errors = [0.0]
        for place, (graph, nodes) in enumerate(zip(self.graphs, replay.ranks, strict=True)):
            recorded = int(graph.frames["nodes"]["time"].to_numpy()[nodes.end - nodes.first])
            errors.append(abs(float(times[nodes.end]) - (recorded + graph.start - int(offset[place]) - zero)))
        return replace(replay, error_ns=max(errors))

    def _numbers(self, number: Ints) -> dict[int, int]:
        """The number of the collective of each call, by row among the calls of all ranks."""
        rows = self.calls["row"].to_numpy()
        return dict(zip(rows[rows >= 0].tolist(), number[rows >= 0].tolist(), strict=True))

    def _rank_edges(self) -> tuple[_Edges, dict[str, Change]]:
        """The edges of all ranks, and the changes of rules by code."""
        edges, changed = _Edges(), dict[str, list[tuple[Ints, Floats]]]()
        for place, graph in enumerate(self.graphs):
            table, change = graph.frames["edges"], graph.frames["changes"]
            columns = [table[name].to_numpy(np.int64) for name in ("source", "target", "delay")]
            own = edges.add(columns[0] + self.first[place], columns[1] + self.first[place], columns[2].astype(float))
            code, edge, less = (change[name].to_numpy(np.int64) for name in ("code", "edge", "less"))
            for number in np.unique(code).tolist():
                chosen = code == number
                ns = np.where(less[chosen] < _GONE, -np.inf, less[chosen]).astype(np.float64)
                changed.setdefault(graph.codes[number - 1], []).append((own[edge[chosen]], ns))
        changes = {
            code: Change(np.concatenate([edge for edge, _ in parts]), np.concatenate([ns for _, ns in parts]))
            for code, parts in changed.items()
        }
        return edges, changes

    def _claims(self, number: Ints, count: int) -> dict[str, Floats]:
        """How much less the transfer of each collective takes, by code: as much as any of its ranks claims."""
        claims = dict[str, Floats]()
        for place, graph in enumerate(self.graphs):
            table = graph.frames["transfers"]
            if not len(table):
                continue
            first = int(np.searchsorted(self.calls["place"].to_numpy(), place))
            meeting = number[first + table["collective"].to_numpy(np.int64)]
            ns, codes = table["ns"].to_numpy(np.float64), table["code"].to_numpy(np.int64)
            for code in np.unique(codes).tolist():
                chosen = codes == code
                claim = claims.setdefault(graph.codes[code - 1], np.zeros(count))
                np.maximum.at(claim, meeting[chosen], ns[chosen])
        claims.pop(EVERYTHING, None)
        return claims

    def _nodes(self, place: int) -> RankNodes:
        graph, first = self.graphs[place], int(self.first[place])
        table, steps = graph.frames["collectives"], graph.frames["steps"]["node"].to_numpy(np.int64)
        role = np.full(int(self.first[place + 1]) - first, -1, np.int64)
        role[0] = 0
        for kind, nodes in ((_BEGIN, table["begin"]), (_END, table["end"]), (_STEP, steps)):
            role[np.asarray(nodes, np.int64)] = np.arange(len(nodes)) * _KINDS + kind
        inner = np.flatnonzero(role < 0)
        role[inner] = np.arange(len(inner)) * _KINDS + _INNER
        end = first + int(steps[self.num_steps - 1])
        return RankNodes(graph.rank, first, int(self.first[place + 1]), end, role)


def _sound(first_call: Ints, start: Ints, stop: Ints) -> Ints:
    """The same, with calls by themselves of collectives that seem to end before all have come: clocks are wrong."""
    latest = np.full(len(first_call), np.iinfo(np.int64).min)
    np.maximum.at(latest, first_call, start)
    wrong = np.unique(first_call[stop < latest[first_call] - _CLOCK_ERROR_NS])
    sound: Ints = np.where(np.isin(first_call, wrong), np.arange(len(first_call)), first_call)
    return sound
