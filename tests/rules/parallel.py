"""A data-parallel job in lock step, of which one rank can be made late in several ways; and rules run on traces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from builder import TraceBuilder

from htareport.report import Section
from htareport.report.findings import Finding
from htareport.rules import rule_classes
from htareport.run.runner import analyze

US, MS = 1000, 1_000_000
GEMM, RELU = "sm80_gemm_f32_128x64", "relu_kernel<float>"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL"
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
BACKWARD = "autograd::engine::evaluate_function: AddmmBackward0"


def findings(folder: Path, traces: Sequence[TraceBuilder], *codes: str, steps: str = "all") -> Section:
    """Write a trace per rank and return the section of findings, of all rules about communication or of some."""
    for number, trace in enumerate(traces):
        trace.write(folder / f"file{number:03}.json")
    rules = [rule() for code, rule in rule_classes().items() if code in codes or (not codes and code.startswith("N"))]
    section = analyze(folder, analyses=[], rules=rules, steps=steps)["findings"]
    assert not [note for note in section.notes if "failed" in note], section.notes
    return section


def one(folder: Path, traces: Sequence[TraceBuilder], code: str, *others: str) -> Finding | None:
    """The finding of a rule, None without."""
    section = findings(folder, traces, code, *others)
    return next((finding for finding in section.findings if finding.code == code), None)


def plain(text: str) -> str:
    """Text with common spaces."""
    return text.replace("\u202f", " ")


@dataclass(frozen=True)
class Part:
    """What a rank does in a step before the all-reduce; times in µs. Each launch takes `launch` of the host."""

    load: float = 0
    launch: float = 10
    gemm: float = 100
    kernels: int = 10
    copy: float = 0
    relu: float = 20


@dataclass(frozen=True)
class ParallelJob:
    """In each step every rank loads, launches gemms and relus by turns, and all-reduces: 100 µs once all have come.

    `different` are ranks that do something else, `late_by_turns` is what each rank does in turn. `noise` is how much
    kernels vary, relative to their duration.
    """

    ranks: int = 4
    steps: int = 6
    usual: Part = field(default_factory=Part)
    different: dict[int, Part] = field(default_factory=dict)
    late_by_turns: Part | None = None
    clocks: tuple[float, ...] = ()
    noise: float = 0.0
    seed: int = 0

    def traces(self) -> list[TraceBuilder]:
        """A trace per rank."""
        traces = [TraceBuilder(rank, self.ranks) for rank in range(self.ranks)]
        source, now = np.random.default_rng(self.seed), 1000.0
        for number in range(self.steps):
            now = self._step(traces, number, now, lambda: 1 + self.noise * float(source.standard_normal()))
        return traces

    def _part(self, rank: int, number: int) -> Part:
        if self.late_by_turns and number % self.ranks == rank:
            return self.late_by_turns
        return self.different.get(rank, self.usual)

    def _step(self, traces: list[TraceBuilder], number: int, start: float, vary: Callable[[], float]) -> float:
        parts = [self._part(rank, number) for rank in range(self.ranks)]
        offsets = self.clocks or (0.0,) * self.ranks
        ranks = zip(traces, parts, offsets, strict=True)
        done = [_before(trace, part, start + offset, vary) for trace, part, offset in ranks]
        end = max(device - off for (_, device), off in zip(done, offsets, strict=True)) + 100
        for trace, (host, device), off in zip(traces, done, offsets, strict=True):
            trace.cpu_op("c10d::allreduce_", host, 10)
            trace.collective(ALL_REDUCE, "allreduce", device, end + off - device, launch=(host + 1, 8))
            trace.runtime("cudaStreamSynchronize", host + 10, end + off - host - 5)
            trace.step(number, start + off, end + 10 - start)
        return end + 10


def _before(trace: TraceBuilder, part: Part, start: float, vary: Callable[[], float]) -> tuple[float, float]:
    """All that comes before the all-reduce; when host and device have done it."""
    host, device = start, start
    if part.load:
        trace.cpu_op(LOADER, host, part.load)
        host += part.load
    if part.copy:
        device = max(device, host + 8)
        trace.memcpy("HtoD (Pageable -> Device)", device, part.copy, bytes=1000, launch=(host, 8))
        host, device = host + 10, device + part.copy
    for number in range(part.kernels):
        name, length = (GEMM, part.gemm) if number % 2 == 0 else (RELU, part.relu)
        trace.cpu_op("aten::linear", host, part.launch)
        host += part.launch
        device, length = max(device, host), round(length * vary(), 3)
        trace.kernel(name, device, length, launch=(host - 5, 5))
        device = round(device + length, 3)
    return host, max(device, host + 9)
