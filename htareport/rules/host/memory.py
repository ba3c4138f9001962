"""Rules about memory that is asked from the driver, or given back, within the steps."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.distinct import unique_sorted
from htareport.rank.capability import Capability
from htareport.rank.host_rows import IDLE, operators_around, per, rows_named, times
from htareport.rank.idle import Cause
from htareport.rank.rank import Rank
from htareport.report.findings import Finding
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence
from htareport.rules.engine.wording import listed

_ALLOCATIONS = re.compile(
    r"^(?:cuda|hip)(?:Malloc|Free|HostAlloc|HostRegister)|^(?:cu|hip)Mem(?:Alloc|Free|Create|Map|Release|Unmap)"
)
_FREES = re.compile(r"^(?:cuda|hip)Free(?!Host|Async)|^(?:cu|hip)MemUnmap")
_EMPTY_CACHE = re.compile(r"empty_cache")
_START_NS = 50_000_000  # No call of a warm allocator lasts so long.


@dataclass(frozen=True, kw_only=True)
class DriverAllocationsEvidence(Evidence):
    """What was seen on one rank: the allocator goes to the driver."""

    names: list[tuple[str, int]]
    calls: int
    start_ns: bool
    windows: int


@dataclass(frozen=True)
class DriverAllocations(Rule[DriverAllocationsEvidence]):
    """Memory is asked from the driver within the steps, which stops the host and often the device.

    ## When it speaks
    The device is idle while `cudaMalloc`, `cudaFree` and the like run, for at least `least` of the step. Where
    `empty_cache` is what frees, H10 says so instead.

    ## What it could save
    The idle time in which they run.

    ## What to do
    Set `PYTORCH_ALLOC_CONF=expandable_segments:True`, keep shapes fixed, lower the peak.

    - **start**: If this is the start of the process, record once it is warm: such calls are normal there.

    ## How to verify
    No `cudaMalloc` or `cudaFree` within the steps.
    """

    code, title, family, section = "H9", "The allocator goes to the driver", Family.HOST, IDLE
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})
    about_idle, confidence = True, "high"

    least: float = 0.01

    def look(self, rank: Rank) -> DriverAllocationsEvidence | None:
        claim = rank.idle_by(Cause.ALLOCATING)
        if rank.share(claim) < self.least or _emptied(rank, EmptyCache().steps):
            return None
        rows = rows_named(rank, _ALLOCATIONS, "call")
        return DriverAllocationsEvidence(
            claim=claim,
            spans=rank.spans(claim),
            names=rank.idle_names(Cause.ALLOCATING),
            calls=len(rows),
            start_ns=not len(rank.steps) or int(rank.host.at("dur", rows).max(initial=0)) >= _START_NS,
            windows=per(rank),
        )

    def tell(self, job: JobEvidence[DriverAllocationsEvidence]) -> Finding:
        worst = job.worst
        return self.finding(
            job,
            f"Memory is asked from the driver while the GPU is idle: {job.max_saving} {job.per_step}",
            evidence=f"{worst.calls / worst.windows:,.3g}× {job.per_step}; idle time is filled by "
            f"{listed(worst.names, job, worst.windows)}.",
            cases=("start",) if worst.start_ns else (),
            assumption="The cache serves every allocation after the first steps.",
            snippet="PYTORCH_ALLOC_CONF=expandable_segments:True python main.py",
        )


@dataclass(frozen=True, kw_only=True)
class EmptyCacheEvidence(Evidence):
    """Steps in which memory is given back to the driver."""

    names: list[tuple[str, int]]  # Host rows that fill the idle time, with ns in all steps.
    steps: int
    num_steps: int
    windows: int
    calls: list[tuple[str, int]]


@dataclass(frozen=True)
class EmptyCache(Rule[EmptyCacheEvidence]):
    """`torch.cuda.empty_cache()` gives the cache back within the steps, and the next step asks for it again.

    ## When it speaks
    In at least `steps` of the steps three or more frees follow each other within 1 ms outside of operators, or a
    function `empty_cache` is recorded, and the device is idle while memory is freed and asked for, for at least `least`
    of the step. Frees within an operator are those of an allocator that is short of memory (H9).

    ## What it could save
    The idle time of all calls that free and allocate.

    ## What to do
    Remove `torch.cuda.empty_cache()` from the loop: the cache is there to be used again, and emptying it makes no room
    for PyTorch itself.

    ## How to verify
    No `cudaFree` and `cudaMalloc` within the steps.
    """

    code, title, family, section = "H10", "The cache is emptied within the loop", Family.HOST, IDLE
    requires = frozenset({Capability.GPU, Capability.LAUNCHES, Capability.STEPS})
    about_idle, confidence = True, "high"

    steps: float = 0.5
    least: float = 0.005

    def look(self, rank: Rank) -> EmptyCacheEvidence | None:
        claim = rank.idle_by(Cause.ALLOCATING)
        if rank.share(claim) < self.least or not (steps := _emptied(rank, self.steps)):
            return None
        frees = rows_named(rank, _FREES, "call")
        return EmptyCacheEvidence(
            claim=claim,
            spans=rank.spans(claim),
            names=rank.idle_names(Cause.ALLOCATING),
            steps=steps,
            num_steps=rank.num_steps,
            windows=per(rank),
            calls=[("cudaFree", len(frees))],
        )

    def tell(self, job: JobEvidence[EmptyCacheEvidence]) -> Finding:
        worst = job.worst
        return self.finding(
            job,
            f"The cache is emptied in the loop: {job.max_saving} {job.per_step} to free and allocate again",
            evidence=f"In {worst.steps} of {worst.num_steps} steps memory is given back outside of operators "
            f"({times(worst.calls, worst.windows)} per step). Idle time is filled by "
            f"{listed(worst.names, job, worst.windows)}.",
            assumption="The cache serves every allocation after the first steps.",
            snippet="# torch.cuda.empty_cache()",
        )


def _emptied(rank: Rank, share: float) -> int:
    """In how many steps the cache is emptied; 0 where that is fewer than this share of them."""
    steps, host = rank.steps, rank.host
    if not len(steps):
        return 0
    frees = rows_named(rank, _FREES, "call")
    outside = frees[operators_around(rank)[frees] < 0]
    stamps = [_bursts(host.at("ts", outside))]
    functions, strings = rank.loaded.tables.get("python_function", {}), rank.loaded.strings
    for table, codes in ((functions, functions.get("name")), (host, host["name"])):
        if codes is not None:
            used = [code for code in unique_sorted(codes).tolist() if _EMPTY_CACHE.search(strings[code])]
            stamps.append(np.asarray(table["ts"])[np.isin(codes, used)])
    found = np.concatenate(stamps)
    inside = [((begin <= found) & (found < end)).any() for begin, end in steps[["start", "end"]].to_numpy().tolist()]
    number = int(np.sum(inside))
    return number if number >= share * len(steps) else 0


def _bursts(stamps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Stamps at which two more follow within 1 ms."""
    stamps = np.sort(stamps)
    return stamps[:-2][stamps[2:] - stamps[:-2] <= 1_000_000] if len(stamps) > 2 else stamps[:0]  # noqa: PLR2004
