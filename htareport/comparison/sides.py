"""What a comparison needs of one report, taken from its tables. Tables that a report lacks are empty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.report import Fact, Report

Floats = NDArray[np.float64]
PARTS = ("compute", "exposed_comm", "exposed_memory")
CAUSES = ("host wait", "kernel wait", "other")


@dataclass(frozen=True)
class Side:
    """One of the two runs."""

    report: Report

    def frame(self, section: str, table: str, columns: Sequence[str]) -> pd.DataFrame:
        """Return columns of a table; without rows where the report has no such table, or one without them."""
        for each in self.report.sections:
            for found in each.tables if each.name == section else ():
                if found.spec.name == table and set(columns) <= set(found.frame.columns):
                    return found.frame[list(columns)]
        return pd.DataFrame({name: pd.Series(dtype=object) for name in columns})

    @property
    def meta(self) -> Mapping[str, Any]:
        """What is known of the run besides its numbers."""
        return self.report.meta

    @cached_property
    def facts(self) -> dict[str, Fact]:
        """The key numbers that have a value, by name."""
        return {fact.name: fact for each in self.report.sections for fact in each.facts if fact.value is not None}

    # --- time -------------------------------------------------------------------------------

    @cached_property
    def step_times(self) -> Floats:
        """The slowest rank's time for each step, ns."""
        return numbers(self.frame("step_time", "steps", ["slowest"])["slowest"])

    @cached_property
    def parts_of_steps(self) -> pd.DataFrame:
        """Mean over ranks and devices by step, ns: time, the parts of busy time, idle, and idle by cause."""
        parts = self.frame("temporal_breakdown", "steps", ["step", "time", *PARTS, "idle"])
        causes = self.frame("idle_time", "steps", ["step", *CAUSES])
        both = parts.merge(causes, on="step", how="left").drop(columns="step")
        return pd.DataFrame({name: numbers(both[name]) for name in both.columns})

    @cached_property
    def parts_of_span(self) -> pd.Series[Any]:
        """The same over everything recorded: `time` is the span. nan where nothing is known."""
        columns = ["span", *PARTS, "idle"]
        table = self.frame("temporal_breakdown", "ranks", columns)
        ranks = pd.DataFrame({name: numbers(table[name]) for name in columns})
        means = ranks[ranks["span"] > 0].mean().rename({"span": "time"})
        devices = self.frame("idle_time", "devices", ["rank", "device", "category", "idle"])
        count = max(len(devices[["rank", "device"]].drop_duplicates()), 1)
        causes = pd.to_numeric(devices["idle"]).groupby(devices["category"]).sum() / count
        parts: pd.Series[Any] = pd.concat([means, causes.reindex(CAUSES)])
        return parts

    # --- work -------------------------------------------------------------------------------

    @property
    def per(self) -> str:
        """What the numbers of work are per: `step`, or `rank` where there are no steps."""
        steps = numbers(self.frame("step_work", "basis", ["steps"])["steps"])
        return "step" if len(self.step_times) or np.isfinite(steps).any() else "rank"

    @cached_property
    def kernels(self) -> pd.DataFrame:
        """Device work per step and rank: path, shapes, kernel, kind, count, time (ns)."""
        columns = ["path", "shapes", "kernel", "kind", "count", "time"]
        return _typed(self.frame("step_work", "kernels", columns), ["count", "time"])

    @cached_property
    def operators(self) -> pd.DataFrame:
        """Operators of the host per step and rank: name, count, time (self, ns)."""
        table = self.frame("operators", "operators", ["name", "step_count", "step_self"])
        table = table.rename(columns={"step_count": "count", "step_self": "time"})
        is_step = table["name"].astype(str).str.startswith("ProfilerStep")  # An operator in traces of before 2022.
        return _typed(table[(table["count"] > 0) & ~is_step], ["count", "time"])

    @cached_property
    def collectives(self) -> pd.DataFrame:
        """Collectives per step and rank: collective, process_group, count, time (ns), bytes."""
        columns = ["collective", "process_group", "count", "time", "bytes"]
        return _typed(self.frame("step_work", "collectives", columns), columns[2:])

    @cached_property
    def copies(self) -> pd.DataFrame:
        """Copies and fills per step and rank: kind, count, time (ns), bytes."""
        columns = ["kind", "count", "time", "bytes"]
        return _typed(self.frame("step_work", "copies", columns), columns[1:])

    # --- ranks ------------------------------------------------------------------------------

    @cached_property
    def ranks(self) -> pd.DataFrame:
        """By rank, mean over steps, ns: time, own (without exposed communication)."""
        times = self.frame("step_time", "ranks", ["rank", "mean"]).rename(columns={"mean": "time"})
        own = self.frame("temporal_breakdown", "ranks", ["rank", "own_step"])
        means = pd.to_numeric(own["own_step"]).groupby(own["rank"]).mean().rename("own")
        return _typed(times, ["time"]).merge(means.reset_index(), on="rank", how="left")


def numbers(column: pd.Series[Any]) -> Floats:
    """Return a column as floats, missing ones nan."""
    return pd.to_numeric(column).to_numpy(np.float64, na_value=np.nan)


def _typed(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The columns of numbers as floats, the others as objects, also where there are no rows."""
    kept = {name: table[name].astype(object) for name in table.columns if name not in columns}
    found = kept | {name: numbers(table[name]) for name in columns}
    return pd.DataFrame({name: found[name] for name in table.columns}).reset_index(drop=True)
