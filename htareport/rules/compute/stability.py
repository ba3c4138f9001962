"""Kernels that take unequal times for equal work: from step to step, and while collectives run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms import intervals
from htareport.rank.capability import Capability
from htareport.rank.compute_time import asked, shortened
from htareport.rank.equal_kernels import equal_kernels, largest_excess
from htareport.rank.interval_sets import total
from htareport.rank.rank import Rank
from htareport.rank.replay.edits import RankEdit
from htareport.report.findings import Finding
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import JobEvidence, WorkEvidence

_MIN_SHARE = 0.001  # Of the step: kernels that could save less are not looked at.


@dataclass(frozen=True, kw_only=True)
class ExcessEvidence(WorkEvidence):
    """Kernels that take longer than the same work takes elsewhere."""

    excess: list[tuple[str, float]]  # Names of the kernels of most excess, with ns per step.


X = TypeVar("X", bound=ExcessEvidence)


def _listed(job: JobEvidence[X]) -> str:
    return ", ".join(f"`{name}` {job.time(time)}" for name, time in job.worst.excess)


@dataclass(frozen=True)
class UnstableKernels(Rule[ExcessEvidence]):
    """The same kernel takes unequal times for the same work from step to step.

    ## When it speaks
    A kernel with the same name, grid, operator and shapes runs equally often in each of at least `steps` steps. Over at
    least `calls` calls that nothing else on the GPU overlaps, its times vary by more than `spread` (standard deviation
    by mean) between calls at the same position of their steps. What they take above the best quarter at each position
    is at least `least` of the step.

    ## What it could save
    That excess. Only what shortens the step counts: time that no other work covers, as far as the CPU launches early
    enough.

    ## What to do
    Where the work depends on the data, sort or pack the data so that steps have equal work. Otherwise check clocks,
    power and thermal limits (`nvidia-smi -q -d PERFORMANCE`, `amd-smi metric`) and other processes on the GPU.

    ## How to verify
    The standard deviation of these kernels in *Kernels by total time* goes down.
    """

    code, title, family, section = "C13", "Kernel times vary between steps", Family.COMPUTE, "kernel_breakdown"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES, Capability.STEPS})

    spread: float = 0.3
    calls: int = 10
    steps: int = 5
    least: float = 0.01

    def look(self, rank: Rank) -> ExcessEvidence | None:
        num_steps = len(rank.steps)
        if num_steps < self.steps:
            return None
        events = equal_kernels(rank)
        rows = np.flatnonzero(events["alone"].to_numpy() & _is_varied(events, _MIN_SHARE * rank.whole))
        rows = rows[self._is_regular(events[["key", "step"]].iloc[rows], num_steps)]
        if not len(rows):
            return None
        events = events[["event", "key", "step", "dur", "name"]].iloc[rows]
        excess = self._excess(events)
        saving = np.zeros(len(rank.device_events))
        saving[events["event"].to_numpy()] = excess
        claim = shortened(rank, saving)
        if rank.share(claim) < self.least:
            return None
        return ExcessEvidence(
            claim=claim,
            spans=rank.spans(claim),
            excess=largest_excess(rank, events, excess),
            requested_ns=asked(rank, saving),
            edit=RankEdit(shorter_ns=saving),
        )

    def _excess(self, events: pd.DataFrame) -> NDArray[np.float64]:
        """What kernels take above the best quarter at their position of the step, ns; 0 where times hardly vary."""
        durations = events["dur"].to_numpy()
        by_position = events.groupby([events["key"], events.groupby(["key", "step"]).cumcount()])["dur"]
        median = by_position.transform("median").to_numpy()
        relative = pd.Series(durations / np.maximum(median, 1), index=events.index).groupby(events["key"])
        varied = relative.agg(["std", "mean"])
        is_unstable = np.isin(events["key"].to_numpy(), varied.index[varied["std"] / varied["mean"] > self.spread])
        if not is_unstable.any():
            return np.zeros(len(events))
        best = by_position.transform(lambda times: times.quantile(0.25)).to_numpy()
        return np.where(is_unstable, np.maximum(durations - best, 0), 0.0)

    def _is_regular(self, events: pd.DataFrame, num_steps: int) -> NDArray[np.bool_]:
        """Which kernels run equally often in every step, and often enough."""
        calls = events.groupby(["key", "step"]).size().groupby(level=0).agg(["min", "max", "size", "sum"])
        is_regular = (calls["min"] == calls["max"]) & (calls["size"] == num_steps) & (calls["sum"] >= self.calls)
        return events["key"].isin(calls.index[is_regular]).to_numpy()

    def tell(self, job: JobEvidence[ExcessEvidence]) -> Finding | None:
        return self.finding(
            job,
            f"Kernels take unequal times for equal work: up to {job.max_saving} {job.per_step} above their best",
            evidence=f"Above the best quarter of calls at the same position of each step: {_listed(job)} per step.",
            assumption="Each call takes as long as the best quarter at its position of the step.",
        )


def _is_varied(events: pd.DataFrame, min_excess: float) -> NDArray[np.bool_]:
    """Which kernels are of equal work that takes at least so much (ns) longer than if each took the shortest time."""
    key, durations = events["key"].to_numpy(), events["dur"].to_numpy()
    shortest = np.full(int(key.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(shortest, key, durations)
    excess = np.bincount(key, durations) - np.bincount(key) * shortest
    return np.asarray((excess >= min_excess)[key], np.bool_)


@dataclass(frozen=True, kw_only=True)
class SlowedEvidence(ExcessEvidence):
    """Compute kernels that take longer while collectives run."""

    slowdown: float  # Median of the ratios of times during collectives to times alone.
    hidden_ns: float  # Communication under compute, per step.


@dataclass(frozen=True)
class SlowedByCommunication(Rule[SlowedEvidence]):
    """Compute kernels take longer while collectives run.

    ## When it speaks
    Two groups of calls of the same kernel on equal work are compared, with at least `calls` calls in each: in one,
    collectives run during at least half of the kernel; in the other, nothing overlaps it. The median of the first is at
    least `ratio` times that of the second, and the excess is at least `least` of the step. Collectives that end after
    the compute they overlap do not count, because there the step does not wait for compute.

    ## What it could save
    The excess, where nothing but collectives overlaps. It is the price of overlap: a smaller excess gains nothing if
    more communication is exposed instead, so the lower estimate is zero. Only what shortens the step counts: time that
    no other work covers, as far as the CPU launches early enough.

    ## What to do
    Give collectives fewer processors (`NCCL_MAX_CTAS`, on AMD `NCCL_MAX_NCHANNELS`), or overlap them with work that is
    bound by arithmetic rather than memory. Keep the change only if the step gets shorter.

    ## How to verify
    The step is shorter, and exposed communication is no longer than before.
    """

    code, title, family, section = "C14", "Collectives slow compute", Family.COMPUTE, "comm_overlap"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES, Capability.COMM})

    ratio: float = 1.15
    calls: int = 5
    least: float = 0.01

    def look(self, rank: Rank) -> SlowedEvidence | None:
        events = equal_kernels(rank)
        if not len(events):
            return None
        covered, hiding = _covered(rank, events)
        is_slowed = hiding >= events["dur"].to_numpy() / 2
        is_alone = (covered == 0) & events["alone"].to_numpy()
        if is_slowed.sum() < self.calls or is_alone.sum() < self.calls:
            return None
        times = pd.DataFrame({"key": events["key"].to_numpy(), "dur": events["dur"].to_numpy()})
        overlapped, alone = (
            times[mask].groupby("key")["dur"].agg(["median", "size"]) for mask in (is_slowed, is_alone)
        )
        both = overlapped.add_suffix("_overlapped").join(alone, how="inner")
        slow = both[
            (both["size_overlapped"] >= self.calls)
            & (both["size"] >= self.calls)
            & (both["median_overlapped"] >= self.ratio * both["median"])
        ]
        usual = times["key"].map(slow["median"]).to_numpy(np.float64)
        excess = np.where(is_slowed & ~np.isnan(usual), np.maximum(times["dur"].to_numpy() - usual, 0), 0.0)
        saving = np.zeros(len(rank.device_events))
        saving[events["event"].to_numpy()] = excess
        claim = shortened(rank, saving, beside="comm")
        if rank.share(claim) < self.least:
            return None
        hidden = total(rank.busy("comm")) + total(rank.busy("compute")) - total(rank.busy("comm", "compute"))
        return SlowedEvidence(
            claim=claim,
            spans=rank.spans(claim),
            excess=largest_excess(rank, events, excess),
            slowdown=float((slow["median_overlapped"] / slow["median"]).median()),
            hidden_ns=hidden / rank.num_steps,
            requested_ns=asked(rank, saving),
            edit=RankEdit(shorter_ns=saving),
        )

    def tell(self, job: JobEvidence[SlowedEvidence]) -> Finding | None:
        worst = job.worst
        return self.finding(
            job,
            f"Collectives slow the compute that they overlap, by up to {job.max_saving} {job.per_step}",
            evidence=f"The same kernels take {worst.slowdown:.2f} times as long while collectives run: {_listed(job)} "
            f"more per step. In return, overlap hides {job.time(worst.hidden_ns)} of communication per step"
            f"{', which is more than it costs' if worst.hidden_ns > job.max_saving_ns else ''}.",
            low_ns=0,
            assumption="Collectives stay hidden and slow no compute. The lower estimate is no saving.",
            snippet="NCCL_MAX_CTAS=8 torchrun main.py",
        )


def _covered(rank: Rank, events: pd.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For how long collectives overlap each kernel, and those of them at whose end compute still runs, ns."""
    covered, hiding = (np.zeros(len(events), np.int64) for _ in range(2))
    event_rows = events["event"].to_numpy()
    row_of_event = np.full(len(rank.device_events), -1, np.int64)
    row_of_event[event_rows] = np.arange(len(events))
    starts, ends = (rank.device_events[column].to_numpy()[event_rows] for column in ("ts", "end"))
    for lane in rank.lanes:
        rows = row_of_event[rank.events_by_lane[lane].index.to_numpy()]
        rows = rows[rows >= 0]
        comm = rank.union_of_kinds(lane, "comm")
        if len(comm) and len(rows):
            covered[rows] = intervals.covered(comm, starts[rows], ends[rows])
            compute = rank.union_of_kinds(lane, "compute")
            is_hidden = intervals.covered(compute, comm[:, 1] - 1, comm[:, 1] + 1) == 2  # noqa: PLR2004  both sides of the end
            hiding[rows] = intervals.covered(comm[is_hidden], starts[rows], ends[rows])
    return covered, hiding
