"""The numbers of a run that gates and the table of key numbers are about, by name, with their values over the steps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from htareport.algorithms.samples import Interval, difference_interval, ratio_interval
from htareport.comparison.sides import PARTS, Floats, Side
from htareport.report import Better, Unit

_PARTS = {
    "compute": "computing",
    "exposed_comm": "exposed communication",
    "exposed_memory": "exposed copies",
    "idle": "GPU idle",
}
_ALIASES = {"peak_memory": "memory_peak"}
_STATES = {"late_rank", "slowest_rank", "slow_step"}  # Facts that name something.
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Metric:
    """One number of a run. `samples` are its values over the steps, None where it is not a mean over them."""

    name: str
    label: str
    value: float
    unit: Unit
    better: Better | None = None
    samples: Floats | None = None
    is_median: bool = False  # Of the samples; else their mean.

    @property
    def is_exact(self) -> bool:
        """Whether it is counted rather than timed, and so no sample of anything."""
        return self.unit in {Unit.COUNT, Unit.BYTES}


def metrics(side: Side) -> dict[str, Metric]:
    """Return the numbers that a run has, by name, those that matter most first.

    Shares are per cent under names that end in `_pct`; other names are those of the key numbers.
    """
    return {each.name: each for each in (*_of_steps(side), *_of_span(side), *_of_work(side), *_of_facts(side))}


def _of_steps(side: Side) -> Iterator[Metric]:
    times, parts = side.step_times, side.parts_of_steps
    if len(times):
        median, lower = float(np.median(times)), Better.LOWER
        yield Metric("step_time", "step time", median, Unit.NANOSECONDS, lower, times, is_median=True)
        tail = float(np.percentile(times, 95))
        yield Metric("step_time_p95", "step time, p95", tail, Unit.NANOSECONDS, lower)
    if len(parts):
        for part in (*PARTS, "idle"):
            better = None if part == "compute" else Better.LOWER
            spent, whole = (parts[name].to_numpy(np.float64) for name in (part, "time"))
            share = float(spent.sum() / whole.sum())
            yield Metric(f"{part}_pct", f"{_PARTS[part]} in steps", share, Unit.RATIO, better, spent / whole)
            label = f"{_PARTS[part]} per step"
            yield Metric(f"{part}_time", label, float(spent.mean()), Unit.NANOSECONDS, better, spent)


def _of_span(side: Side) -> Iterator[Metric]:
    parts = side.parts_of_span
    if parts.get("time", 0) > 0:
        yield Metric("span", "GPU span", float(parts["time"]), Unit.NANOSECONDS, Better.LOWER)
        for part in (*PARTS, "idle"):
            better, share = (None if part == "compute" else Better.LOWER), float(parts[part] / parts["time"])
            yield Metric(f"{part}_of_span_pct", f"{_PARTS[part]}, of the span", share, Unit.RATIO, better)


def _of_work(side: Side) -> Iterator[Metric]:
    lower = Better.LOWER
    if len(side.kernels):
        yield Metric(
            "kernels", "device events per step and rank", float(side.kernels["count"].sum()), Unit.COUNT, lower
        )
        yield Metric("kernel_time", "kernel time per step and rank", float(side.kernels["time"].sum()),
                     Unit.NANOSECONDS, lower)  # fmt: skip
    if len(side.collectives):
        count = float(side.collectives["count"].sum())
        yield Metric("collectives", "collectives per step and rank", count, Unit.COUNT, lower)
    if len(side.copies) and np.isfinite(side.copies["bytes"]).any():
        copied = float(side.copies["bytes"].sum())
        yield Metric("copied_bytes", "bytes copied per step and rank", copied, Unit.BYTES, lower)


def _of_facts(side: Side) -> Iterator[Metric]:
    known = {f"{part}_share" for part in _PARTS} | {"step_time", "device_span"} | _STATES
    for fact in side.facts.values():
        if fact.name in known or fact.unit.is_id or not _NAME.fullmatch(fact.name) or fact.value is None:
            continue
        name = _ALIASES.get(fact.name, fact.name)
        if fact.unit is Unit.RATIO:
            name = f"{name.removesuffix('_share')}_pct"
        yield Metric(name, fact.label, fact.value, fact.unit, fact.better)


def relative_interval(base: Metric, new: Metric) -> Interval | None:
    """Interval of new / base - 1, None where none can be had."""
    if base.is_exact and base.value:
        exact = new.value / base.value - 1
        return Interval(exact, exact)
    if base.samples is None or new.samples is None:
        return None
    found = ratio_interval(base.samples, new.samples, median=base.is_median)
    return Interval(found.low - 1, found.high - 1) if found else None


def absolute_interval(base: Metric, new: Metric) -> Interval | None:
    """Interval of new - base, None where none can be had."""
    if base.is_exact:
        return Interval(new.value - base.value, new.value - base.value)
    if base.samples is None or new.samples is None:
        return None
    return difference_interval(base.samples, new.samples, median=base.is_median)
