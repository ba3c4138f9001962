"""Kernels that keep few warps on each processor, and what stands in the way of more."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.occupancy import Limiter
from htareport.rank import kernel_launches
from htareport.rank.cached import cached_until_release
from htareport.rank.capability import Capability
from htareport.rank.compute_time import compute_time, operators
from htareport.rank.kernel_grids import LaunchConfig, launch_configs, occupancy, unknown_processors
from htareport.rank.kernel_types import events_of
from htareport.rank.operator_groups import short
from htareport.rank.operator_work import NONE
from htareport.rank.rank import Rank
from htareport.report.findings import Finding, Severity
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.context import context_of
from htareport.rules.engine.evidence import Evidence, JobEvidence
from htareport.rules.engine.kernel_evidence import KernelEvidence, evidence_of, listed
from htareport.rules.engine.wording import held_up

# Products, convolutions and attention (Triton's by its customary name) run well with few warps, by design.
_BY_DESIGN = re.compile(
    r"gemm|gemv|cutlass|cublas|cudnn|xmma|nvjet|wgmma|\bcask|flash|fmha|attention|attn|conv(?!ert)|winograd|dgrad|wgrad|"
    r"fprop|_(?:bmm|mm|addmm)\b|_(?:bmm|mm|addmm)_|rnn|lstm|fft|^_(?:fwd|bwd)_kernel",
    re.IGNORECASE,
)
_LIBRARY = re.compile(
    r"\b(?:at|c10|torch|cub|thrust|cusparse|fbgemm\w*|apex|transformer_engine|vllm|flashinfer|xformers|magma)(?:::|_)|"
    r"^(?:void )?(?:\(anonymous namespace\)|vectorized_elementwise|multi_tensor_apply|splitKreduce|nccl)"
)
_TRITON = re.compile(r"^triton_")
_DRIVER = re.compile(r"^cuLaunchKernel")
_NO_OWN = re.compile(r"^(?:aten|autograd|c10d?|torch\w*|fbgemm|apex|_?vllm\w*|_C\w*|xformers|flash\w*|te\w*)::|^[^:]*$")
_MOST_SEARCHED = 256  # Characters of a name: what follows is its arguments.
_SAVED = 0.2  # Of their time, with more warps.
_WHY = {
    Limiter.REGISTERS: "registers: {registers} per thread",
    Limiter.SHARED_MEMORY: "shared memory: {shared_memory:,} bytes per block",
    Limiter.BLOCK_SIZE: "the size of blocks: {threads} threads",
    Limiter.BLOCKS: "the number of blocks: {threads} threads are too few for each",
}


class _Ways(NamedTuple):
    """Long compute kernels that are no products, convolutions or attention: their places, and how they are launched."""

    mine: NDArray[np.int64]
    ways: list[LaunchConfig]
    number: NDArray[np.int64]

    def of(self, values: list[float]) -> NDArray[np.float64]:
        """A number of each one's way."""
        return np.array(values or [np.nan], np.float64)[self.number]


@cached_until_release
def _ways(rank: Rank, shortest: float) -> _Ways:
    events = events_of(rank)
    mine = np.flatnonzero(events.wanted & (events.durations >= 1000 * shortest))
    has_work = [signature.work is not None for signature in events.found.signatures]
    if any(has_work):
        mine = mine[~events.of_calls(np.array(has_work), 0).astype(np.bool_)[mine]]
    mine = mine[~_by_design(rank, events.codes[mine])]
    rows = operators(rank)[mine]  # Of Triton's kernels for attention often only the operator says what they are.
    by_operator = np.zeros(len(mine), np.bool_)
    by_operator[rows != NONE] = _by_design(rank, kernel_launches.names_of(rank, rows[rows != NONE]))
    mine = mine[~by_operator]
    return _Ways(mine, *launch_configs(rank, mine))


