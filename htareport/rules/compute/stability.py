"""Kernels that take unequal times for equal work: by themselves, and while collectives run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms import intervals
from htareport.rank.capability import Capability
from htareport.rank.compute_time import asked, shortened
from htareport.rank.equal_kernels import equal_kernels, largest_excess
from htareport.rank.interval_sets import total
from htareport.rank.rank import Rank
from htareport.report.findings import Finding
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import JobEvidence, WorkEvidence
from htareport.rules.engine.wording import held_up

_WORTH = 0.001  # Of the step: kernels of which less could come are not looked at.


def _listed(job: JobEvidence[Any]) -> str:
    return ", ".join(f"`{name}` {job.time(time)}" for name, time in job.worst.names)


@dataclass(frozen=True, kw_only=True)
class UnstableKernelsEvidence(WorkEvidence):
    """What was seen on one rank: kernels of unequal times."""

    names: list[tuple[str, float]]
    calls: int


@dataclass(frozen=True)
class UnstableKernels(Rule[UnstableKernelsEvidence]):
    """Kernels take unequal times for the same work in each step.

    ## When it speaks
    A kernel at the same place of each of at least `steps` steps (same name, grid, operator and shapes, and as many of
    them in each step) takes times that vary by more than `spread` (standard deviation by mean), over at least `calls`
    calls that nothing else on the device overlaps; what they take above a quarter's best at each place is at least
    `least` of the step.

    ## What it could save
    That excess. Of that, what no other work covers and the host's launches allow.

    ## What to do
    Where the work depends on the data, sort or pack it. Otherwise look at clocks, power and thermal limits (`nvidia-smi
    -q -d PERFORMANCE`, `amd-smi metric`) and at other processes on the GPU.

    ## How to verify
    The standard deviation of these kernels in *Kernels by total time* goes down.
    """

    code, title, family, section = "C13", "Kernels of unequal times", Family.COMPUTE, "kernel_breakdown"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES, Capability.STEPS})

    spread: float = 0.3
    calls: int = 10
    steps: int = 5
    least: float = 0.01

    def look(self, rank: Rank) -> UnstableKernelsEvidence | None:
        number = len(rank.steps)
        if number < self.steps:
            return None
        events = equal_kernels(rank)
        chosen = np.flatnonzero(events["alone"].to_numpy() & _varied(events, _WORTH * rank.whole))
        chosen = chosen[self._regular(events[["key", "step"]].iloc[chosen], number)]
        if not len(chosen):
            return None
        events = events[["event", "key", "step", "dur", "name"]].iloc[chosen]
        unstable, excess = self._excess(events)
        saving = np.zeros(len(rank.device_events))
        saving[events["event"].to_numpy()] = excess
        claim = shortened(rank, saving)
        if rank.share(claim) < self.least:
            return None
        return UnstableKernelsEvidence(
            claim=claim,
            spans=rank.spans(claim),
            names=largest_excess(rank, events, excess),
            calls=int(unstable.sum()),
            requested_ns=asked(rank, saving),
        )

    def _excess(self, events: pd.DataFrame) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Which kernels take times that vary, and what each of these takes above the best at its place, ns."""
        durations = events["dur"].to_numpy()
        places = events.groupby([events["key"], events.groupby(["key", "step"]).cumcount()])["dur"]
        typical = places.transform("median").to_numpy()
        relative = pd.Series(durations / np.maximum(typical, 1), index=events.index).groupby(events["key"])
        varied = relative.agg(["std", "mean"])
        unstable = np.isin(events["key"].to_numpy(), varied.index[varied["std"] / varied["mean"] > self.spread])
        best = places.transform(lambda times: times.quantile(0.25)).to_numpy() if unstable.any() else typical
        return unstable, np.where(unstable, np.maximum(durations - best, 0), 0.0)

    def _regular(self, events: pd.DataFrame, steps: int) -> NDArray[np.bool_]:
        """Which kernels every step has as many of, and enough of them."""
        sizes = events.groupby(["key", "step"]).size()
        each = sizes.groupby(level=0).agg(["min", "max", "size", "sum"])
        fine = (each["min"] == each["max"]) & (each["size"] == steps) & (each["sum"] >= self.calls)
        return events["key"].isin(fine.index[fine]).to_numpy()

    def tell(self, job: JobEvidence[UnstableKernelsEvidence]) -> Finding | None:
        return self.finding(
            job,
            f"Kernels take unequal times for equal work: up to {job.max_saving} {job.per_step} above their best",
            evidence=f"Above the best quarter of the same place in each step: {_listed(job)} per step.",
            assumption="Each call takes what the best quarter takes at its place of the step." + held_up(job),
        )


