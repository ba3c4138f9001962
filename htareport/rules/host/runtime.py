"""Rules about the runtime: what is loaded and compiled late, launch calls that are slow, garbage collection."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from htareport.algorithms import intervals
from htareport.algorithms.distinct import unique_sorted
from htareport.rank.capability import Capability
from htareport.rank.first_launches import first_launches
from htareport.rank.host_rows import IDLE, by_lane, coded, during, in_front, late, names_of, per, rows_in, rows_named
from htareport.rank.idle import Cause
from htareport.rank.interval_sets import Sets, common, joined, minus, total
from htareport.rank.rank import Rank
from htareport.report.findings import Finding
from htareport.report.units import counted
from htareport.rows import classify
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence

_LOADS = re.compile(
    r"^(?:cu|hip)(?:Module|Library)(?:Load|Get)|(?:Lazy Function|Module) Loading|Driver Compiler|hiprtc|nvrtc"
)
_COMPILES = re.compile(r"AOTDispatcher|Inductor|dynamo_timed|triton.*compile|_compile\.", re.IGNORECASE)
_LOOKUP = re.compile(r"TorchDynamo Cache Lookup")
_REGION = re.compile(r"Torch-Compiled Region: \d+/([1-9]\d*)")
_GC = re.compile(r"^Python GC|^<built-in function collect>|\bgc\.collect")


@dataclass(frozen=True, kw_only=True)
class LateLoadingEvidence(Evidence):
    """What was seen on one rank: kernels are loaded or compiled within the steps."""

    launches: int
    calls: int
    loads: list[str]
    windows: int


@dataclass(frozen=True)
class LateLoading(Rule[LateLoadingEvidence]):
    """Kernels are loaded or compiled within what was recorded, and the device waits.

    ## When it speaks
    The device is idle while modules are loaded or kernels compiled (`cuModuleLoad`, lazy loading, NVRTC), or in a
    launch call of 1 ms and more that is the first of its kernel, for at least `least` µs in all.

    ## What it could save
    That idle time.

    ## What to do
    If these are the first steps of the run, record later ones. Else warm up every shape before, and load kernels at the
    start.

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
            launches=total(launches),
            calls=sum(map(len, launches.values())),
            loads=sorted(set(names_of(rank, loads[:1000].tolist())))[:3],
            windows=per(rank),
        )

    def tell(self, job: JobEvidence[LateLoadingEvidence]) -> Finding:
        worst = job.worst
        first = (
            "the first launch of a kernel takes"
            if worst.calls == 1
            else f"{worst.calls} first launches of kernels take"
        )
        first = f"{first} {job.time(worst.launches)}" if worst.calls else ""
        loads = f"the host runs {', '.join(f'`{name}`' for name in worst.loads)}" if worst.loads else ""
        said = " and ".join(filter(None, (first, loads)))
        return self.finding(
            job,
            f"Kernels are loaded or compiled while the GPU is idle: {job.max_saving} {job.per_step}",
            evidence=f"{said[0].upper()}{said[1:]}.",
            assumption="All kernels are loaded before the first step.",
            snippet="CUDA_MODULE_LOADING=EAGER python main.py",
        )


@dataclass(frozen=True, kw_only=True)
class RecompilationEvidence(Evidence):
    """What was seen on one rank: torch.compile compiles within the steps."""

    compiling: int
    lookups: int
    steps: int
    regions: list[str]
    windows: int


@dataclass(frozen=True)
class Recompilation(Rule[RecompilationEvidence]):
    """`torch.compile` compiles again within the steps, or checks its guards for long.

    ## When it speaks
    The device is idle while TorchDynamo, AOTAutograd, Inductor or Triton compile, in more than one step or for at least
    `least` of the time; or while guards are looked up, for that much.

    ## What it could save
    That idle time.

    ## What to do
    Let dimensions that change be dynamic, remove graph breaks, and pass Python numbers that change as tensors;
    `TORCH_LOGS=recompiles` tells what made it compile again.

    ## How to verify
    No compilation after the first steps.
    """

    code, title, family, section = "H12", "torch.compile compiles within the steps", Family.HOST, IDLE
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})
    about_idle = True

    least: float = 0.01

    def look(self, rank: Rank) -> RecompilationEvidence | None:
        rows = rows_named(rank, _COMPILES)
        compiling, lookups = during(rank, rows), during(rank, rows_named(rank, _LOOKUP))
        claim = joined(compiling, minus(lookups, compiling))
        starts, steps = rank.host.at("ts", rows), rank.steps
        place = np.searchsorted(steps["start"].to_numpy(), starts, side="right")
        in_steps = len(unique_sorted(place[place > 0]))
        if rank.share(claim) < self.least and (in_steps < 2 or not total(compiling)):  # noqa: PLR2004  again
            return None
        again = coded(rank, _REGION)
        return RecompilationEvidence(
            claim=claim,
            spans=rank.spans(claim),
            compiling=total(compiling),
            lookups=total(minus(lookups, compiling)),
            steps=in_steps,
            regions=[rank.loaded.strings[code] for code in np.flatnonzero(again).tolist()[:3]],
            windows=per(rank),
        )

    def tell(self, job: JobEvidence[RecompilationEvidence]) -> Finding:
        worst = job.worst
        said = [
            f"{words} {job.time(time / worst.windows)} {job.per_step}"
            for words, time in (("compilation takes", worst.compiling), ("looking up guards takes", worst.lookups))
            if time
        ]
        if worst.steps > 1:
            said.append(f"something is compiled in {counted(worst.steps, 'step')}")
        if worst.regions:
            said.append(f"compiled more than once: {', '.join(f'`{name}`' for name in worst.regions)}")
        words = "; ".join(said)
        return self.finding(
            job,
            f"torch.compile keeps the host busy while the GPU is idle: {job.max_saving} {job.per_step}",
            evidence=f"{words[:1].upper()}{words[1:]}.",
            assumption="Everything is compiled before the first step recorded.",
            snippet="TORCH_LOGS=recompiles,graph_breaks python main.py",
        )


