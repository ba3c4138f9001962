"""Rules about kernels that are loaded late, recompilation, garbage collection and slow launch calls."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from htareport.algorithms import intervals
from htareport.algorithms.distinct import unique_sorted
from htareport.rank.capability import Capability
from htareport.rank.first_launches import first_launches
from htareport.rank.host_rows import (
    IDLE,
    by_lane,
    coded,
    during,
    in_front,
    kernel_launch_mask,
    late,
    names_of,
    per,
    rows_named,
)
from htareport.rank.idle import Cause, pauses_for
from htareport.rank.interval_sets import common, joined, minus, total
from htareport.rank.rank import Rank
from htareport.rank.replay.host_edits import edit_without_rows
from htareport.report.findings import Finding
from htareport.report.units import counted
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence

_LOADS = re.compile(
    r"^(?:cu|hip)(?:Module|Library)(?:Load|Get)|(?:Lazy Function|Module) Loading|Driver Compiler|hiprtc|nvrtc"
)
_COMPILES = re.compile(r"AOTDispatcher|Inductor|dynamo_timed|triton.*compile|_compile\.", re.IGNORECASE)
_LOOKUP = re.compile(r"TorchDynamo Cache Lookup")
_RECOMPILED = re.compile(r"Torch-Compiled Region: \d+/([1-9]\d*)")


@dataclass(frozen=True, kw_only=True)
class LateLoadingEvidence(Evidence):
    """Idle time while kernels are loaded or compiled."""

    num_launches: int  # First launches of kernels that take long.
    launches_ns: int  # Idle time in them, in all steps.
    loads: list[str]  # Names of host rows that load or compile.


@dataclass(frozen=True)
class LateLoading(Rule[LateLoadingEvidence]):
    """Kernels are loaded or compiled within the recorded steps, and the device waits.

    ## When it speaks
    The device is idle while modules are loaded or kernels compiled (`cuModuleLoad`, lazy loading, NVRTC), or in a
    launch call of 1 ms or more that is the first of its kernel, for at least `least` µs in total.

    ## What it could save
    That idle time.

    ## What to do
    If these are the first steps of the run, record later ones. Else run every shape once before the loop, and load all
    kernels at the start.

    ## How to verify
    No launch call takes a millisecond.
    """

    code, title, family, section = "H11", "Kernels are loaded or compiled within the steps", Family.HOST, IDLE
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})
    about_idle = True

    least: float = 1000.0

    def look(self, rank: Rank) -> LateLoadingEvidence | None:
        loads = rows_named(rank, _LOADS)
        launches, loading = first_launches(rank), common(rank.idle_by(Cause.COMPILING), during(rank, loads))
        claim = joined(launches, loading)
        if total(claim) < 1000 * self.least:
            return None
        return LateLoadingEvidence(
            claim=claim,
            spans=rank.spans(claim),
            num_launches=sum(map(len, launches.values())),
            launches_ns=total(launches),
            loads=sorted(set(names_of(rank, loads[:1000].tolist())))[:3],
        )

    def tell(self, job: JobEvidence[LateLoadingEvidence]) -> Finding:
        worst = job.worst
        clauses = list[str]()
        if worst.num_launches:
            one, several = "the first launch of a kernel takes", f"{worst.num_launches} first launches of kernels take"
            clauses.append(f"{one if worst.num_launches == 1 else several} {job.time(worst.launches_ns)}")
        if worst.loads:
            clauses.append(f"the host runs {', '.join(f'`{name}`' for name in worst.loads)}")
        return self.finding(
            job,
            f"Kernels are loaded or compiled while the GPU is idle: {job.max_saving} {job.per_step}",
            evidence=_sentence(" and ".join(clauses)),
            assumption="All kernels are loaded before the first step.",
            snippet="CUDA_MODULE_LOADING=EAGER python main.py",
        )


@dataclass(frozen=True, kw_only=True)
class RecompilationEvidence(Evidence):
    """Idle time while torch.compile compiles or checks guards, in all steps."""

    compiling_ns: int
    lookups_ns: int  # Only of guards.
    num_steps: int  # In which something is compiled.
    regions: list[str]  # That are compiled more than once.
    windows: int


@dataclass(frozen=True)
class Recompilation(Rule[RecompilationEvidence]):
    """`torch.compile` compiles again within the steps, or takes long to check its guards.

    ## When it speaks
    The device is idle while TorchDynamo, AOTAutograd, Inductor or Triton compile or check guards, for at least `least`
    of the time; or it is idle while they compile in more than one step.

    ## What it could save
    That idle time.

    ## What to do
    Set `TORCH_LOGS=recompiles` to see what makes it compile again. Mark dimensions that change as dynamic
    (`torch._dynamo.mark_dynamic`), pass Python numbers that change as tensors, and remove graph breaks.

    ## How to verify
    Nothing is compiled after the first steps.
    """

    code, title, family, section = "H12", "torch.compile compiles within the steps", Family.HOST, IDLE
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})
    about_idle = True

    least: float = 0.01

    def look(self, rank: Rank) -> RecompilationEvidence | None:
        rows = rows_named(rank, _COMPILES)
        compiling, lookups = during(rank, rows), during(rank, rows_named(rank, _LOOKUP))
        claim = joined(compiling, minus(lookups, compiling))
        num_before = np.searchsorted(rank.steps["start"].to_numpy(), rank.host.at("ts", rows), side="right")
        num_steps = len(unique_sorted(num_before[num_before > 0]))
        if rank.share(claim) < self.least and (num_steps <= 1 or not total(compiling)):
            return None
        codes = np.flatnonzero(coded(rank, _RECOMPILED)).tolist()
        return RecompilationEvidence(
            claim=claim,
            spans=rank.spans(claim),
            edit=edit_without_rows(rank, rank.host.at("ts", rows), rank.host.at("end", rows), claim),
            compiling_ns=total(compiling),
            lookups_ns=total(minus(lookups, compiling)),
            num_steps=num_steps,
            regions=[rank.loaded.strings[code] for code in codes[:3]],
            windows=per(rank),
        )

    def tell(self, job: JobEvidence[RecompilationEvidence]) -> Finding:
        worst = job.worst
        times = (("compilation takes", worst.compiling_ns), ("looking up guards takes", worst.lookups_ns))
        clauses = [f"{clause} {job.time(ns / worst.windows)} {job.per_step}" for clause, ns in times if ns]
        if worst.num_steps > 1:
            clauses.append(f"something is compiled in {counted(worst.num_steps, 'step')}")
        if worst.regions:
            clauses.append(f"compiled more than once: {', '.join(f'`{name}`' for name in worst.regions)}")
        return self.finding(
            job,
            f"torch.compile keeps the host busy while the GPU is idle: {job.max_saving} {job.per_step}",
            evidence=_sentence("; ".join(clauses)),
            assumption="Everything is compiled before the first step recorded.",
            snippet="TORCH_LOGS=recompiles,graph_breaks python main.py",
        )


@dataclass(frozen=True, kw_only=True)
class GarbageCollectionEvidence(Evidence):
    """Garbage collections, whatever the device does meanwhile."""

    num_collections: int
    longest_ns: int


@dataclass(frozen=True)
class GarbageCollection(Rule[GarbageCollectionEvidence]):
    """Python collects garbage while the device is idle.

    ## When it speaks
    Garbage collections are recorded (`_ExperimentalConfig(record_python_gc_info=True)` from PyTorch 2.9 on, or
    `gc.collect` in Python stacks), and the device is idle in them for at least `least` µs in total.

    ## What it could save
    That idle time.

    ## What to do
    Exclude objects that stay from collection (`gc.freeze()`), and turn automatic collection off. Collect every few
    hundred steps, in the same step on all ranks.

    ## How to verify
    The steps have no `Python GC`.
    """

    code, title, family, section = "H13", "Garbage collection pauses the host", Family.HOST, IDLE
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})
    about_idle, confidence = True, "high"

    least: float = 1000.0

    def look(self, rank: Rank) -> GarbageCollectionEvidence | None:
        pauses = pauses_for(rank, Cause.COLLECTING)
        claim = common(late(rank), by_lane(rank, pauses.start, pauses.end, pauses.capture))
        if total(claim) < 1000 * self.least:
            return None
        return GarbageCollectionEvidence(
            claim=claim,
            spans=rank.spans(claim, name="garbage collection"),
            edit=edit_without_rows(rank, pauses.start, pauses.end, claim),
            num_collections=len(pauses.start),
            longest_ns=int((pauses.end - pauses.start).max()),
        )

    def tell(self, job: JobEvidence[GarbageCollectionEvidence]) -> Finding:
        worst = job.worst
        return self.finding(
            job,
            f"Garbage collection leaves the GPU idle for {job.max_saving} {job.per_step}",
            evidence=f"{counted(worst.num_collections, 'collection')} recorded, "
            f"the longest of {job.time(worst.longest_ns)}.",
            assumption="Garbage is collected when the device has work queued.",
            snippet="gc.collect(); gc.freeze(); gc.disable()  # Once the model is built.\n"
            "if step % 500 == 0:\n    gc.collect()",
        )


@dataclass(frozen=True, kw_only=True)
class SlowLaunchesEvidence(Evidence):
    """How long calls that launch a kernel take."""

    median_ns: float
    p95_ns: float


@dataclass(frozen=True)
class SlowLaunches(Rule[SlowLaunchesEvidence]):
    """Calls that launch a kernel are slow themselves, although the device has nothing to do.

    ## When it speaks
    The time of launch calls beyond `usual` µs each, while the device is idle, is at least `least` of the step. The
    first launches of kernels (H11) don't count, nor do copies and launches of CUDA graphs, which take longer.

    ## What it could save
    The time of launch calls beyond `usual` µs each.

    ## What to do
    Give the launching thread a core of its own near the device: bind the process with `numactl`, run fewer threads
    (`OMP_NUM_THREADS`) and data loader workers than there are cores, and set the CPU governor to performance.

    ## How to verify
    The median launch call takes a few µs.
    """

    code, title, family, section = "H23", "Launch calls are slow", Family.HOST, "launch_stats"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})
    about_idle = True

    usual: float = 6.0
    least: float = 0.02

    def look(self, rank: Rank) -> SlowLaunchesEvidence | None:
        is_kernel = kernel_launch_mask(rank)
        launching = common(rank.idle_by(Cause.LAUNCHING), in_front(rank, is_kernel))
        claim = {
            lane: intervals.union(idle[:, 0] + round(1000 * self.usual), idle[:, 1])
            for lane, idle in minus(launching, first_launches(rank)).items()
        }
        if rank.share(claim) < self.least:
            return None
        launches = unique_sorted(rank.device_events["launch"].to_numpy())
        dur = rank.launches["dur"].to_numpy()[launches[(launches >= 0) & is_kernel[launches]]]
        median, p95 = np.quantile(dur, (0.5, 0.95)).tolist()
        return SlowLaunchesEvidence(claim=claim, spans=rank.spans(claim), median_ns=median, p95_ns=p95)

    def tell(self, job: JobEvidence[SlowLaunchesEvidence]) -> Finding:
        worst = job.worst
        return self.finding(
            job,
            f"Slow launch calls leave the GPU idle for {job.max_saving} {job.per_step}",
            evidence=f"Half of the launch calls take more than {job.time(worst.median_ns)}, one in twenty more than "
            f"{job.time(worst.p95_ns)}; usual are {self.usual:g} µs.",
            assumption=f"A launch takes {self.usual:g} µs.",
            snippet="OMP_NUM_THREADS=8 numactl --cpunodebind=0 --membind=0 python main.py",
        )


def _sentence(clause: str) -> str:
    return f"{clause[:1].upper()}{clause[1:]}."
