"""A rank's program as a small graph: its collectives, the ends of its steps, and the longest ways between them.

Everything between two points where a rank meets others is a maximum of sums. So the program is run once, in the order
of the launches, with formulas in place of times: the clock of the host and the end of each stream are maxima over a few
earlier points, each plus a delay. Device events between two waits are one sum and one maximum, taken with arrays. A
delay has one number for the recorded program and one for each change, which so share one pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from htareport.rank.replay.edits import EditedProgram
from htareport.rank.replay.program import Program

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Formula = dict[int, Floats]  # Delay from earlier nodes, one number for each change.

START = 0
_MAX_TERMS = 3  # Of a formula that is used again and again: one of more becomes a node.
_MAX_OPERATIONS = 120_000
TOO_LONG = "its host waits too often to be followed"


@dataclass
class Graph:
    """Nodes and edges of a rank: `delays` has a row for each edge, a column for each change (the first: none).

    The first node is the start of the window. `begin` and `end` are the nodes at which each collective (a place in the
    program) is ready and done: between them the other ranks decide. `steps` are the nodes at which steps end: all work
    of the host and the device.
    """

    time: list[int] = field(default_factory=list[int])
    source: list[int] = field(default_factory=list[int])
    target: list[int] = field(default_factory=list[int])
    delays: list[Floats] = field(default_factory=list[Floats])
    collective: list[int] = field(default_factory=list[int])
    begin: list[int] = field(default_factory=list[int])
    end: list[int] = field(default_factory=list[int])
    steps: list[int] = field(default_factory=list[int])

    def node(self, time: int, formula: Formula) -> int:
        """Add a node with the edges that lead to it."""
        number = len(self.time)
        self.time.append(time)
        for source, delay in formula.items():
            self.source.append(source)
            self.target.append(number)
            self.delays.append(delay)
        return number


def reduced(program: Program, changes: Sequence[EditedProgram]) -> Graph | str:
    """Return the graph of a program with some changes, of which the first is none; as words, why it has none."""
    segments = _Segments(program)
    if segments.count + len(program.waits.end) > _MAX_OPERATIONS:
        return TOO_LONG
    return _Run(program, segments, changes).graph()


class _Segments:
    """Events that follow each other on a stream, with nothing between them that reads or sets the stream's end.

    A segment ends at an event that something waits for, and where the host waits or a step ends. A collective is one by
    itself.
    """

    def __init__(self, program: Program) -> None:
        size, waits = program.size, program.waits
        self.epoch = np.searchsorted(waits.end, program.called, side="right")
        order = np.lexsort((np.arange(size), program.stream))
        is_first = np.ones(size, np.bool_)  # Events that begin a segment, by place in the program.
        stream, epoch = program.stream[order], self.epoch[order]
        step = np.searchsorted(np.array(program.window.step_ends), program.called[order], side="right")
        begins = np.ones(size, np.bool_)
        begins[1:] = (np.diff(stream) != 0) | (np.diff(epoch) != 0) | (np.diff(step) != 0)
        ends_here = np.zeros(size, np.bool_)
        ends_here[program.joins.source] = True
        ends_here[waits.source_event] = True
        ends_here[_last_of_steps(program)] = True
        ends_here |= program.is_collective
        begins[1:] |= ends_here[order][:-1]
        own = program.is_collective.copy()
        own[program.joins.event] = True
        begins |= own[order]
        is_first[order] = begins
        self.order = order
        self.first = np.flatnonzero(begins)  # Places in `order`.
        self.count = len(self.first)
        stops = np.append(self.first[1:], size)
        self.last_event = order[stops - 1] if size else order
        self.first_event = order[self.first] if size else order


def _last_of_steps(program: Program) -> Ints:
    """The event that is launched last in each step."""
    ends = np.searchsorted(program.called, np.array(program.window.step_ends)) - 1
    return ends[ends >= 0]


class _Run:
    """The run of a program with formulas."""

    def __init__(self, program: Program, segments: _Segments, changes: Sequence[EditedProgram]) -> None:
        self.program, self.segments, self.changes = program, segments, changes
        self.width = len(changes)
        self.result = Graph()
        start = program.window.start
        self.result.node(start, {})
        self.zero = np.zeros(self.width)
        self.host: Formula = {START: self.zero}
        self.epoch_time = start
        self.streams: dict[int, Formula] = {}
        self.snapshots = dict[int, Formula]()
        needed = np.concatenate((program.joins.source, program.waits.source_event))
        self.needed = set(np.unique(needed).tolist())
        self.last_wait = -1
        self._sums()
        self._joins()
        self.own_ns = np.stack([change.own_ns for change in changes])
        self.wait_gone = np.stack([change.wait_gone for change in changes])
        self.waited_gone = np.stack([change.waited_gone for change in changes])
        self.still_waits = np.stack([change.waits for change in changes])

    def _sums(self) -> None:
        """For each segment and change: what it takes, and the longest way from the host's last wait to its end."""
        program, segments = self.program, self.segments
        order, first = segments.order, segments.first
        waits = program.waits
        starts = np.append(program.window.start, waits.end)[segments.epoch]
        since_wait = (program.called - starts).astype(np.float64)
        takes, from_host, lone = list[Floats](), list[Floats](), list[Floats]()
        for change in self.changes:
            until = np.append(0.0, change.waited_gone)[segments.epoch]
            launched = since_wait - (change.host_gone - until) + change.launch_delay
            length = (change.stream_delay + change.duration)[order]
            done = np.cumsum(length)
            before = done[first] - length[first]
            by_launch = launched[order] + change.duration[order] - done
            takes.append(np.add.reduceat(length, first) if len(first) else np.zeros(0))
            end = before + takes[-1]
            from_host.append((np.maximum.reduceat(by_launch, first) if len(first) else np.zeros(0)) + end)
            lone.append(launched[segments.first_event])
        self.takes, self.from_host, self.launched = (np.stack(each) for each in (takes, from_host, lone))

    def _joins(self) -> None:
        """What the first event of each segment waits for: events and delays, by place in the program."""
        joins = self.program.joins
        self.joined = dict[int, list[tuple[int, Floats]]]()
        delays = np.stack([change.join_delay for change in self.changes])
        for place, (event, source) in enumerate(zip(joins.event.tolist(), joins.source.tolist(), strict=True)):
            self.joined.setdefault(event, []).append((source, delays[:, place]))
        self.stream_delay = np.stack([change.stream_delay for change in self.changes])

    def graph(self) -> Graph:
        """Run the program in the order in which the host goes on."""
        program, segments = self.program, self.segments
        ends = np.maximum(np.array(program.window.step_ends, np.int64), program.host_ends)
        stamps = np.concatenate((program.called[segments.last_event], program.waits.end, ends))
        kinds = np.repeat([1, 0, 2], [segments.count, len(program.waits.end), len(ends)])
        numbers = np.concatenate([np.arange(count) for count in (segments.count, len(program.waits.end), len(ends))])
        places = np.concatenate((segments.last_event, np.zeros(len(stamps) - segments.count, np.int64)))
        order = np.lexsort((places, kinds, stamps))
        # A launch that waits for room returns at the end of that wait, which comes first: waits sort before events. An
        # event of a blocking copy is launched at the start of its call, so before the wait for it.
        handlers = (self._wait, self._event, self._step)
        for kind, number in zip(kinds[order].tolist(), numbers[order].tolist(), strict=True):
            handlers[kind](number)
        return self.result

    def _event(self, segment: int) -> None:
        """A segment: its stream ends later."""
        program = self.program
        first, last = int(self.segments.first_event[segment]), int(self.segments.last_event[segment])
        number = int(program.stream[first])
        stream = self.streams.get(number)
        if stream is None:
            stream = {START: self.zero + float(program.previous_end[first] - program.window.start)}
        if program.is_collective[first]:
            self._collective(segment, first, number, stream)
        else:
            for source, delay in self.joined.get(first, ()):
                if (snapshot := self.snapshots.get(source)) is not None:
                    stream = _largest(stream, _later(snapshot, delay - self.stream_delay[:, first]))
            ends = _later(stream, self.takes[:, segment])
            self.streams[number] = _largest(ends, _later(self.host, self.from_host[:, segment]))
        if len(self.streams[number]) > _MAX_TERMS:
            node = self.result.node(int(program.end[last]), self.streams[number])
            self.streams[number] = {node: self.zero}
        if last in self.needed:
            self.snapshots[last] = self.streams[number]

    def _collective(self, segment: int, event: int, number: int, stream: Formula) -> None:
        """A collective is ready by its launch, its stream and what it waits for; its end is a node of its own."""
        ready = _largest(_later(stream, self.stream_delay[:, event]), _later(self.host, self.launched[:, segment]))
        for source, delay in self.joined.get(event, ()):
            if (snapshot := self.snapshots.get(source)) is not None:
                ready = _largest(ready, _later(snapshot, delay))
        result, program = self.result, self.program
        result.collective.append(event)
        result.begin.append(result.node(int(program.start[event]), ready))
        result.end.append(result.node(int(program.end[event]), {}))
        self.streams[number] = {result.end[-1]: self.zero}

    def _wait(self, wait: int) -> None:
        """The host goes on once it has waited."""
        waits = self.program.waits
        start, end = int(waits.start[wait]), int(waits.end[wait])
        until = self.waited_gone[:, self.last_wait] if self.last_wait >= 0 else self.zero
        begun = min(max(start - self.epoch_time, 0), end - self.epoch_time)  # Threads may wait at the same time.
        own = begun + np.minimum(self.own_ns[:, wait], end - self.epoch_time - begun)
        host = _later(self.host, np.maximum(own - (self.wait_gone[:, wait] - until), 0.0))
        first, stop = np.searchsorted(waits.source_wait, (wait, wait + 1))
        for place in range(first, stop):
            snapshot = self.snapshots.get(int(waits.source_event[place]))
            if snapshot is not None:
                delay = np.where(self.still_waits[:, wait], float(waits.source_delay[place]), -np.inf)
                host = _largest(host, _later(snapshot, delay))
        if len(host) > 1:
            host = {self.result.node(end, host): self.zero}
        self.host, self.epoch_time, self.last_wait = host, end, wait

    def _step(self, step: int) -> None:
        """The end of a step: the host has come so far, and the device is done with all that was launched."""
        program, time = self.program, int(self.program.window.step_ends[step])
        gone = np.array([change.window_gone[step] for change in self.changes])
        until = self.waited_gone[:, self.last_wait] if self.last_wait >= 0 else self.zero
        host_time = int(program.host_ends[step])
        formula = _later(self.host, float(max(host_time - self.epoch_time, 0)) - (gone - until))
        for stream in self.streams.values():
            formula = _largest(formula, stream)
        launched = program.end[program.called < time] if program.window.steps else program.end
        self.result.steps.append(self.result.node(int(launched.max(initial=host_time)), formula))


def _later(formula: Formula, delay: Floats | float) -> Formula:
    return {source: times + delay for source, times in formula.items()}


def _largest(one: Formula, other: Formula) -> Formula:
    """The maximum of two formulas."""
    largest = dict(one)
    for source, times in other.items():
        known = largest.get(source)
        largest[source] = times if known is None else np.maximum(known, times)
    return largest