@dataclass(frozen=True, kw_only=True)
class GarbageCollectionEvidence(Evidence):
    """What was seen on one rank: garbage collection pauses the host."""

    pauses: int
    longest: int
    windows: int


@dataclass(frozen=True)
class GarbageCollection(Rule[GarbageCollectionEvidence]):
    """Python collects garbage while the device is idle.

    ## When it speaks
    Garbage collections are recorded (`_ExperimentalConfig(record_python_gc_info=True)` from PyTorch 2.9 on, or
    `gc.collect` in Python stacks), and the device is idle in them for at least `least` µs in all.

    ## What it could save
    That idle time.

    ## What to do
    Freeze what stays, and collect at the same step on all ranks, every so many steps.

    ## How to verify
    No `Python GC` within the steps.
    """

    code, title, family, section = "H13", "Garbage collection pauses the host", Family.HOST, IDLE
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})
    about_idle, confidence = True, "high"

    least: float = 1000.0

    def look(self, rank: Rank) -> GarbageCollectionEvidence | None:
        start, end, capture = rows_in(rank, "python_function", _GC)
        claim = common(late(rank), by_lane(rank, start, end, capture))
        if total(claim) < 1000 * self.least:
            return None
        return GarbageCollectionEvidence(
            claim=claim,
            spans=rank.spans(claim, name="garbage collection"),
            pauses=len(start),
            longest=int((end - start).max()),
            windows=per(rank),
        )

    def tell(self, job: JobEvidence[GarbageCollectionEvidence]) -> Finding:
        worst = job.worst
        return self.finding(
            job,
            f"Garbage collection leaves the GPU idle for {job.max_saving} {job.per_step}",
            evidence=f"{counted(worst.pauses, 'collection')} recorded, the longest of {job.time(worst.longest)}.",
            assumption="Garbage is collected when the device has work queued.",
            snippet="gc.collect(); gc.freeze(); gc.disable()  # Once the model is built.\n"
            "if step % 500 == 0:\n    gc.collect()",
        )


@dataclass(frozen=True, kw_only=True)
class SlowLaunchesEvidence(Evidence):
    """What was seen on one rank: launch calls are slow."""

    middle: float
    high: float


@dataclass(frozen=True)
class SlowLaunches(Rule[SlowLaunchesEvidence]):
    """Calls that launch a kernel are slow themselves, although the device has nothing to do.

    ## When it speaks
    What launches of kernels take beyond `usual` µs each, while the device is idle, is at least `least` of the step.
    The first launches of kernels (H11) don't count, nor do copies and launches of graphs, which take longer.

    ## What it could save
    What they take beyond `usual` µs.

    ## What to do
    Give the launching thread a core of its own near the device: fewer threads (`OMP_NUM_THREADS`) and loader workers
    than cores, `numactl`, the performance governor.

    ## How to verify
    The median of launch calls is a few µs.
    """

    code, title, family, section = "H23", "Launch calls are slow", Family.HOST, "launch_stats"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})
    about_idle = True

    usual: float = 6.0
    least: float = 0.02

    def look(self, rank: Rank) -> SlowLaunchesEvidence | None:
        calls = rank.launches
        is_kernel = np.array([classify.is_kernel_launch(str(name)) for name in calls["name"].cat.categories], np.bool_)
        single = is_kernel[calls["name"].cat.codes.to_numpy()]
        launching = common(rank.idle_by(Cause.LAUNCHING), in_front(rank, single))
        slow = minus(launching, first_launches(rank))
        claim = Sets()
        for lane, mine in slow.items():
            begin = mine[:, 0] + round(1000 * self.usual)
            claim[lane] = intervals.union(begin, mine[:, 1])
        if rank.share(claim) < self.least:
            return None
        used = unique_sorted(rank.device_events["launch"].to_numpy())
        used = used[used >= 0]
        middle, high = np.quantile(calls["dur"].to_numpy()[used[single[used]]], (0.5, 0.95)).tolist()
        return SlowLaunchesEvidence(claim=claim, spans=rank.spans(claim), middle=middle, high=high)

    def tell(self, job: JobEvidence[SlowLaunchesEvidence]) -> Finding:
        worst = job.worst
        return self.finding(
            job,
            f"Slow launch calls leave the GPU idle for {job.max_saving} {job.per_step}",
            evidence=f"Half of the launch calls take more than {job.time(worst.middle)}, one in twenty more than "
            f"{job.time(worst.high)}; usual are {self.usual:g} µs.",
            assumption=f"A launch takes {self.usual:g} µs.",
            snippet="OMP_NUM_THREADS=8 numactl --cpunodebind=0 --membind=0 python main.py",
        )
