"""A rule about what the profiler itself costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from htareport.algorithms import intervals
from htareport.rank.capability import Capability
from htareport.rank.host_rows import DISPATCH
from htareport.rank.interval_sets import Sets, total
from htareport.rank.rank import Rank
from htareport.report.findings import Finding, Severity
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence
from htareport.rules.engine.recording import profiler_call

# Kinds of CUPTI's overhead that are the profiler's own work; others are work of the program itself.
_PROFILER = ("Buffer Flush", "Activity Buffer Request", "Instrumentation", "Resource", "UVM Activity Init")

_MOSTLY_DISPATCH = 0.3  # Of the windows: idle time that recorded stacks make long.


@dataclass(frozen=True, kw_only=True)
class ProfilerOverheadEvidence(Evidence):
    """How much of the recording is the profiler's own work."""

    stacks_share: float  # Of all events: Python calls.
    overhead_share: float  # Of the windows: rows of the profiler itself.
    dispatch_share: float  # Of the windows: the device is idle while the host dispatches and launches.


@dataclass(frozen=True)
class ProfilerOverhead(Rule[ProfilerOverheadEvidence]):
    """The profiler slows the CPU, so the CPU launches later than it does without it.

    ## When it speaks
    The GPU is idle for at least `idle` of the time. The profiler's own work (category `overhead`) takes more than
    `share` of the time, or Python calls (recorded by `with_stack=True`) are more than `stacks` of all events.

    ## What it could save
    Nothing. Idle time in which the CPU is late is an upper bound. Where the profiler's own work fills more than half of
    the idle time, the report gives no advice on it.

    ## What to do
    Record once more without stacks and shapes. Compare the idle time before you act on it.

    ## How to verify
    A recording without stacks and shapes shows how much of the idle time is left.
    """

    code, title, family = "Q4", "The profiler slows the CPU", Family.QUALITY
    section = "idle_time"
    requires = frozenset({Capability.GPU})

    idle: float = 0.1
    share: float = 0.02
    stacks: float = 0.5

    def look(self, rank: Rank) -> ProfilerOverheadEvidence | None:
        python_calls = len(rank.loaded.tables.get("python_function", {}).get("name", ()))
        stacks, overhead = python_calls / max(len(rank.events), 1), _overhead(rank)
        share = _covered(rank.windows, overhead) / rank.whole if rank.whole else 0.0
        if rank.share(rank.idle) < self.idle or (share <= self.share and stacks <= self.stacks):
            return None
        return ProfilerOverheadEvidence(
            is_unreliable=2 * _covered(rank.idle, overhead) > total(rank.idle),
            stacks_share=stacks,
            overhead_share=share,
            dispatch_share=rank.share(rank.idle_by(*DISPATCH)),
        )

    def tell(self, job: JobEvidence[ProfilerOverheadEvidence]) -> Finding:
        worst, clauses = job.worst, list[str]()
        if worst.stacks_share > self.stacks:
            clauses.append(f"{job.percent(worst.stacks_share)} of all events are Python calls (`with_stack=True`)")
        if worst.overhead_share > self.share:
            clauses.append(f"the profiler's own work takes {job.percent(worst.overhead_share)} of {job.window}")
        words = " and ".join(clauses)
        return self.finding(
            job,
            "The profiler slows the CPU, so idle time in this report is an upper bound",
            evidence=f"{words[:1].upper()}{words[1:]}. Without the profiler no CPU time is spent on recording.",
            snippet=profiler_call(job, "record_shapes=False", "with_stack=False"),
            severity=self._severity(worst),
        )

    def _severity(self, evidence: ProfilerOverheadEvidence) -> Severity:
        if evidence.stacks_share > self.stacks and evidence.dispatch_share >= _MOSTLY_DISPATCH:
            return Severity.HIGH  # Every call of Python is slowed, and the device waits for that.
        return Severity.MEDIUM if evidence.is_unreliable else Severity.LOW


def _covered(sets: Sets, overhead: intervals.Intervals) -> int:
    """For how many ns of these intervals the profiler did its own work."""
    return sum(int(intervals.covered(overhead, lane[:, 0], lane[:, 1]).sum()) for lane in sets.values())


def _overhead(rank: Rank) -> intervals.Intervals:
    """When the profiler did its own work."""
    table, strings = rank.loaded.tables.get("overhead", {}), rank.loaded.strings
    if not table:
        return intervals.EMPTY
    is_profiler = np.array([strings[code] in _PROFILER for code in table["name"].tolist()], np.bool_)
    start = table["ts"][is_profiler]
    return intervals.union(start, start + table["dur"][is_profiler])
