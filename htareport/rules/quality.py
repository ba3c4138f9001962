"""Rules about the recording: what it covers, and whether it shows the work as it was."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from htareport.findings import Finding, Severity
from htareport.rules.base import Evidence, Family, Found, Rule
from htareport.rules.host_rows import late, of, rows_named
from htareport.rules.host_runtime import first_launches
from htareport.rules.rank import Rank, joined, total
from htareport.rules.recording import is_npu, profiler_call
from htareport.trace import Capability
from htareport.trace.classify import launching_calls
from htareport.trace.idle import Cause
from htareport.trace.links import UNLINKED
from htareport.trace.window import listed

_BEGIN = re.compile(r"StreamBeginCapture")
_END = re.compile(r"StreamEndCapture")
_CAPTURING = re.compile(r"Stream(?:Begin|End|Get)Capture")


@dataclass(frozen=True)
class FewSteps(Rule):
    """Too few steps were recorded to tell what is usual.

    ## When it speaks
    A rank has fewer than `least` steps (`ProfilerStep#`).

    ## What it could save
    Nothing by itself. With one step it cannot be told whether steps repeat, vary or include warm-up, and two runs
    cannot be compared with certainty; without steps shares are of everything recorded.

    ## What to do
    Record five steps or more, and call `prof.step()` at the end of each.

    ## How to verify
    The report speaks of five steps.
    """

    code, title, family = "Q1", "Too few steps", Family.QUALITY
    section, confidence = "step_time", "high"

    least: float = 3.0

    def look(self, rank: Rank) -> Evidence | None:
        number = len(rank.trace.all_step_numbers)
        if number >= self.least:
            return None
        return Evidence(numbers={"steps": number, "npu": is_npu(rank)})

    def tell(self, found: Found) -> Finding:
        number = min(each.numbers["steps"] for each in found.ranks.values())
        few = f"Only {number} step{'s were' if number > 1 else ' was'} recorded"
        return self.finding(
            found,
            few if number else "No steps were recorded",
            evidence="With so few, what is special in one counts fully, and how much steps vary is not known."
            if number
            else "Shares and savings are of everything recorded, start and end of the loop included.",
            advice="Record at least five steps once the loop is warm, and call `prof.step()` at the end of each.",
            verify="The report speaks of five steps.",
            snippet=profiler_call() if not found.numbers["npu"] else "",
            severity=Severity.LOW,
        )


@dataclass(frozen=True)
class WarmUp(Rule):
    """Warm-up lies within what was recorded.

    ## When it speaks
    The first step of a recording takes more than `ratio` times the median of its others, of which there are two or
    more. Without steps: the device is idle for at least `share` of the time while memory is asked from the driver,
    modules are loaded, and kernels are launched for the first time (1 ms and more in one launch call).

    ## What it could save
    Nothing by itself: means and shares include what later steps don't have.

    ## What to do
    Leave the step out (`--steps`), or raise `warmup` in the profiler's schedule.

    ## How to verify
    The first step is as long as the others.
    """

    code, title, family = "Q2", "Warm-up within the recording", Family.QUALITY
    section, confidence = "step_time", "high"

    ratio: float = 1.5
    share: float = 0.2

    def look(self, rank: Rank) -> Evidence | None:
        steps = rank.trace.steps
        if not len(steps):
            return self._start(rank)
        slow = list[tuple[int, int, float]]()
        for _, mine in steps.groupby("capture"):
            length = (mine["end"] - mine["start"]).to_numpy()
            if len(length) > 2 and length[0] > self.ratio * (usual := float(np.median(length[1:]))):  # noqa: PLR2004
                slow.append((int(mine["number"].iloc[0]), int(length[0]), usual))
        rest = sorted(set(steps["number"].tolist()) - {number for number, _, _ in slow})
        return Evidence(numbers={"slow": slow, "rest": listed(rest)}) if slow else None

    def _start(self, rank: Rank) -> Evidence | None:
        if rank.trace.capabilities.isdisjoint({Capability.LAUNCHES}):
            return None
        start = joined(first_launches(rank), rank.idle_by(Cause.ALLOCATING, Cause.COMPILING))
        return Evidence(numbers={"start": total(start)}) if rank.share(start) >= self.share else None

    def tell(self, found: Found) -> Finding:
        n = found.numbers
        if "start" in n:
            return self.finding(
                found,
                f"The recording includes the start of the process, which takes {found.time(n['start'])}",
                evidence="For that long the device is idle while memory is asked from the driver and kernels are "
                "loaded. Much of what follows is about the start, not about a step.",
                advice="Run some steps before the recording begins, and mark steps with `prof.step()`.",
                verify="No launch call takes a millisecond.",
                snippet=profiler_call(),
                severity=Severity.MEDIUM,
            )
        number, length, usual = max(n["slow"], key=lambda each: each[1] / each[2])
        return self.finding(
            found,
            f"Step {number}, the first recorded, takes {length / usual:.2g} times as long as the others",
            evidence=f"It takes {found.time(length)}, the others {found.time(usual)} in the median: it still warms up.",
            advice="Leave it out with `--steps`, or raise `warmup` in the profiler's schedule.",
            verify="The first step is as long as the others.",
            snippet=f"htareport report TRACES --steps {n['rest'].replace(' ', '')}",
            steps=tuple(each[0] for each in n["slow"]),
            severity=Severity.LOW,
        )


@dataclass(frozen=True)
class WorkMissing(Rule):
    """The trace lacks work that the device did, so that it seems idle.

    ## When it speaks
    More than `lost` of the graph launches, or of the launches of kernels (and `fewest` of these), have no device event,
    though they are not captured into a graph. Or the device seems idle for more than `idle` of the step, the host is
    late in less than `late` of that, and graphs were launched: then only a part of them was recorded. Or more than
    `empty` of five or more steps hold less than a tenth of the device events that they hold in the median. The last
    launches of a recording don't count: it stops before they run.

    ## What it could save
    Nothing: advice about idle time of these ranks is held back.

    ## What to do
    Record fewer steps (the profiler's buffers ran full), with the current PyTorch and driver. If graphs are not
    recorded, record once without them (`enforce_eager=True`, without `mode="reduce-overhead"`).

    ## How to verify
    Every launch has its device event.
    """

    code, title, family = "Q3", "Work of the device is missing", Family.QUALITY
    section, confidence = "launch_stats", "high"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})

    lost: float = 0.05
    fewest: float = 5.0
    idle: float = 0.5
    late: float = 0.1
    empty: float = 0.2

    def look(self, rank: Rank) -> Evidence | None:
        graphs, lost_graphs, kernels, lost_kernels = _launches(rank)
        lost_kernels = lost_kernels if lost_kernels >= max(self.fewest, self.lost * kernels) else 0
        idle, host = rank.share(rank.idle), total(late(rank))
        unexplained = idle > self.idle and host < self.late * total(rank.idle) and graphs > 0
        empty = _empty_steps(rank)
        if not (
            lost_graphs > self.lost * graphs
            or lost_kernels
            or unexplained
            or empty > self.empty * len(rank.trace.steps)
        ):
            return None
        numbers = {"graphs": graphs, "lost_graphs": lost_graphs, "kernels": kernels, "lost_kernels": lost_kernels}
        numbers["captured"] = 2 * len(rows_named(rank, _CAPTURING, "call")) > lost_kernels > 0
        return Evidence(numbers=numbers | {"empty": empty, "idle": idle, "host": host / max(total(rank.idle), 1),
                                           "unreliable": True})  # fmt: skip

    def tell(self, found: Found) -> Finding:
        n, said = found.numbers, list[str]()
        if n["lost_graphs"]:
            said.append(f"{n['lost_graphs']:,} of {n['graphs']:,} graph launches have no device event")
        if n["lost_kernels"]:
            said.append(f"{n['lost_kernels']:,} of {n['kernels']:,} launches of kernels have no device event")
        if n["captured"]:
            said.append("streams were captured meanwhile: what is captured does not run, so record replays instead")
        if n["empty"]:
            said.append(f"{n['empty']} steps have hardly any device events")
        if not said:
            said.append(
                f"the device seems idle for {found.percent(n['idle'])} of {of(found)}, but the host is late in only "
                f"{found.percent(n['host'])} of that: graphs were launched, and hardly any of their kernels recorded"
            )
        words = "; ".join(said)
        return self.finding(
            found,
            "Work of the GPU is missing from the trace, so it seems idle: no advice is given on idle time",
            evidence=f"{words[:1].upper()}{words[1:]}.",
            advice="Record fewer steps, so that the profiler's buffers do not run full, with a current PyTorch and "
            "driver. If graphs are not recorded, record once without them.",
            verify="Every launch has its device event.",
            snippet=profiler_call(steps=2),
            severity=Severity.MEDIUM,
        )


def _launches(rank: Rank) -> tuple[int, int, int, int]:
    """Graph launches, those of them without device events, launches of kernels, and those without.

    Launches behind the last one with a device event don't count.
    """
    calls, linked = rank.trace.launches, rank.trace.device_events["launch"].to_numpy()
    used = np.zeros(len(calls), np.bool_)
    used[linked[linked != UNLINKED]] = True
    names = calls["name"].cat.categories.astype(str)
    kernel = launching_calls(names) & names.str.contains("Launch")
    is_kernel = kernel[calls["name"].cat.codes.to_numpy()] & (calls["correlation"].to_numpy() > 0)
    is_kernel[np.flatnonzero(used).max(initial=-1) + 1 :] = False
    graph = is_kernel & calls["graph"].to_numpy()
    is_kernel &= ~_captured(rank)
    single = is_kernel & ~graph
    return int(graph.sum()), int((graph & ~used).sum()), int(single.sum()), int((single & ~used).sum())


def _captured(rank: Rank) -> NDArray[np.bool_]:
    """Which calls are made while their thread captures a stream into a graph, so that they start nothing."""
    calls, host = rank.trace.launches, rank.trace.host
    found = np.zeros(len(calls), np.bool_)
    start, thread = calls["ts"].to_numpy(), calls["thread"].to_numpy()
    begins, ends = (rows_named(rank, pattern, "call") for pattern in (_BEGIN, _END))
    for row in begins.tolist():
        on = int(host["thread"].iloc[row])
        behind = host["ts"].to_numpy()[ends[(host["thread"].to_numpy()[ends] == on) & (ends > row)]]
        if len(behind):
            found |= (thread == on) & (start > host["ts"].iloc[row]) & (start < behind.min())
    return found


def _empty_steps(rank: Rank) -> int:
    """Of five or more steps how many hold less than a tenth of the median number of device events."""
    numbers = rank.trace.steps["number"]
    if len(numbers) < 5:  # noqa: PLR2004  a median of fewer says little
        return 0
    counts = rank.trace.device_events["step"].value_counts().reindex(numbers, fill_value=0)
    return int((counts < 0.1 * counts.median()).sum())
