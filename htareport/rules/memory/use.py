"""Rules about how memory is used: headroom for larger batches, repeated allocation, and momentary peaks."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms import intervals
from htareport.algorithms.intervals import Intervals
from htareport.rank.capability import Capability
from htareport.rank.compute_time import WORTH
from htareport.rank.host_rows import during, per, rows_named
from htareport.rank.idle import Cause
from htareport.rank.interval_sets import total
from htareport.rank.memory import NO_OPERATOR, Series, device_memory, fill, fullest, outermost_operators
from htareport.rank.rank import Rank
from htareport.rank.training import trains
from htareport.report.findings import Finding, Severity
from htareport.report.units import counted
from htareport.rules.engine.base import MEDIUM, Family, Rule
from htareport.rules.engine.context import context_of
from htareport.rules.engine.evidence import Evidence, JobEvidence
from htareport.rules.engine.wording import sized

_SECTION = "memory_timeline"
_DISPATCH = (Cause.LAUNCHING, Cause.CALLING, Cause.OPERATING, Cause.ANNOTATED, Cause.NOTHING)
_SMALL = ("H2", "C9", "C15")  # Rules that find kernels to be small.
_EMPTY = re.compile(r"^aten::empty(?:_like|_strided|_permuted)?$")


def _steps(rank: Rank) -> Intervals:
    """When steps run."""
    steps = rank.steps
    return intervals.union(steps["start"].to_numpy(), steps["end"].to_numpy())


def _in_steps(rank: Rank, stamps: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which stamps lie within steps; without steps all do."""
    steps = _steps(rank)
    if not len(steps):
        return np.ones(len(stamps), np.bool_)
    step_index = np.searchsorted(steps[:, 0], stamps, side="right") - 1
    return np.asarray((step_index >= 0) & (stamps < steps[np.maximum(step_index, 0), 1]), np.bool_)


def _lasting(rank: Rank, series: Series) -> NDArray[np.int64]:
    """How long within the steps the level after each row lasts, ns; the level before the first row is not known."""
    is_last = np.append(np.diff(series.capture) != 0, [True])  # Of its capture.
    until = np.where(is_last, series.ts, np.append(series.ts[1:], series.ts[-1:]))
    steps = _steps(rank)
    return intervals.covered(steps, series.ts, until) if len(steps) else np.asarray(until - series.ts, np.int64)


@dataclass(frozen=True, kw_only=True)
class HeadroomEvidence(Evidence):
    """What is free of a device's memory, and what a larger batch would save."""

    device: str
    peak_bytes: int
    capacity_bytes: float
    batch_factor: float
    dispatch_share: float  # Of the windows: idle time in which the host dispatches.
    saved_ns: float  # Per step and device, for as many samples.
    trains: bool


