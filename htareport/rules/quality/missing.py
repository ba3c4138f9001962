"""A rule about work of the device that is missing from the trace."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from htareport.rank.capability import Capability
from htareport.rank.host_rows import late, rows_named
from htareport.rank.interval_sets import total
from htareport.rank.rank import Rank
from htareport.report.findings import Finding, Severity
from htareport.report.units import counted
from htareport.rows.classify import launching_calls
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence
from htareport.rules.engine.recording import profiler_call

_BEGIN = re.compile(r"StreamBeginCapture")
_END = re.compile(r"StreamEndCapture")
_CAPTURING = re.compile(r"Stream(?:Begin|End|Get)Capture")


@dataclass(frozen=True)
class Launches:
    """How many graphs and kernels are launched, how many of each lack a device event, and how many are captured."""

    graphs: int
    lost_graphs: int
    kernels: int
    lost_kernels: int
    captured: int


@dataclass(frozen=True, kw_only=True)
class MissingEvidence(Evidence):
    """Launches without device work, and how idle the device seems."""

    launches: Launches
    has_lost: bool  # Whether many launches of kernels have no device event.
    is_capture: bool
    may_capture: bool
    empty_steps: int
    idle_share: float
    late_share: float  # Of the idle time: for how much of it the CPU is late.


@dataclass(frozen=True)
class WorkMissing(Rule[MissingEvidence]):
    """Work of the GPU is missing from the trace, so the GPU seems idle.

    ## When it speaks
    More than `lost` of the graph launches have no device event, or `lost` of the kernel launches and at least `fewest`
    of them. Or graphs were launched, and the GPU seems idle for more than `idle` of the step, although the CPU is late
    in less than `late` of that: then hardly any kernels of the graphs were recorded. Or more than `empty` of five or
    more steps hold less than a tenth of the median number of device events. Or most launches are captured into a CUDA
    graph, so they start nothing. The last launches of a recording do not count, because it stops before they run.

    ## What it could save
    Nothing. The report gives no advice on idle time of these ranks.

    ## What to do
    - **capture**: Record later, when the graphs are replayed.
    - **lost**: Record fewer steps, so that the profiler's buffers do not run full. Use a current PyTorch and driver. If
      graphs are not recorded, record once without them (`enforce_eager=True`, without `mode="reduce-overhead"`).

    ## How to verify
    - **capture**: The trace has graph launches and no captures.
    - **lost**: Every launch has its device event.
    """

    code, title, family = "Q3", "Work of the device is missing", Family.QUALITY
    section, confidence = "launch_stats", "high"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})

    lost: float = 0.05
    fewest: float = 5.0
    idle: float = 0.5
    late: float = 0.1
    empty: float = 0.2

    def look(self, rank: Rank) -> MissingEvidence | None:
        calls, empty = _launches(rank), _empty_steps(rank)
        is_capture = 2 * calls.captured > calls.kernels + calls.captured
        has_lost = calls.lost_kernels >= max(self.fewest, self.lost * calls.kernels)
        idle, host = rank.share(rank.idle), total(late(rank))
        is_partial = idle > self.idle and host < self.late * total(rank.idle) and calls.graphs > 0
        has_empty = empty > self.empty * len(rank.steps)
        if not (calls.lost_graphs > self.lost * calls.graphs or has_lost or is_partial or has_empty or is_capture):
            return None
        named = len(rows_named(rank, _CAPTURING, "call"))
        return MissingEvidence(
            is_unreliable=True,
            launches=calls,
            has_lost=has_lost,
            is_capture=is_capture,
            may_capture=2 * named > calls.lost_kernels,
            empty_steps=empty if has_empty else 0,
            idle_share=idle,
            late_share=host / max(total(rank.idle), 1),
        )

    def tell(self, job: JobEvidence[MissingEvidence]) -> Finding:
        launches = job.worst.launches
        if job.worst.is_capture:
            return self.finding(
                job,
                "CUDA graphs are captured in this recording and do not run, so no advice is given on idle time",
                evidence=f"{launches.captured:,} of {launches.captured + launches.kernels:,} launches of kernels are "
                "captured into a graph.",
                cases=("capture",),
                snippet=profiler_call(job),
                severity=Severity.MEDIUM,
            )
        return self.finding(
            job,
            "Work of the GPU is missing from the trace, so no advice is given on idle time",
            evidence=" ".join(self._symptoms(job)),
            cases=("lost",),
            snippet=profiler_call(job, steps=2),
            severity=Severity.MEDIUM,
        )

    def _symptoms(self, job: JobEvidence[MissingEvidence]) -> list[str]:
        """What shows that work is missing, as sentences."""
        worst, symptoms = job.worst, list[str]()
        launches = worst.launches
        if launches.lost_graphs:
            symptoms.append(f"{launches.lost_graphs:,} of {launches.graphs:,} graph launches have no device event.")
        if worst.has_lost:
            lost = f"{launches.lost_kernels:,} of {launches.kernels:,}"
            symptoms.append(f"{lost} launches of kernels have no device event.")
            if worst.may_capture:
                symptoms.append("They may be captured into a graph and start nothing. Then record replays instead.")
        if worst.empty_steps:
            symptoms.append(f"{counted(worst.empty_steps, 'step has', 'steps have')} hardly any device events.")
        if not symptoms:
            symptoms.append(
                f"The GPU seems idle for {job.percent(worst.idle_share)} of {job.window}, but the CPU is late in only "
                f"{job.percent(worst.late_share)} of that. Graphs were launched, but hardly any of their kernels were "
                "recorded."
            )
        return symptoms


def _launches(rank: Rank) -> Launches:
    """Count launches up to the last one with a device event."""
    calls, has_event = rank.launches, rank.answered
    name_codes, codes = np.unique(calls["name"].cat.codes.to_numpy(), return_inverse=True)
    names = [rank.loaded.strings[code] for code in name_codes.tolist()]
    launches_kernels = launching_calls(names) & np.array(["Launch" in name for name in names], np.bool_)
    is_launch = launches_kernels[codes] & (calls["correlation"].to_numpy() > 0)
    is_captured = is_launch & ~has_event & _in_captures(rank)
    is_launch[np.flatnonzero(has_event).max(initial=-1) + 1 :] = False
    is_graph = is_launch & calls["graph"].to_numpy()
    is_single = is_launch & ~is_graph & ~is_captured
    masks = (is_graph, is_graph & ~has_event, is_single, is_single & ~has_event, is_captured)
    return Launches(*(int(mask.sum()) for mask in masks))


def _in_captures(rank: Rank) -> NDArray[np.bool_]:
    """Which calls are made while their thread captures a stream into a graph."""
    calls, host = rank.launches, rank.host
    in_captures = np.zeros(len(calls), np.bool_)
    start, thread = calls["ts"].to_numpy(), calls["thread"].to_numpy()
    begins, ends = (rows_named(rank, pattern, "call") for pattern in (_BEGIN, _END))
    end, on_thread = host.at("ts", ends), host.at("thread", ends)
    for row, capturing, begin in zip(begins.tolist(), host.at("thread", begins), host.at("ts", begins), strict=True):
        later_ends = end[(on_thread == capturing) & (ends > row)]
        if len(later_ends):
            in_captures |= (thread == capturing) & (start > begin) & (start < later_ends.min())
    return in_captures


def _empty_steps(rank: Rank) -> int:
    """How many of five or more steps hold less than a tenth of the median number of device events; 0 of fewer."""
    numbers = rank.steps["number"]
    if len(numbers) < 5:  # noqa: PLR2004  a median of fewer says little
        return 0
    counts = rank.device_events["step"].value_counts().reindex(numbers, fill_value=0)
    typical = counts.median() or counts.mean()  # The mean where most steps hold nothing.
    return int((counts < 0.1 * typical).sum())
