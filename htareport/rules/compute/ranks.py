"""A rank whose GPU runs every kernel slower than the GPUs of the other ranks."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2s
from typing import NamedTuple

import numpy as np

from htareport.rank.capability import Capability
from htareport.rank.compute_time import compute_time
from htareport.rank.equal_kernels import equal_kernels
from htareport.rank.operator_work import NONE
from htareport.rank.rank import Rank
from htareport.report.findings import Finding
from htareport.report.number_lists import listed
from htareport.rules.engine.base import Family, Rule, severity_of
from htareport.rules.engine.evidence import Evidence, JobEvidence

_MAX_KERNELS = 64  # Of a rank that are compared: those of most time.
_MIN_NS = 20_000  # Shorter kernels vary by themselves.


class _SlowRank(NamedTuple):
    """How many times as long a rank takes for the kernels that it shares with others."""

    rank: int
    ratio: float
    spread: float
    num_kernels: int


@dataclass(frozen=True, kw_only=True)
class KernelTimesEvidence(Evidence):
    """What kernels of one rank take, to be compared with the same kernels of other ranks."""

    median_ns: dict[str, float]  # By a digest of the kernel's work.
    compute_ns: float  # Per step and device.


@dataclass(frozen=True)
class SlowRank(Rule[KernelTimesEvidence]):
    """All kernels of one rank are slower than those of the others, by the same factor.

    ## When it speaks
    A rank shares at least `kernels` kernels of equal work (name, grid, operator and shapes, at least 20 µs) with other
    ranks. The ratios of its median times to those of the others have a median of at least `ratio`, and their quartiles
    are no more than `spread` apart. If the program were the reason, ratios would differ from kernel to kernel.

    ## What it could save
    What its compute takes longer by that factor, if the others wait for it. The finding says how much that is, but does
    not count it.

    ## What to do
    The hardware is slow, not the program. Check clocks, power cap, temperature and ECC errors of that GPU (`nvidia-smi
    -q -d CLOCK,PERFORMANCE,ECC`, `amd-smi metric`), and other processes on it.

    ## How to verify
    Run the rank on another GPU: its kernels are as fast as those of the others.
    """

    code, title, family, section = "C24", "One rank's device is slower", Family.COMPUTE, "kernel_distribution"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})

    kernels: int = 20
    ratio: float = 1.05
    spread: float = 0.03

    def look(self, rank: Rank) -> KernelTimesEvidence | None:
        events = equal_kernels(rank)
        events = events[events["alone"]]
        if events["key"].nunique() < self.kernels:
            return None
        groups = events.groupby("key")
        table = groups["dur"].agg(["median", "sum"])
        table = table[table["median"] >= _MIN_NS].nlargest(_MAX_KERNELS, "sum")
        if len(table) < self.kernels:
            return None
        first = groups[["name", "grid", "operator", "shapes"]].first().loc[table.index]
        strings = rank.loaded.strings
        keys = [_digest(strings[code] if code != NONE else "" for code in codes) for codes in first.to_numpy().tolist()]
        return KernelTimesEvidence(
            median_ns=dict(zip(keys, table["median"].tolist(), strict=True)),
            compute_ns=compute_time(rank) / rank.num_steps / max(len(rank.devices), 1),
        )

    def tell(self, job: JobEvidence[KernelTimesEvidence]) -> Finding | None:
        times_by_kernel = defaultdict[str, list[float]](list)
        for evidence in job.by_rank.values():
            for key, time in evidence.median_ns.items():
                times_by_kernel[key].append(time)
        for times in times_by_kernel.values():
            times.sort()
        compared = (self._compared(rank, evidence, times_by_kernel) for rank, evidence in job.by_rank.items())
        slow_ranks = list(filter(None, compared))
        if not slow_ranks:
            return None
        slowest = max(slow_ranks, key=lambda slow_rank: (slow_rank.ratio, -slow_rank.rank))
        extra = job.by_rank[slowest.rank].compute_ns * (1 - 1 / slowest.ratio)
        less_slow = [slow_rank.rank for slow_rank in slow_ranks if slow_rank != slowest]
        also = f" Slower by less: rank{'s' * (len(less_slow) > 1)} {listed(less_slow)}." if less_slow else ""
        return self.finding(
            job,
            f"All kernels of rank {slowest.rank} take {job.percent(slowest.ratio - 1)} longer than those of the other "
            "ranks",
            severity=severity_of(extra / job.step_ns if job.step_ns else 0.0),
            ranks=tuple(sorted(slow_rank.rank for slow_rank in slow_ranks)),
            spans=(),
            evidence=f"{slowest.num_kernels} kernels of equal work take longer by the same factor (quartiles "
            f"{slowest.spread:.3f} apart), {job.time(extra)} of its compute {job.per_step}.{also}",
            assumption="The others wait for it; then the step is shorter by as much.",
        )

    def _compared(
        self, rank: int, evidence: KernelTimesEvidence, times_by_kernel: Mapping[str, Sequence[float]]
    ) -> _SlowRank | None:
        """Compare a rank to the median of the others, whose times are sorted; None where it is not slower."""
        shared = [(time, times_by_kernel[kernel]) for kernel, time in evidence.median_ns.items()]
        ratios = [time / _median_without(times, time) for time, times in shared if len(times) > 1]
        if len(ratios) < self.kernels:
            return None
        low, middle, high = np.percentile(ratios, [25, 50, 75]).tolist()
        is_slow = middle >= self.ratio and high - low <= self.spread
        return _SlowRank(rank, middle, high - low, len(ratios)) if is_slow else None


def _median_without(times: Sequence[float], time: float) -> float:
    """The median of sorted times without one of them."""
    index, remaining = bisect_left(times, time), len(times) - 1
    low, high = (times[middle + (middle >= index)] for middle in ((remaining - 1) // 2, remaining // 2))
    return (low + high) / 2


def _digest(texts: Iterable[str]) -> str:
    """A short name for kernels that do equal work, the same on all ranks."""
    return blake2s("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
