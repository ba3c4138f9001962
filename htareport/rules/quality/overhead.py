"""A rule about what the profiler itself costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from htareport.algorithms import intervals
from htareport.rank.capability import Capability
from htareport.rank.interval_sets import total
from htareport.rank.rank import Rank
from htareport.report.findings import Finding, Severity
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence
from htareport.rules.engine.recording import profiler_call

# What CUPTI calls overhead and is the profiler's own; its other kinds are what the program itself does.
_PROFILER = ("Buffer Flush", "Activity Buffer Request", "Instrumentation", "Resource", "UVM Activity Init")


@dataclass(frozen=True, kw_only=True)
class ProfilerOverheadEvidence(Evidence):
    """What was seen on one rank: the profiler slows the host."""

    stacks: float
    share: float


@dataclass(frozen=True)
class ProfilerOverhead(Rule[ProfilerOverheadEvidence]):
    """The profiler itself slows the host, so that it seems later than it is.

    ## When it speaks
    Where the device is idle for at least `idle` of the time: the profiler's own rows (category `overhead`) take more
    than `share` of it, or Python calls, recorded by `with_stack=True`, are more than `stacks` of all events.

    ## What it could save
    Nothing. Idle time in which the host is late is an upper bound; where the profiler's own work fills half of it,
    advice about it is held back.

    ## What to do
    Record once more without stacks and shapes, and compare the idle time before acting on it.

    ## How to verify
    The idle time of a recording without stacks.
    """

    code, title, family = "Q4", "The profiler slows the host", Family.QUALITY
    section = "idle_time"
    requires = frozenset({Capability.GPU})

    idle: float = 0.1
    share: float = 0.02
    stacks: float = 0.5

    def look(self, rank: Rank) -> ProfilerOverheadEvidence | None:
        trace = rank
        idle = rank.share(rank.idle)
        python = len(trace.loaded.tables.get("python_function", {}).get("name", ()))
        stacks, own = python / max(len(trace.events), 1), _own_rows(rank)
        inside = sum(int(intervals.covered(own, mine[:, 0], mine[:, 1]).sum()) for mine in rank.windows.values())
        share = inside / rank.whole if rank.whole else 0.0
        if idle < self.idle or (share <= self.share and stacks <= self.stacks):
            return None
        hidden = sum(int(intervals.covered(own, mine[:, 0], mine[:, 1]).sum()) for mine in rank.idle.values())
        return ProfilerOverheadEvidence(is_unreliable=2 * hidden > total(rank.idle), stacks=stacks, share=share)

    def tell(self, job: JobEvidence[ProfilerOverheadEvidence]) -> Finding:
        worst, said = job.worst, list[str]()
        if worst.stacks > self.stacks:
            said.append(f"{job.percent(worst.stacks)} of all events are Python calls (`with_stack=True`)")
        if worst.share > self.share:
            said.append(f"the profiler's own work takes {job.percent(worst.share)} of {job.window}")
        words = " and ".join(said)
        return self.finding(
            job,
            "The profiler slows the host: what is said about idle time is an upper bound",
            evidence=f"{words[:1].upper()}{words[1:]}. Each of them takes time on the host that a run without profiler "
            "does not spend.",
            snippet=profiler_call(job, "record_shapes=False", "with_stack=False"),
            severity=Severity.MEDIUM if job.worst.is_unreliable else Severity.LOW,
        )


def _own_rows(rank: Rank) -> intervals.Intervals:
    """When the profiler worked for itself."""
    table, strings = rank.loaded.tables.get("overhead", {}), rank.loaded.strings
    if not table:
        return intervals.EMPTY
    mine = np.array([strings[code] in _PROFILER for code in table["name"].tolist()], np.bool_)
    return intervals.union(table["ts"][mine], table["ts"][mine] + table["dur"][mine])
