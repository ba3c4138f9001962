"""Kernels with a low occupancy (few warps on each processor), and what limits it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.occupancy import WARP, Limiter
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
from htareport.rules.engine.kernel_evidence import KernelEvidence, kernel_fields, listed

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
_NOT_CUSTOM = re.compile(
    r"^(?:aten|autograd|c10d?|torch\w*|fbgemm|apex|_?vllm\w*|_C\w*|xformers|flash\w*|te\w*)::|^[^:]*$"
)
_MAX_SEARCHED = 256  # Characters of a name: what follows is its arguments.
_SAVED_SHARE = 0.2  # Of their time, with more warps.


class _Candidates(NamedTuple):
    """Long compute kernels other than products, convolutions and attention, with their launch configurations."""

    rows: NDArray[np.int64]  # Of device events.
    configs: list[LaunchConfig]
    number: NDArray[np.int64]  # Of the configuration of each.

    def by_event(self, measure: Callable[[LaunchConfig], float]) -> NDArray[np.float64]:
        """What is measured of the launch configuration of each event."""
        return np.array([measure(config) for config in self.configs] or [np.nan], np.float64)[self.number]


@cached_until_release
def _candidates(rank: Rank, shortest: float) -> _Candidates:
    events = events_of(rank)
    rows = np.flatnonzero(events.wanted & (events.durations >= 1000 * shortest))
    has_work = np.array([signature.work is not None for signature in events.found.signatures], np.bool_)
    if has_work.any():
        rows = rows[~events.of_calls(has_work, 0).astype(np.bool_)[rows]]
    rows = rows[~_is_by_design(rank, events.codes[rows].astype(np.int64))]
    operator = operators(rank)[rows]  # Of Triton's kernels for attention often only the operator says what they are.
    is_by_design = np.zeros(len(rows), np.bool_)
    is_by_design[operator != NONE] = _is_by_design(rank, kernel_launches.names_of(rank, operator[operator != NONE]))
    rows = rows[~is_by_design]
    return _Candidates(rows, *launch_configs(rank, rows))


def _is_by_design(rank: Rank, codes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of these name codes are of products, convolutions or attention."""
    distinct, number = np.unique(codes, return_inverse=True)
    names = kernel_launches.texts(rank, distinct.tolist())
    return np.array([bool(_BY_DESIGN.search(name[:_MAX_SEARCHED])) for name in names], np.bool_)[number]


def _fitting_share(config: LaunchConfig) -> float:
    """Share of a processor's warps that fit at once, nan where it is not known."""
    return config.resident.warps / config.max_warps if config.resident and config.max_warps else np.nan


