"""A rank whose device does everything slower than those of the others."""

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
from htareport.rules.engine.base import Family, Rule, severity_of
from htareport.rules.engine.evidence import Evidence, JobEvidence

_MOST = 64  # Kernels of a rank that are compared, those of most time.
_SHORT_NS = 20_000  # What takes less varies by itself.


class _Slow(NamedTuple):
    """A rank by how much of what it shares with the others it takes longer."""

    rank: int
    ratio: float
    spread: float
    shared: int


@dataclass(frozen=True, kw_only=True)
class SlowRankEvidence(Evidence):
    """What was seen on one rank: one rank's device is slower."""

    times: dict[str, float]
    compute: float


@dataclass(frozen=True)
class SlowRank(Rule[SlowRankEvidence]):
    """All kernels of one rank are slower than those of the others, by the same factor.

    ## When it speaks
    Of at least `kernels` kernels of equal work (name, grid, operator and shapes, at least 20 µs) that a rank shares
    with others, the ratios of its median times to those of the others have a median of at least `ratio` and quartiles
    no more than `spread` apart. What is slower for a reason in the program differs from kernel to kernel.

    ## What it could save
    What its compute takes longer by that factor, if the others wait for it; it is told, but not counted.

    ## What to do
    That is the hardware, not the program: look at clocks, power cap, temperature and ECC errors (`nvidia-smi -q -d
    CLOCK,PERFORMANCE,ECC`, `amd-smi metric`), and at other processes on that GPU.

    ## How to verify
    With the rank on another device the difference is gone.
    """

    code, title, family, section = "C24", "One rank's device is slower", Family.COMPUTE, "kernel_distribution"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})

    kernels: int = 20
    ratio: float = 1.05
    spread: float = 0.03

    def look(self, rank: Rank) -> SlowRankEvidence | None:
        events = equal_kernels(rank)
        events = events[events["alone"]]
        if events["key"].nunique() < self.kernels:
            return None
        groups = events.groupby("key")
        table = groups["dur"].agg(["median", "size", "sum"])
        table = table[table["median"] >= _SHORT_NS].nlargest(_MOST, "sum")
        if len(table) < self.kernels:
            return None
        first = groups[["name", "grid", "operator", "shapes"]].first().loc[table.index]
        strings = rank.loaded.strings
        keys = [_digest(strings[code] if code != NONE else "" for code in codes) for codes in first.to_numpy().tolist()]
        compute = compute_time(rank) / rank.num_steps / max(len(rank.devices), 1)
        return SlowRankEvidence(times=dict(zip(keys, table["median"].tolist(), strict=True)), compute=compute)

    def tell(self, job: JobEvidence[SlowRankEvidence]) -> Finding | None:
        times: dict[int, Mapping[str, float]] = {rank: each.times for rank, each in job.by_rank.items()}
        by_key = defaultdict[str, list[float]](list)
        for mine in times.values():
            for key, time in mine.items():
                by_key[key].append(time)
        for every in by_key.values():
            every.sort()
        slow = [each for rank, mine in times.items() if (each := self._slow(rank, mine, by_key))]
        if not slow:
            return None
        most = max(slow, key=lambda each: (each.ratio, -each.rank))
        extra = job.by_rank[most.rank].compute * (1 - 1 / most.ratio)
        others = (
            "" if len(slow) == 1 else f" So do, by less, ranks {', '.join(str(s.rank) for s in slow if s != most)}."
        )
        percent = job.percent(most.ratio - 1)
        return self.finding(
            job,
            f"All kernels of rank {most.rank} take {percent} longer than those of the other ranks",
            severity=severity_of(extra / job.step_ns if job.step_ns else 0.0),
            ranks=tuple(sorted(each.rank for each in slow)),
            spans=(),
            evidence=f"{most.shared} kernels of equal work take longer by the same factor (quartiles {most.spread:.3f} "
            f"apart), {job.time(extra)} of its compute {job.per_step}.{others}",
            assumption="The others wait for it; then the step is shorter by as much.",
        )

    def _slow(self, rank: int, mine: Mapping[str, float], every: Mapping[str, Sequence[float]]) -> _Slow | None:
        """How a rank compares to the median of the others, None where it is not slower by one factor.

        `every` has the times of all ranks in order.
        """
        ratios = [own / _median_of_others(every[key], own) for key, own in mine.items() if len(every[key]) > 1]
        if len(ratios) < self.kernels:
            return None
        low, middle, high = np.percentile(ratios, [25, 50, 75]).tolist()
        is_slow = middle >= self.ratio and high - low <= self.spread
        return _Slow(rank, middle, high - low, len(ratios)) if is_slow else None


def _median_of_others(times: Sequence[float], own: float) -> float:
    """The median of times in order without one of them."""
    place, left = bisect_left(times, own), len(times) - 1
    low, high = (times[middle + (middle >= place)] for middle in ((left - 1) // 2, left // 2))
    return (low + high) / 2


def _digest(parts: Iterable[str]) -> str:
    """A short name for kernels that do equal work, the same on all ranks."""
    return blake2s("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
