"""Rules about memory that the CPU asks from the driver, or gives back to it, within the steps."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from htareport.rank.capability import Capability
from htareport.rank.host_rows import IDLE, operators_around, per, rows_in, rows_named, times
from htareport.rank.idle import Cause
from htareport.rank.rank import Rank
from htareport.rank.replay.host_edits import edit_without_causes
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
_BURST_NS = 1_000_000
_ASSUMPTION = "The cache serves every allocation after the first steps."


@dataclass(frozen=True, kw_only=True)
class AllocationEvidence(Evidence):
    """Idle time in calls that allocate or free memory of the device."""

    names: list[tuple[str, int]]  # Host rows that fill it, with ns in all steps.
    num_calls: int  # In all steps.
    windows: int


@dataclass(frozen=True, kw_only=True)
class DriverAllocationsEvidence(AllocationEvidence):
    """The same, and whether the recording may be of a process that just started."""

    is_start: bool


@dataclass(frozen=True)
class DriverAllocations(Rule[DriverAllocationsEvidence]):
    """The allocator asks the driver for memory within the steps, which stops the CPU and often the GPU.

    ## When it speaks
    The device is idle while `cudaMalloc`, `cudaFree` and similar calls run, for at least `least` of the step. Where
    `empty_cache` frees the memory, H10 says so instead.

    ## What it could save
    The idle time in these calls.

    ## What to do
    Set `PYTORCH_ALLOC_CONF=expandable_segments:True`. Keep shapes fixed, and lower the peak of memory.

    - **start**: If this is the start of the process, record later steps: such calls are normal in the first ones.

    ## How to verify
    The steps have no `cudaMalloc` and no `cudaFree`.
    """

    code, title, family, section = "H9", "The allocator goes to the driver", Family.HOST, IDLE
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})
    about_idle, confidence = True, "high"

    least: float = 0.01

    def look(self, rank: Rank) -> DriverAllocationsEvidence | None:
        claim = rank.idle_by(Cause.ALLOCATING)
        if rank.share(claim) < self.least or _num_emptied_steps(rank, EmptyCache().steps):
            return None
        rows = rows_named(rank, _ALLOCATIONS, "call")
        return DriverAllocationsEvidence(
            claim=claim,
            edit=edit_without_causes(rank, claim, Cause.ALLOCATING),
            spans=rank.spans(claim),
            names=rank.idle_names(Cause.ALLOCATING),
            num_calls=len(rows),
            is_start=not len(rank.steps) or int(rank.host.at("dur", rows).max(initial=0)) >= _START_NS,
            windows=per(rank),
        )

    def tell(self, job: JobEvidence[DriverAllocationsEvidence]) -> Finding:
        worst = job.worst
        return self.finding(
            job,
            f"Memory is asked from the driver while the GPU is idle: {job.max_saving} {job.per_step}",
            evidence=f"{worst.num_calls / worst.windows:,.3g}× {job.per_step}; idle time is filled by "
            f"{listed(worst.names, job, worst.windows)}.",
            cases=("start",) if worst.is_start else (),
            assumption=_ASSUMPTION,
            snippet="PYTORCH_ALLOC_CONF=expandable_segments:True python main.py",
        )


@dataclass(frozen=True, kw_only=True)
class EmptyCacheEvidence(AllocationEvidence):
    """The same, and the number of steps in which memory is given back; its calls are those that free."""

    num_emptied_steps: int
    num_steps: int


@dataclass(frozen=True)
class EmptyCache(Rule[EmptyCacheEvidence]):
    """`torch.cuda.empty_cache()` gives memory back to the driver in the loop, and the next step asks for it again.

    ## When it speaks
    In at least `steps` of the steps three or more frees follow each other within 1 ms outside of operators, or a
    function `empty_cache` is recorded; and the device is idle while memory is freed and allocated, for at least `least`
    of the step. Frees within an operator are those of an allocator that is short of memory (H9).

    ## What it could save
    The idle time in all calls that free and allocate.

    ## What to do
    Remove `torch.cuda.empty_cache()` from the loop. PyTorch uses cached memory again, so emptying the cache makes no
    memory available to PyTorch.

    ## How to verify
    The steps have no `cudaFree` and no `cudaMalloc`.
    """

    code, title, family, section = "H10", "The cache is emptied within the loop", Family.HOST, IDLE
    requires = frozenset({Capability.GPU, Capability.LAUNCHES, Capability.STEPS})
    about_idle, confidence = True, "high"

    steps: float = 0.5
    least: float = 0.005

    def look(self, rank: Rank) -> EmptyCacheEvidence | None:
        claim = rank.idle_by(Cause.ALLOCATING)
        if rank.share(claim) < self.least or not (num_steps := _num_emptied_steps(rank, self.steps)):
            return None
        return EmptyCacheEvidence(
            claim=claim,
            edit=edit_without_causes(rank, claim, Cause.ALLOCATING),
            spans=rank.spans(claim),
            names=rank.idle_names(Cause.ALLOCATING),
            num_calls=len(rows_named(rank, _FREES, "call")),
            num_emptied_steps=num_steps,
            num_steps=rank.num_steps,
            windows=per(rank),
        )

    def tell(self, job: JobEvidence[EmptyCacheEvidence]) -> Finding:
        worst = job.worst
        return self.finding(
            job,
            f"The cache is emptied in the loop: {job.max_saving} {job.per_step} to free and allocate again",
            evidence=f"In {worst.num_emptied_steps} of {worst.num_steps} steps memory is given back outside of "
            f"operators ({times([('cudaFree', worst.num_calls)], worst.windows)} per step). Idle time is filled by "
            f"{listed(worst.names, job, worst.windows)}.",
            assumption=_ASSUMPTION,
            snippet="# torch.cuda.empty_cache()",
        )


def _num_emptied_steps(rank: Rank, min_share: float) -> int:
    """Number of steps in which the cache is emptied; 0 where they are a smaller share of all steps."""
    host, frees = rank.host, rows_named(rank, _FREES, "call")
    stamps = np.concatenate(
        (
            _bursts(host.at("ts", frees[operators_around(rank)[frees] < 0])),
            host.at("ts", rows_named(rank, _EMPTY_CACHE)),
            rows_in(rank, "python_function", _EMPTY_CACHE)[0],
        )
    )
    steps = rank.steps[["start", "end"]].to_numpy().tolist()
    number = sum(bool(((begin <= stamps) & (stamps < end)).any()) for begin, end in steps)
    return number if number >= min_share * len(steps) else 0


def _bursts(stamps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Stamps after which two more follow within 1 ms."""
    stamps = np.sort(stamps)
    return stamps[:-2][stamps[2:] - stamps[:-2] <= _BURST_NS]