def _varied(events: pd.DataFrame, least: float) -> NDArray[np.bool_]:
    """Which kernels are of equal work that takes at least so much (ns) longer than with its shortest time each."""
    key, durations = events["key"].to_numpy(), events["dur"].to_numpy()
    shortest = np.full(int(key.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(shortest, key, durations)
    above = np.bincount(key, durations) - np.bincount(key) * shortest
    varied: NDArray[np.bool_] = (above >= least)[key]
    return varied


@dataclass(frozen=True, kw_only=True)
class SlowedByCommunicationEvidence(WorkEvidence):
    """What was seen on one rank: collectives slow compute."""

    names: list[tuple[str, float]]
    ratio: float
    hidden: float


@dataclass(frozen=True)
class SlowedByCommunication(Rule[SlowedByCommunicationEvidence]):
    """Compute kernels are slower while collectives run.

    ## When it speaks
    Kernels of equal work take, in the median, at least `ratio` times as long where collectives cover half of them or
    more as where nothing does, with `calls` calls of each; the excess is at least `least` of the step. Collectives that
    outlast the compute over them don't count: there, compute is not what the step waits for.

    ## What it could save
    The excess, where nothing but collectives runs beside. It is the price of overlap: less of it at the cost of more
    exposed communication gains nothing, so the lower estimate is zero. Of that, what no other work covers and the
    host's launches allow.

    ## What to do
    Let collectives take fewer processors (`NCCL_MAX_CTAS`, on AMD `NCCL_MAX_NCHANNELS`), or move them over work that is
    bound by arithmetic rather than memory. Keep it only if the step gets shorter.

    ## How to verify
    The step is shorter, and exposed communication not longer.
    """

    code, title, family, section = "C14", "Collectives slow compute", Family.COMPUTE, "comm_overlap"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES, Capability.COMM})

    ratio: float = 1.15
    calls: int = 5
    least: float = 0.01

    def look(self, rank: Rank) -> SlowedByCommunicationEvidence | None:
        events = equal_kernels(rank)
        if not len(events):
            return None
        over, hidden = _covered(rank, events)
        overlapped, free = hidden >= events["dur"].to_numpy() / 2, over == 0
        free &= events["alone"].to_numpy()
        if overlapped.sum() < self.calls or free.sum() < self.calls:
            return None
        times = pd.DataFrame({"key": events["key"].to_numpy(), "dur": events["dur"].to_numpy()})
        beside, without = (times[chosen].groupby("key")["dur"].agg(["median", "size"]) for chosen in (overlapped, free))
        both = beside.add_suffix("_beside").join(without, how="inner")
        slow = both[
            (both["size_beside"] >= self.calls)
            & (both["size"] >= self.calls)
            & (both["median_beside"] >= self.ratio * both["median"])
        ]
        usual = times["key"].map(slow["median"]).to_numpy(np.float64)
        excess = np.where(overlapped & ~np.isnan(usual), np.maximum(times["dur"].to_numpy() - usual, 0), 0.0)
        saving = np.zeros(len(rank.device_events))
        saving[events["event"].to_numpy()] = np.nan_to_num(excess)
        claim = shortened(rank, saving, beside="comm")
        if rank.share(claim) < self.least:
            return None
        return SlowedByCommunicationEvidence(
            claim=claim,
            spans=rank.spans(claim),
            names=largest_excess(rank, events, np.nan_to_num(excess)),
            ratio=float((slow["median_beside"] / slow["median"]).median()),
            hidden=(total(rank.busy("comm")) + total(rank.busy("compute")) - total(rank.busy("comm", "compute")))
            / rank.num_steps,
            requested_ns=asked(rank, saving),
        )

    def tell(self, job: JobEvidence[SlowedByCommunicationEvidence]) -> Finding | None:
        worst = job.worst
        return self.finding(
            job,
            f"Collectives slow the compute beside them, by up to {job.max_saving} {job.per_step}",
            evidence=f"The same kernels take {worst.ratio:.2f} times as long beside collectives: {_listed(job)} more "
            f"per step. In return, overlap hides {job.time(worst.hidden)} of communication per step"
            f"{', which is more than it costs' if worst.hidden > job.max_saving_ns else ''}.",
            low_ns=0,
            assumption="Collectives stay hidden while taking nothing of the device; the lower estimate is that they "
            "cannot." + held_up(job),
            snippet="NCCL_MAX_CTAS=8 torchrun main.py",
        )


def _covered(rank: Rank, events: pd.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What of kernels runs beside collectives, and beside those at whose end compute still runs, ns."""
    over, hidden = np.zeros(len(events), np.int64), np.zeros(len(events), np.int64)
    place, places = np.full(len(rank.device_events), -1, np.int64), events["event"].to_numpy()
    place[places] = np.arange(len(events))
    starts, ends = (rank.device_events[column].to_numpy()[places] for column in ("ts", "end"))
    for lane in rank.lanes:
        mine = place[rank.events_by_lane[lane].index.to_numpy()]
        mine = mine[mine >= 0]
        comm = rank.union_of_kinds(lane, "comm")
        if len(comm) and len(mine):
            over[mine] = intervals.covered(comm, starts[mine], ends[mine])
            compute = rank.union_of_kinds(lane, "compute")
            inside = intervals.covered(compute, comm[:, 1] - 1, comm[:, 1] + 1) == 2  # noqa: PLR2004  both sides of the end
            hidden[mine] = intervals.covered(comm[inside], starts[mine], ends[mine])
    return over, hidden