@dataclass(frozen=True)
class Headroom(Rule[HeadroomEvidence]):
    """Most of the GPU's memory is free, while kernels are small and the CPU hardly keeps up with launching them.

    ## When it speaks
    Tensors take less than `share` of the device's memory at their peak. On the same rank H2 (small kernels launched one
    by one), C9 (kernels that fill only part of the GPU) or C15 (narrow products) has found something.

    ## What it could save
    No time of a step, but time per sample. The GPU is idle while the CPU dispatches, equally long for a larger batch. A
    batch k times as large divides that idle time by k per sample. The finding names what is saved for as many samples
    as today. k is the factor at which the batch fills `filled` of the memory, if all memory grew with the batch, and at
    most `most`.

    ## What to do
    - **training**: Raise the batch size by up to {times|that many} times, and adjust the learning rate. If the batch
      size must not change, use fewer devices, or fewer and larger micro-batches.
    - **inference**: Raise the batch size by up to {times|that many} times, so that more requests are served together.
      If there are not enough requests, use fewer devices, or share this one.

    ## How to verify
    Samples per second rise, and the share of idle time goes down.
    """

    code, title, family, section = "M2", "Memory is free while kernels are small", Family.MEMORY, _SECTION
    requires = frozenset({Capability.GPU, Capability.MEMORY, Capability.LAUNCHES})
    about_idle = True

    share: float = 0.5
    filled: float = 0.85
    most: float = 8.0

    def look(self, rank: Rank) -> HeadroomEvidence | None:
        series = fullest(rank)
        if series is None or context_of(rank).found.isdisjoint(_SMALL):
            return None
        peak = int(series.allocated[series.within].max())
        if not 0 < peak < self.share * series.capacity:
            return None
        factor = min(self.most, self.filled * series.capacity / peak)
        dispatch = rank.idle_by(*_DISPATCH)
        saved = total(dispatch) * (1 - 1 / factor)
        if saved < WORTH * rank.whole:
            return None
        return HeadroomEvidence(
            spans=rank.spans(dispatch),
            device=series.device,
            peak_bytes=peak,
            capacity_bytes=series.capacity,
            batch_factor=factor,
            dispatch_share=rank.share(dispatch),
            saved_ns=saved / per(rank),
            trains=trains(rank),
        )

    def tell(self, job: JobEvidence[HeadroomEvidence]) -> Finding:
        rank, worst = max(job.by_rank.items(), key=lambda item: (item[1].saved_ns, -item[0]))
        peak, capacity, factor = worst.peak_bytes, worst.capacity_bytes, f"{worst.batch_factor:.2g}"
        return self.finding(
            job,
            f"Only {job.percent(peak / capacity)} of the memory is used: a batch {factor} times as large fits",
            evidence=f"On rank {rank}, {worst.device}, tensors take {sized(peak)} of {sized(capacity)} at the peak. "
            f"Kernels are small, and the GPU is idle for {job.percent(worst.dispatch_share)} of {job.window} while the "
            f"CPU dispatches them. The larger batch saves {job.time(worst.saved_ns)} of that {job.per_step}, for as "
            "many samples as today. Findings about the CPU may count the same time.",
            values={"times": factor},
            cases=("training" if worst.trains else "inference",),
            assumption="The CPU dispatches a larger batch in the same time.",
            snippet=f"loader = DataLoader(dataset, batch_size=int({factor} * batch_size))" if worst.trains else "",
            severity=Severity.MEDIUM if job.step_ns and worst.saved_ns >= MEDIUM * job.step_ns else Severity.LOW,
            spans=worst.spans,
        )


@dataclass(frozen=True)
class Turnover:
    """What is allocated on a device per step, against the peak."""

    device: str
    calls: float
    allocated_bytes: float
    peak_bytes: int
    turns: float


@dataclass(frozen=True, kw_only=True)
class ChurnEvidence(Evidence):
    """Idle time in allocations, with the device of which most is allocated again and again."""

    turnover: Turnover


@dataclass(frozen=True)
class Churn(Rule[ChurnEvidence]):
    """Memory is allocated and freed many times over in each step, and the GPU waits meanwhile.

    ## When it speaks
    The allocations of a step add up to more than `turns` times what tensors hold at the peak. The GPU is idle for at
    least `least` of the step while the CPU is in `aten::empty` or a similar operator.

    ## What it could save
    That idle time.

    ## What to do
    Allocate fewer short-lived tensors: compile the code that allocates them with `torch.compile`, work in place or with
    `out=`, and allocate buffers once.

    ## How to verify
    Idle time in `aten::empty` goes down.
    """

    code, title, family, section = "M4", "Memory is allocated again and again", Family.MEMORY, _SECTION
    requires = frozenset({Capability.GPU, Capability.MEMORY, Capability.HOST_OPS, Capability.LAUNCHES})
    about_idle = True

    turns: float = 20.0
    least: float = 0.01

    def look(self, rank: Rank) -> ChurnEvidence | None:
        claim = during(rank, rows_named(rank, _EMPTY, "operator"))
        if rank.share(claim) < self.least:
            return None
        turnovers = [turnover for series in device_memory(rank) if (turnover := self._turnover(rank, series))]
        largest = max(turnovers, key=lambda turnover: turnover.turns, default=None)
        if largest is None or largest.turns <= self.turns:
            return None
        return ChurnEvidence(claim=claim, spans=rank.spans(claim), turnover=largest)

    @staticmethod
    def _turnover(rank: Rank, series: Series) -> Turnover | None:
        """What is allocated on a device per step, against the peak."""
        sizes = series.size[(series.size > 0) & series.within & _in_steps(rank, series.ts)]
        peak = int(series.allocated[series.within].max())
        if peak <= 0:
            return None
        allocated = int(sizes.sum()) / rank.num_steps
        return Turnover(series.device, len(sizes) / rank.num_steps, allocated, peak, allocated / peak)

    def tell(self, job: JobEvidence[ChurnEvidence]) -> Finding:
        turnover = job.worst.turnover
        return self.finding(
            job,
            f"The GPU waits {job.max_saving} {job.per_step} while memory is allocated again and again",
            evidence=f"On rank {job.worst_rank}, {turnover.device}, "
            f"{counted(turnover.calls, 'allocation takes', 'allocations take')} {sized(turnover.allocated_bytes)} in "
            f"all {job.per_step}, {turnover.turns:.3g} times the peak of {sized(turnover.peak_bytes)}. The GPU is idle "
            "while the CPU is in `aten::empty` or a similar operator.",
            assumption="The CPU does not spend that time on allocations.",
            snippet="torch.mul(x, y, out=buffer)  # Instead of a new tensor in each step",
        )


