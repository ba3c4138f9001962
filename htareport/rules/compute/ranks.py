"""A rank whose GPU runs every kernel slower than the GPUs of the other ranks."""

from __future__ import annotations

from dataclasses import dataclass

from htareport.job.replay import JobChange
from htareport.job.slow_devices import MIN_SHARE, SlowDevice, slow_devices
from htareport.rank.capability import Capability
from htareport.rank.compute_time import compute_time
from htareport.rank.equal_work import EqualWork, equal_work
from htareport.rank.rank import Rank
from htareport.report.findings import Finding
from htareport.report.number_lists import listed
from htareport.rules.engine.base import Family, Rule, severity_of
from htareport.rules.engine.evidence import Evidence, JobEvidence


@dataclass(frozen=True, kw_only=True)
class KernelTimesEvidence(Evidence):
    """What kernels of one rank take, to be compared with the same kernels of other ranks."""

    work: EqualWork
    compute_ns: float  # Per step and device.


@dataclass(frozen=True)
class SlowRank(Rule[KernelTimesEvidence]):
    """All kernels of one rank are slower than those of the others, by the same factor.

    ## When it speaks
    A rank shares at least `kernels` kernels of equal work (name, grid, operator and shapes, at least 20 µs) with other
    ranks, or fewer that take half of its compute. The ratios of its median times to those of the others have a median
    of at least `ratio`, and their quartiles are no more than `spread` apart. If the program were the reason, ratios
    would differ from kernel to kernel.

    ## What it could save
    What its compute takes longer by that factor, if the others wait for it. The finding says how much that is, but does
    not count it.

    ## What to do
    The hardware is slow, not the program. Check clocks, power cap, temperature and ECC errors of that GPU (`nvidia-smi
    -q -d CLOCK,PERFORMANCE,ECC`, `amd-smi metric`), and other processes on it.

    ## How to verify
    Run the rank on another GPU: its kernels are as fast as those of the others.
    """

    is_estimate, follows = False, "N16"

    code, title, family, section = "C24", "One rank's GPU is slower", Family.COMPUTE, "kernel_distribution"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})

    kernels: int = 20
    ratio: float = 1.05
    spread: float = 0.03

    def look(self, rank: Rank) -> KernelTimesEvidence | None:
        work = equal_work(rank)
        if len(work.median_ns) < self.kernels and work.share < MIN_SHARE:
            return None
        return KernelTimesEvidence(
            work=work, compute_ns=compute_time(rank) / rank.num_steps / max(len(rank.devices), 1)
        )

    def change(self, job: JobEvidence[KernelTimesEvidence]) -> JobChange:
        return JobChange(device_scale={rank: 1 / slow.ratio for rank, slow in self._slow(job).items()})

    def _slow(self, job: JobEvidence[KernelTimesEvidence]) -> dict[int, SlowDevice]:
        work = {rank: evidence.work for rank, evidence in job.by_rank.items()}
        return slow_devices(work, self.kernels, self.ratio, self.spread)

    def tell(self, job: JobEvidence[KernelTimesEvidence]) -> Finding | None:
        slow_ranks = list(self._slow(job).values())
        if not slow_ranks:
            return None
        slowest = max(slow_ranks, key=lambda slow_rank: (slow_rank.ratio, -slow_rank.rank))
        extra = job.by_rank[slowest.rank].compute_ns * (1 - 1 / slowest.ratio)
        less_slow = [slow_rank.rank for slow_rank in slow_ranks if slow_rank != slowest]
        also = f" Also slower, but by less: rank{'s' * (len(less_slow) > 1)} {listed(less_slow)}." if less_slow else ""
        return self.finding(
            job,
            f"All kernels of rank {slowest.rank} take {job.percent(slowest.ratio - 1)} longer than those of the other "
            "ranks",
            severity=severity_of(extra / job.step_ns if job.step_ns else 0.0),
            ranks=tuple(sorted(slow_rank.rank for slow_rank in slow_ranks)),
            spans=(),
            evidence=f"{slowest.num_kernels} kernels of equal work take longer by the same factor (quartiles "
            f"{slowest.spread:.3f} apart). That adds {job.time(extra)} to its compute {job.per_step}.{also}",
            assumption="The others wait for it; then the step is shorter by as much.",
        )
