"""Tests whether a step became longer or shorter, by how much, and whether that is more than chance."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from htareport.algorithms.samples import SIGNIFICANT, Interval, mann_whitney, ratio_interval, smallest_p
from htareport.compare import topics
from htareport.compare.sides import Side
from htareport.compare.words import percent
from htareport.report import Unit
from htareport.report.units import NNBSP, text

_MAX_P, _MIN_LOG_RATIO = 0.05, math.log(1.05)  # A change of so small a p and so large a ratio is probable.


class Outcome(StrEnum):
    """What can be said about a change."""

    SHORTER = "shorter"
    LONGER = "longer"
    PERHAPS_SHORTER = "probably shorter"
    PERHAPS_LONGER = "probably longer"
    SAME = "no detectable change"
    TOO_FEW = topics.TOO_FEW
    NO_STEPS = "no steps, so no test"
    UNKNOWN = "no time on both sides"


@dataclass(frozen=True)
class Change:
    """The time of both runs (ns; nan where unknown), what it is the time of, and what can be said about its change.

    `interval` is of new / base.
    """

    what: str
    base: float
    new: float
    outcome: Outcome
    steps: tuple[int, int] = (0, 0)
    interval: Interval | None = None
    p: float | None = None

    @property
    def ratio(self) -> float:
        """New / base, nan where unknown."""
        return self.new / self.base if self.base > 0 else float("nan")


def change_of(base: Side, new: Side) -> Change:
    """Compare the job's step times; where a run has no steps, what was recorded of the devices or of the host."""
    times = base.step_times, new.step_times
    steps = len(times[0]), len(times[1])
    if all(steps):
        p, interval = mann_whitney(*times), ratio_interval(*times)
        before, after = (float(np.median(time)) for time in times)
        return Change("step time", before, after, _outcome(steps, p, interval, times), steps, interval, p)
    for what, time_of in _WITHOUT_STEPS.items():
        before, after = time_of(base), time_of(new)
        if before > 0 and after > 0:
            return Change(what, before, after, Outcome.NO_STEPS, steps)
    return Change("time", float("nan"), float("nan"), Outcome.UNKNOWN, steps)


def _span(side: Side) -> float:
    return float(side.uses_of_span.get("time", float("nan")))


def _recorded(side: Side) -> float:
    recorded = side.meta("recorded_ns")
    return float(recorded) if isinstance(recorded, (int, float)) else float("nan")


_WITHOUT_STEPS: dict[str, Callable[[Side], float]] = {"GPU span": _span, "time recorded": _recorded}


def _outcome(
    steps: tuple[int, int], p: float, interval: Interval | None, times: tuple[np.ndarray, np.ndarray]
) -> Outcome:
    if np.array_equal(*times):
        return Outcome.SAME
    if smallest_p(*steps) >= SIGNIFICANT or interval is None:
        return Outcome.TOO_FEW
    ratio = float(np.median(times[1]) / np.median(times[0]))
    if p < SIGNIFICANT and 1.0 not in interval:
        return Outcome.LONGER if ratio > 1 else Outcome.SHORTER
    if p < _MAX_P and abs(math.log(ratio)) > _MIN_LOG_RATIO:
        return Outcome.PERHAPS_LONGER if ratio > 1 else Outcome.PERHAPS_SHORTER
    return Outcome.SAME


def sentence(change: Change) -> str:
    """Say what changed, by how much, and how sure that is."""
    if change.outcome is Outcome.UNKNOWN:
        return "Nothing to compare: one of the runs tells no time."
    values = f"{text(change.base, Unit.NANOSECONDS)} → {text(change.new, Unit.NANOSECONDS)}"
    if change.outcome is Outcome.NO_STEPS:
        which = "either run" if not any(change.steps) else "the base" if not change.steps[0] else "the new run"
        return (
            f"No steps in {which}, so all that was recorded is compared, and nothing tells chance from change: "
            f"{change.what} {values} ({percent(change.ratio)})."
        )
    counts = f"{change.steps[0]} against {change.steps[1]} step{'s' if change.steps[1] != 1 else ''}"
    if change.outcome is Outcome.TOO_FEW:
        return f"Too few steps to tell ({counts}): step time {values} ({percent(change.ratio)})."
    if change.outcome is Outcome.SAME and change.interval in {None, Interval(1.0, 1.0)}:
        return f"The step times are the same: {text(change.base, Unit.NANOSECONDS)} ({counts})."
    sure = f"{counts}{_between(change.interval)}, p{NNBSP}{_p(change.p)}"
    if change.outcome is Outcome.SAME:
        return f"No detectable change of the step time: {values} ({percent(change.ratio)}; {sure})."
    return f"The step is {change.outcome}: {values} ({percent(change.ratio)}; {sure})."


def _between(interval: Interval | None) -> str:
    if interval is None:
        return ""
    return f", 95{NNBSP}% interval {percent(interval.low)} to {percent(interval.high)}"


def _p(p: float | None) -> str:
    return f"<{NNBSP}0.001" if p is not None and p < 0.001 else f"={NNBSP}{p:.2g}"  # noqa: PLR2004  as papers write it
