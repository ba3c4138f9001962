"""Collects the key numbers of a run that gates judge and comparisons show, by name, with their values over steps."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from htareport.algorithms.samples import SIGNIFICANT, Interval, difference_interval, ratio_interval, smallest_p
from htareport.compare.sides import Floats, Side
from htareport.report import Better, Fact, Unit

_LABELS_OF_USES = {
    "compute": "computing",
    "exposed_comm": "exposed communication",
    "exposed_memory": "exposed copies",
    "idle": "GPU idle",
}
_ALIASES = {"peak_memory": "memory_peak"}
_NAMED = {"idle_cause_share"}  # Facts whose label names what they are of: another thing on the other side, perhaps.
_LABELS = {  # Of facts whose label goes on from their value: "72 % of idle is host wait".
    "host_wait_pct": "idle that is host wait",
    "overlap_pct": "communication hidden by compute",
    "critical_path_host_pct": "critical path on the host",
    "outside_steps_pct": "GPU work outside steps",
    "top_operator_pct": "the largest host operator",
}
_BY_STEP_TIME = {"samples_per_second": -1, "tokens_per_second": -1, "cost": 1}  # Powers of the step time.
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Metric:
    """One number of a run. `samples` are its values over the steps, None where it has none."""

    name: str
    label: str
    value: float
    unit: Unit
    better: Better | None = None
    samples: Floats | None = None
    is_median: bool = False  # Of the samples; else their mean.

    @property
    def is_exact(self) -> bool:
        """Whether it is counted rather than timed, so that it has no interval."""
        return self.unit in {Unit.COUNT, Unit.BYTES}


def metrics(side: Side) -> dict[str, Metric]:
    """Return the numbers that a run has, by name, those that matter most first.

    Shares are per cent under names that end in `_pct`; other names are those of the key numbers.
    """
    metrics = (*_of_steps(side), *_of_span(side), *_of_work(side), *_of_facts(side))
    return {metric.name: metric for metric in metrics if math.isfinite(metric.value)}


def _of_steps(side: Side) -> Iterator[Metric]:
    times, steps = side.step_times, side.uses_of_steps
    if len(times):
        median, lower = float(np.median(times)), Better.LOWER
        yield Metric("step_time", "step time", median, Unit.NANOSECONDS, lower, times, is_median=True)
        tail = float(np.percentile(times, 95))
        yield Metric("step_time_p95", "step time, p95", tail, Unit.NANOSECONDS, lower)
    if len(steps):
        for use, label in _LABELS_OF_USES.items():
            better = None if use == "compute" else Better.LOWER
            spent, total = (steps[name].to_numpy(np.float64) for name in (use, "time"))
            share = float(spent.sum() / total.sum())
            yield Metric(f"{use}_pct", f"{label} in steps", share, Unit.RATIO, better, spent / total)
            yield Metric(f"{use}_time", f"{label} per step", float(spent.mean()), Unit.NANOSECONDS, better, spent)


def _of_span(side: Side) -> Iterator[Metric]:
    span = side.uses_of_span
    if span.get("time", 0) > 0:
        yield Metric("span", "GPU span", float(span["time"]), Unit.NANOSECONDS, Better.LOWER)
        for use, label in _LABELS_OF_USES.items():
            better, share = (None if use == "compute" else Better.LOWER), float(span[use] / span["time"])
            yield Metric(f"{use}_of_span_pct", f"{label}, of the span", share, Unit.RATIO, better)


def _of_work(side: Side) -> Iterator[Metric]:
    """Yield counts and sizes of the devices' work; where there is none of a kind, that is 0 and not unknown."""
    if not len(side.kernels):
        return
    sizes = side.copies["bytes"]
    for name, label, value, unit in (
        ("kernels", "device events", side.kernels["count"].sum(), Unit.COUNT),
        ("kernel_time", "kernel time", side.kernels["time"].sum(), Unit.NANOSECONDS),
        ("collectives", "collectives", side.collectives["count"].sum(), Unit.COUNT),
        ("copied_bytes", "bytes copied", sizes.sum(min_count=min(len(sizes), 1)), Unit.BYTES),
    ):
        yield Metric(name, f"{label} {side.per_step_label}", float(value), unit, Better.LOWER)


def _of_facts(side: Side) -> Iterator[Metric]:
    left_out = {f"{use}_share" for use in _LABELS_OF_USES} | {"step_time", "device_span"} | _NAMED
    for fact in side.facts.values():
        if fact.name in left_out or fact.unit.is_id or not _NAME.fullmatch(fact.name) or fact.value is None:
            continue
        name = _ALIASES.get(fact.name, fact.name)
        if fact.unit is Unit.RATIO:
            name = f"{name.removesuffix('_share')}_pct"
        yield Metric(name, _LABELS.get(name, fact.label), fact.value, fact.unit, fact.better,
                     _samples(name, fact, side.step_times), is_median=True)  # fmt: skip


def _samples(name: str, fact: Fact, times: Floats) -> Floats | None:
    """Return values over the steps of what is a multiple of the step time, or of its inverse."""
    if name not in _BY_STEP_TIME or not len(times) or fact.value is None:
        return None
    samples: Floats = fact.value * (times / np.median(times)) ** _BY_STEP_TIME[name]
    return samples


def too_few(base: Metric, new: Metric) -> bool:
    """Return whether two metrics have values over steps, but of too few to tell chance from change."""
    if base.samples is None or new.samples is None or np.array_equal(base.samples, new.samples):
        return False
    return smallest_p(len(base.samples), len(new.samples)) >= SIGNIFICANT


def relative_interval(base: Metric, new: Metric) -> Interval | None:
    """Return the interval of new / base - 1, None where there is none."""
    if base.is_exact and base.value:
        exact = new.value / base.value - 1
        return Interval(exact, exact)
    if base.samples is None or new.samples is None or too_few(base, new):
        return None
    interval = ratio_interval(base.samples, new.samples, median=base.is_median)
    return Interval(interval.low - 1, interval.high - 1) if interval else None


def absolute_interval(base: Metric, new: Metric) -> Interval | None:
    """Return the interval of new - base, None where there is none."""
    if base.is_exact:
        return Interval(new.value - base.value, new.value - base.value)
    if base.samples is None or new.samples is None or too_few(base, new):
        return None
    return difference_interval(base.samples, new.samples, median=base.is_median)