def _grid_share(config: LaunchConfig) -> float:
    """Share of a processor's warps that the grid has for each, nan where it is not known."""
    warps = -(-config.threads // WARP) if config.threads > 0 else np.nan
    return config.blocks_per_processor * warps / config.max_warps if config.max_warps else np.nan


@dataclass(frozen=True, kw_only=True)
class OccupancyEvidence(KernelEvidence):
    """Kernels with a low occupancy."""

    occupancy: float  # Mean share of the warps that fit, weighted by time.


@dataclass(frozen=True)
class LowOccupancy(Rule[OccupancyEvidence]):
    """Kernels have a low occupancy: too few warps on each processor to hide the time they wait for memory.

    ## When it speaks
    Kernels of at least `shortest` µs have an occupancy below `below`, and take at least `least` of the compute time.
    Matrix products, convolutions and attention do not count: they run well with few warps. The occupancy is the
    profiler's estimate; where that is 0, it follows from registers, shared memory, block size and the device's limits.
    Grids that are too small for more warps (C9) or leave a nearly empty last wave (C10) do not count. AMD traces record
    neither, so nothing is known there.

    ## What it could save
    A fifth of their time, which is a guess. The lower estimate is zero. Only what shortens the step counts: time that
    no other work covers, as far as the CPU launches early enough.

    ## What to do
    Give these kernels more warps: use smaller tiles, fewer registers or less shared memory per block. Or let
    `torch.compile` generate another kernel.

    ## How to verify
    `est. achieved occupancy %` of these kernels rises in the trace, and they take less time.
    """

    code, title, family, section = "C11", "Low occupancy", Family.COMPUTE, "kernel_breakdown"
    requires = frozenset({Capability.GPU})
    is_general, confidence = True, "low"

    below: float = 0.25
    least: float = 0.03
    shortest: float = 10.0

    def lacking(self, rank: Rank) -> tuple[str, ...]:
        return super().lacking(rank) or unknown_processors(rank)

    def look(self, rank: Rank) -> OccupancyEvidence | None:
        events, candidates = events_of(rank), _candidates(rank, self.shortest)
        rows = candidates.rows
        if not len(rows):
            return None
        fitting, grid = candidates.by_event(_fitting_share), candidates.by_event(_grid_share)
        recorded = occupancy(rank, rows)
        share = np.where(np.isnan(recorded), np.minimum(fitting, grid), recorded)
        is_filled = candidates.by_event(lambda config: config.blocks_per_processor) >= 1
        is_low = (
            (share < self.below) & (grid >= self.below) & is_filled & ~context_of(rank).explained(rank, "C10")[rows]
        )
        is_affected = np.zeros(len(events.durations), np.bool_)
        is_affected[rows[is_low]] = True
        if not is_low.any() or events.durations[is_affected].sum() < self.least * compute_time(rank):
            return None
        mean = float(np.average(share[is_low], weights=events.durations[rows[is_low]]))
        fields = kernel_fields(rank, is_affected, 1 - _SAVED_SHARE)
        return OccupancyEvidence(**fields, occupancy=mean) if fields else None

    def tell(self, job: JobEvidence[OccupancyEvidence]) -> Finding | None:
        worst = job.worst
        return self.finding(
            job,
            f"Kernels with an occupancy of {job.percent(worst.occupancy)} may cost up to {job.max_saving} "
            f"{job.per_step}",
            evidence=f"Kernels with an occupancy below {job.percent(self.below)} take "
            f"{job.percent(worst.compute_share)} of compute, not counting products, convolutions and attention: "
            f"{listed(job)} {job.per_step}.",
            low_ns=0,
            assumption="With more warps they take a fifth less. The lower estimate is no saving.",
        )


@dataclass(frozen=True, kw_only=True)
class OccupancyLimitEvidence(Evidence):
    """The custom kernel of most time of which few blocks fit on a processor, and what limits them."""

    kernel: str
    blocks: int  # That fit at once, with their warps.
    warps: int
    warp_share: float  # Of the warps that a processor holds.
    limiter: str
    usage: str  # What the kernel takes of that, as words.
    compute_share: float  # Of all such kernels.


@dataclass(frozen=True)
class OccupancyLimit(Rule[OccupancyLimitEvidence]):
    """A custom kernel takes so many registers or so much shared memory that few of its blocks fit on a processor.

    ## When it speaks
    Kernels that are no library's (Triton's, and custom CUDA kernels) take at least `shortest` µs each and at least
    `least` of the compute time. Either registers are the limit, with at least `registers` per thread, or shared memory
    is, with fewer than `blocks` blocks on a processor. They have more blocks than fit at once. What fits follows from
    the recorded kernel and device. AMD traces lack some of that, so nothing is known there.

    ## What it could save
    Nothing is claimed: more warps help only where kernels wait for memory, which C11 looks for.

    ## What to do
    - **registers**: Use fewer registers per thread: a larger `num_warps`, a smaller tile or `maxnreg` in Triton,
      `__launch_bounds__` in CUDA. Measure the change: a kernel whose registers spill to memory gets slower.
    - **shared memory**: Use less shared memory per block: a smaller tile, or fewer `num_stages` in Triton.

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
        events, (rows, configs, number) = events_of(rank), _candidates(rank, self.shortest)
        is_limited = np.array([self._is_limited(config) for config in configs] or [False])[number]
        rows, number = rows[is_limited], number[is_limited]
        if not len(rows):
            return None
        is_custom = _is_custom(rank, rows)
        rows, number = rows[is_custom], number[is_custom]
        time = int(events.durations[rows].sum())
        if not len(rows) or time < self.least * compute_time(rank):
            return None
        worst = int(np.bincount(number, events.durations[rows]).argmax())
        config, resident = configs[worst], configs[worst].resident
        if resident is None:  # It would not be limited.
            return None
        is_registers = resident.limiter is Limiter.REGISTERS
        return OccupancyLimitEvidence(
            kernel=short(rank.loaded.strings[events.codes[rows[(number == worst).argmax()]]]),
            blocks=resident.blocks,
            warps=resident.warps,
            warp_share=_fitting_share(config),
            limiter=str(resident.limiter),
            usage=f"{config.registers} per thread" if is_registers else f"{config.shared_memory:,} bytes per block",
            compute_share=time / compute_time(rank),
        )

    def _is_limited(self, config: LaunchConfig) -> bool:
        if config.resident is None or not config.waves > 1:  # With fewer blocks than fit, nothing is limited.
            return False
        if config.resident.limiter is Limiter.REGISTERS:
            return config.registers >= self.registers
        return config.resident.limiter is Limiter.SHARED_MEMORY and config.resident.blocks < self.blocks

    def tell(self, job: JobEvidence[OccupancyLimitEvidence]) -> Finding | None:
        rank, worst = max(job.by_rank.items(), key=lambda item: (item[1].compute_share, -item[0]))
        return self.finding(
            job,
            f"Only {worst.blocks} block{'s' * (worst.blocks > 1)} of `{worst.kernel}` "
            f"fit{'s' * (worst.blocks == 1)} on a processor, because of {worst.limiter}",
            severity=Severity.LOW,
            evidence=f"On rank {rank}, such kernels take {job.percent(worst.compute_share)} of compute. The limit is "
            f"{worst.limiter}: {worst.usage}. {worst.warps} warps fit, {job.percent(worst.warp_share)} of what a "
            "processor holds.",
            cases=(worst.limiter,),
            snippet='@triton.autotune([triton.Config({"BLOCK": 512}, num_warps=8, num_stages=2)], key=["n"])',
        )


def _is_custom(rank: Rank, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which device events are of no library: Triton's, launched as Triton does, or by a custom operator."""
    codes, launch = (
        rank.device_events["name"].cat.codes.to_numpy()[rows],
        rank.device_events["launch"].to_numpy()[rows],
    )
    calls = np.append(rank.launches["name"].cat.codes.to_numpy(), 0)[launch]  # The last is for events of no launch.
    is_custom = [
        _TRITON.search(name) is not None
        or (_LIBRARY.search(name) is None and (bool(_DRIVER.search(call)) or not _NOT_CUSTOM.search(operator or "")))
        for name, call, operator in zip(
            kernel_launches.texts(rank, codes.tolist()),
            kernel_launches.texts(rank, np.where(launch == NONE, codes, calls).tolist()),
            kernel_launches.names_or_none(rank, operators(rank)[rows]),
            strict=True,
        )
    ]
    return np.array(is_custom, np.bool_)
