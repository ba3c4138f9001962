"""Rules about the recording: what it covers, and whether it shows the work as it was."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from htareport.rank.capability import Capability
from htareport.rank.first_launches import first_launches
from htareport.rank.idle import Cause
from htareport.rank.interval_sets import joined, total
from htareport.rank.rank import Rank
from htareport.report.findings import Finding, Severity
from htareport.report.number_lists import listed
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence
from htareport.rules.engine.recording import is_npu, profiler_call


@dataclass(frozen=True, kw_only=True)
class FewStepsEvidence(Evidence):
    """How many steps were recorded, and with which profiler."""

    num_steps: int
    is_npu: bool


@dataclass(frozen=True)
class FewSteps(Rule[FewStepsEvidence]):
    """Too few steps were recorded to know what is usual.

    ## When it speaks
    A rank has fewer than `least` steps (`ProfilerStep#`).

    ## What it could save
    Nothing by itself. One step does not show whether steps repeat, vary or include warm-up, and two runs cannot be
    compared with certainty. Without steps, shares are of everything recorded.

    ## What to do
    Record at least five steps once the loop is warm, and call `prof.step()` at the end of each.

    ## How to verify
    The next report shows five steps.
    """

    code, title, family = "Q1", "Too few steps", Family.QUALITY
    section, confidence = "step_time", "high"

    least: float = 3.0

    def look(self, rank: Rank) -> FewStepsEvidence | None:
        num_steps = len(rank.all_step_numbers)
        return FewStepsEvidence(num_steps=num_steps, is_npu=is_npu(rank)) if num_steps < self.least else None

    def tell(self, job: JobEvidence[FewStepsEvidence]) -> Finding:
        num_steps = min(evidence.num_steps for evidence in job.by_rank.values())
        few = f"Only {num_steps} step{'s were' if num_steps > 1 else ' was'} recorded"
        return self.finding(
            job,
            few if num_steps else "No steps were recorded",
            evidence="With so few, one unusual step shifts all means, and how much steps vary is unknown."
            if num_steps
            else "Shares and savings are of everything recorded, start and end of the loop included.",
            snippet=profiler_call(job) if not job.worst.is_npu else "",
            severity=Severity.LOW,
        )


@dataclass(frozen=True, kw_only=True)
class WarmUpEvidence(Evidence):
    """First steps that take long; without steps, how long the start of the process takes."""

    slow_steps: list[tuple[int, int, float]] = field(default_factory=list)  # Number, its length, and the median (ns).
    other_steps: str = ""
    start_ns: int | None = None


@dataclass(frozen=True)
class WarmUp(Rule[WarmUpEvidence]):
    """The recording includes warm-up.

    ## When it speaks
    The first step of a recording takes more than `ratio` times the median of the others, of which there are two or
    more. Without steps: the GPU is idle for at least `share` of the time while the CPU allocates memory from the
    driver, loads modules, and launches kernels for the first time (1 ms and more in one launch call).

    ## What it could save
    Nothing by itself. Means and shares include work that later steps do not have.

    ## What to do
    - **start**: Run some steps before the recording begins, and mark steps with `prof.step()`.
    - **step**: Leave the first step out with `--steps`, or raise `warmup` in the profiler's schedule.

    ## How to verify
    - **start**: No launch call takes a millisecond.
    - **step**: The first step is as long as the others.
    """

    code, title, family = "Q2", "Warm-up within the recording", Family.QUALITY
    section, confidence = "step_time", "high"

    ratio: float = 1.5
    share: float = 0.2

    def look(self, rank: Rank) -> WarmUpEvidence | None:
        steps = rank.steps
        if not len(steps):
            return self._start(rank)
        slow = list[tuple[int, int, float]]()
        for _, capture in steps.groupby("capture"):
            length = (capture["end"] - capture["start"]).to_numpy()
            if len(length) > 2 and length[0] > self.ratio * (median := float(np.median(length[1:]))):  # noqa: PLR2004
                slow.append((int(capture["number"].iloc[0]), int(length[0]), median))
        other_steps = sorted(set(steps["number"].tolist()) - {number for number, _, _ in slow})
        return WarmUpEvidence(slow_steps=slow, other_steps=listed(other_steps)) if slow else None

    def _start(self, rank: Rank) -> WarmUpEvidence | None:
        if rank.capabilities.isdisjoint({Capability.LAUNCHES}):
            return None
        start = joined(first_launches(rank), rank.idle_by(Cause.ALLOCATING, Cause.COMPILING))
        return WarmUpEvidence(start_ns=total(start)) if rank.share(start) >= self.share else None

    def tell(self, job: JobEvidence[WarmUpEvidence]) -> Finding:
        worst = job.worst
        if worst.start_ns is not None:
            return self.finding(
                job,
                f"The recording includes the start of the process, which takes {job.time(worst.start_ns)}",
                evidence="For that long the GPU is idle while the CPU allocates memory from the driver and loads "
                "kernels. Much of the report is about the start, not about a step.",
                cases=("start",),
                snippet=profiler_call(job),
                severity=Severity.MEDIUM,
            )
        number, length, median = max(worst.slow_steps, key=lambda slow_step: slow_step[1] / slow_step[2])
        return self.finding(
            job,
            f"Step {number}, the first recorded, takes {length / median:.2g} times as long as the others",
            evidence=f"It takes {job.time(length)}, the others have a median of {job.time(median)}. It still warms up.",
            cases=("step",),
            snippet=f"htareport report TRACES --steps {worst.other_steps.replace(' ', '')}",
            steps=tuple(slow_step[0] for slow_step in worst.slow_steps),
            severity=Severity.LOW,
        )