@dataclass(frozen=True, kw_only=True)
class SpikeEvidence(Evidence):
    """The fullest device: its peak, how long that lasts, and what tensors hold the rest of the time."""

    device: str
    peak_bytes: int
    usual_bytes: int
    owner: str
    high_share: float  # Of the time: how long more than `usual_bytes` is held.
    max_fill: float


@dataclass(frozen=True)
class Spike(Rule[SpikeEvidence]):
    """Memory peaks for a moment, far above what tensors hold nearly all the time.

    ## When it speaks
    The allocator has reserved more than `full` of the device's memory. Tensors come within `above` of their peak for
    less than `moment` of the time.

    ## What it could save
    No time by itself, but without that moment a larger batch fits.

    ## What to do
    Lower the peak so that a larger batch fits. Compute in chunks at that moment ({what|logits and losses}, for example)
    or in place. Free tensors that are no longer needed before it.

    ## How to verify
    *Peak allocated* comes near what tensors hold nearly all the time.
    """

    code, title, family, section = "M7", "Memory peaks for a moment", Family.MEMORY, _SECTION
    requires = frozenset({Capability.MEMORY})

    above: float = 0.2
    moment: float = 0.05
    full: float = 0.5

    def look(self, rank: Rank) -> SpikeEvidence | None:
        series = fullest(rank)
        if series is None or not fill(series) > self.full:
            return None
        allocated = np.where(series.within & _in_steps(rank, series.ts), series.allocated, -1)
        peak_row, lasting = int(allocated.argmax()), _lasting(rank, series)
        peak, recorded_ns = int(allocated[peak_row]), int(lasting.sum())
        is_high = series.allocated > (1 - self.above) * peak
        high_ns = int(lasting[is_high].sum())
        if peak <= 0 or not recorded_ns or high_ns >= self.moment * recorded_ns:
            return None
        owner = str(outermost_operators(rank, series, np.array([peak_row]))[0])
        return SpikeEvidence(
            device=series.device,
            peak_bytes=peak,
            usual_bytes=int(series.allocated[~is_high & (lasting > 0)].max()),
            owner=owner if owner != NO_OPERATOR else "",
            high_share=high_ns / recorded_ns,
            max_fill=fill(series),
        )

    def tell(self, job: JobEvidence[SpikeEvidence]) -> Finding:
        rank, worst = max(job.by_rank.items(), key=lambda item: (item[1].max_fill, -item[0]))
        peak, usual = sized(worst.peak_bytes), sized(worst.usual_bytes)
        owner = f" The last allocation before the peak is in `{worst.owner}`." if worst.owner else ""
        return self.finding(
            job,
            f"Memory peaks at {peak} for a moment; nearly all the time it is {usual} at most",
            evidence=f"On rank {rank}, {worst.device}, tensors hold more than that for only "
            f"{job.percent(worst.high_share)} of the time. The allocator has reserved {job.percent(worst.max_fill)} of "
            f"the device's memory.{owner}",
            values={"what": "logits"} if job.infers else None,
            snippet="" if job.infers else "loss = sum(loss_of(part) for part in logits.chunk(8))",
            severity=Severity.LOW,
        )