def _by_design(rank: Rank, codes: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
    """Which of these codes of names are of products, convolutions or attention."""
    used, number = np.unique(codes, return_inverse=True)
    names = kernel_launches.texts(rank, used.tolist())
    return np.array([bool(_BY_DESIGN.search(name[:_MOST_SEARCHED])) for name in names], np.bool_)[number]


def _room(each: LaunchConfig) -> float:
    """Share of a processor's warps that fit, nan where it is not known."""
    return each.resident.warps / each.max_warps if each.resident and each.max_warps else np.nan


def _given(each: LaunchConfig) -> float:
    """The same of the warps that there are for each processor."""
    warps = -(-each.threads // 32) if each.threads > 0 else np.nan
    return each.blocks_per_processor * warps / each.max_warps if each.max_warps else np.nan


@dataclass(frozen=True, kw_only=True)
class OccupancyEvidence(KernelEvidence):
    """What LowOccupancy sees on one rank."""

    occupancy: float  # Share of the warps that fit.


@dataclass(frozen=True)
class LowOccupancy(Rule[OccupancyEvidence]):
    """Kernels that wait for memory keep few warps on each processor, too few to hide what they wait for.

    ## When it speaks
    Kernels of at least `shortest` µs that are no matrix products, convolutions or attention (those run well with few
    warps) have an occupancy below `below`, as the profiler estimates it, or as registers, shared memory, block size and
    the device's limits tell where it writes 0; and they take at least `least` of the compute time. Their grids are
    large enough for more: otherwise it is the grid (C9), or its last wave (C10). Where the trace tells neither (AMD),
    nothing is known.

    ## What it could save
    A fifth of their time, a guess; nothing for the lower estimate. Of that, what no other work covers and the host's
    launches allow.

    ## What to do
    Give them more warps: smaller tiles, fewer registers or less shared memory per block; or let `torch.compile` make
    another kernel.

    ## How to verify
    `est. achieved occupancy %` of these kernels rises in the trace, and they take less time.
    """

    code, title, family, section = "C11", "Few warps to hide memory", Family.COMPUTE, "kernel_breakdown"
    requires = frozenset({Capability.GPU})
    is_general, confidence = True, "low"

    below: float = 0.25
    least: float = 0.03
    shortest: float = 10.0

    def lacking(self, rank: Rank) -> tuple[str, ...]:
        return super().lacking(rank) or unknown_processors(rank)

    def look(self, rank: Rank) -> OccupancyEvidence | None:
        events, found = events_of(rank), _ways(rank, self.shortest)
        if not len(found.mine):
            return None
        room, given = (found.of([each(way) for way in found.ways]) for each in (_room, _given))
        told = occupancy(rank, found.mine)
        share = np.where(np.isnan(told), np.minimum(room, given), told)
        fills = found.of([way.blocks_per_processor for way in found.ways]) >= 1
        few = (
            (share < self.below) & (given >= self.below) & fills & ~context_of(rank).explained(rank, "C10")[found.mine]
        )
        mine = np.zeros(len(events.durations), np.bool_)
        mine[found.mine[few]] = True
        if not mine.any() or events.durations[mine].sum() < self.least * compute_time(rank):
            return None
        mean = float(np.average(share[few], weights=events.durations[found.mine[few]]))
        return evidence_of(OccupancyEvidence, rank, mine, np.full(len(mine), 1 - _SAVED), occupancy=mean)

    def tell(self, job: JobEvidence[OccupancyEvidence]) -> Finding | None:
        worst = job.worst
        return self.finding(
            job,
            f"Kernels with {job.percent(worst.occupancy)} of the warps that fit may cost up to "
            f"{job.max_saving} {job.per_step}",
            evidence=f"{job.percent(worst.compute_share)} of compute is kernels with an occupancy below "
            f"{job.percent(self.below)}, no products, convolutions or attention: {listed(job)} {job.per_step}.",
            low_ns=0,
            assumption="With more warps they take a fifth less; the lower estimate is nothing." + held_up(job),
        )


@dataclass(frozen=True, kw_only=True)
class OccupancyLimitEvidence(Evidence):
    """What was seen on one rank: what limits the occupancy of kernels."""

    name: str
    blocks: int
    warps: int
    limiter: str
    way: dict[str, int]
    room: float
    share: float


@dataclass(frozen=True)
class OccupancyLimit(Rule[OccupancyLimitEvidence]):
    """A kernel of one's own takes so many registers or so much shared memory that few of its blocks fit.

    ## When it speaks
    Kernels that are no library's (Triton's, and CUDA kernels of one's own), of at least `shortest` µs, take at least
    `registers` registers per thread where registers are the limit, or so much shared memory that fewer than `blocks`
    blocks fit on a processor; there are more blocks than fit at once, and they take at least `least` of the compute
    time. What fits follows from what is recorded of the kernel and the device; where any of it is missing (AMD),
    nothing is known.

    ## What it could save
    Nothing is claimed: that more warps help is likely only where kernels wait for memory, of which C11 speaks.

    ## What to do
    Where registers spill, it gets slower: measure.

    - **registers**: Give threads fewer registers: `num_warps` larger or a smaller tile in Triton, `maxnreg`,
      `__launch_bounds__` in CUDA.
    - **shared memory**: Take less shared memory per block: a smaller tile, or fewer `num_stages` in Triton.
    - **block size**: Choose blocks of 128 or 256 threads, of which several fit.
    - **blocks**: Choose blocks of 128 or 256 threads.

    ## How to verify
    More blocks fit, and the kernel takes less time.
    """

    code, title, family, section = "C12", "What limits the occupancy of kernels", Family.COMPUTE, "kernel_breakdown"
    requires = frozenset({Capability.GPU})
    follows = "C11"

    registers: int = 128
    blocks: int = 2
    least: float = 0.01
    shortest: float = 10.0

    def lacking(self, rank: Rank) -> tuple[str, ...]:
        return super().lacking(rank) or unknown_processors(rank)

    def look(self, rank: Rank) -> OccupancyLimitEvidence | None:
        events, found = events_of(rank), _ways(rank, self.shortest)
        few = np.array([self._is_limited(way) for way in found.ways] or [False])[found.number]
        mine = found.mine[few]
        if len(mine):
            own = _own(rank, mine)
            mine, number = mine[own], found.number[few][own]
        if not len(mine) or events.durations[mine].sum() < self.least * compute_time(rank):
            return None
        worst = int(np.bincount(number, events.durations[mine]).argmax())
        way = found.ways[worst]
        if way.resident is None:  # It would not be limited.
            return None
        name = short(rank.loaded.strings[events.codes[mine[(number == worst).argmax()]]])
        return OccupancyLimitEvidence(
            name=name,
            blocks=way.resident.blocks,
            warps=way.resident.warps,
            limiter=str(way.resident.limiter),
            way={key: getattr(way, key) for key in ("threads", "registers", "shared_memory")},
            room=_room(way),
            share=int(events.durations[mine].sum()) / compute_time(rank),
        )

    def _is_limited(self, each: LaunchConfig) -> bool:
        if each.resident is None or not each.waves > 1:  # With fewer blocks than fit, nothing is limited.
            return False
        if each.resident.limiter is Limiter.REGISTERS:
            return each.registers >= self.registers
        return each.resident.limiter is Limiter.SHARED_MEMORY and each.resident.blocks < self.blocks

    def tell(self, job: JobEvidence[OccupancyLimitEvidence]) -> Finding | None:
        rank, evidence = max(job.by_rank.items(), key=lambda item: (item[1].share, -item[0]))
        worst = evidence
        blocks, limiter = worst.blocks, Limiter(worst.limiter)
        why = _WHY[limiter].format(**worst.way)
        return self.finding(
            job,
            f"Of `{worst.name}` only {blocks} block{'s' * (blocks > 1)} fit{'s' * (blocks == 1)} on a processor, "
            f"because of {limiter}",
            severity=Severity.LOW,
            evidence=f"On rank {rank}, {job.percent(worst.share)} of compute is such kernels. The limit is {why}; "
            f"{worst.warps} warps are {job.percent(worst.room)} of what a processor holds.",
            cases=(limiter.name.lower().replace("_", " "),),
            snippet='@triton.autotune([triton.Config({"BLOCK": 512}, num_warps=8, num_stages=2)], key=["n"])',
        )


def _own(rank: Rank, mine: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which device events are of no library: Triton's, launched as Triton does, or by an operator of one's own."""
    trace, events = rank, rank.device_events
    codes, launch = events["name"].cat.codes.to_numpy()[mine], events["launch"].to_numpy()[mine]
    calls, rows = trace.launches["name"].cat.codes.to_numpy(), operators(rank)[mine]
    own = [
        _TRITON.search(name) is not None
        or (_LIBRARY.search(name) is None and (bool(_DRIVER.search(call)) or not _NO_OWN.search(operator)))
        for name, call, operator in zip(
            kernel_launches.texts(trace, codes.tolist()),
            kernel_launches.texts(trace, np.where(launch == NONE, codes, np.append(calls, 0)[launch]).tolist()),
            (each or "" for each in kernel_launches.names_or_none(trace, rows)),
            strict=True,
        )
    ]
    return np.array(own, np.bool_)
