"""Reads from the tables of a report what a comparison needs of it. Tables that a report lacks are empty.

A saved report may have been edited by hand: a number that is none, or no time or size of this world, is taken as
missing, and what stands for a name is taken as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.compare.topics import GROUP
from htareport.report import Fact, Report, Section, Status
from htareport.report.units import is_missing

Floats = NDArray[np.float64]
BUSY_USES = ("compute", "exposed_comm", "exposed_memory")
IDLE_CAUSES = ("host wait", "kernel wait", "other")
_KERNEL = ["path", "shapes", "kernel", "kind", "count", "time"]
_OPERATOR = ["name", "step_count", "step_self"]
_MAX_NUMBER = 1e18  # ns, bytes, calls: 30 years, an exabyte.


@dataclass(frozen=True)
class Side:
    """One of the two runs. `other_has_steps` is False where the other one has none: then all work is taken per rank."""

    report: Report
    other_has_steps: bool = True

    def frame(self, section: str, table: str, columns: Sequence[str]) -> pd.DataFrame:
        """Return columns of a table; without rows where the report has no such table, or one without them."""
        for candidate in self.report.sections:
            for frame in _frames(candidate, table, columns) if candidate.name == section else ():
                return frame
        return pd.DataFrame({name: pd.Series(dtype=object) for name in columns})

    def _tells(self, section: str, table: str, columns: Sequence[str]) -> bool:
        """Return whether the report has a table, or says that there is nothing to fill it with."""
        candidate = next((candidate for candidate in self.report.sections if candidate.name == section), None)
        if candidate is None or candidate.status is Status.FAILED:
            return False
        return not candidate.tables or any(True for _ in _frames(candidate, table, columns))

    def meta(self, name: str) -> Any:
        """Return meta data of the run, None if it is not known."""
        return self.report.meta.get(name)

    def meta_of(self, name: str) -> Mapping[str, Any]:
        """Return meta data of the run that is a mapping; empty if it is none."""
        mapping = self.meta(name)
        return mapping if isinstance(mapping, Mapping) else {}

    @cached_property
    def facts(self) -> dict[str, Fact]:
        """The key numbers that have a value, by name; not those of a comparison."""
        sections = (section for section in self.report.sections if section.group != GROUP)
        return {fact.name: fact for section in sections for fact in section.facts if fact.value is not None}

    # --- time -------------------------------------------------------------------------------

    @cached_property
    def step_times(self) -> Floats:
        """The slowest rank's time for each step, ns."""
        times = numbers(self.frame("step_time", "steps", ["slowest"])["slowest"])
        return times[times > 0]

    @cached_property
    def uses_of_steps(self) -> pd.DataFrame:
        """Mean over ranks and devices by step, ns: time, busy time by use, idle, and idle by cause."""
        steps = self.frame("temporal_breakdown", "steps", ["step", "time", *BUSY_USES, "idle"])
        causes = self.frame("idle_time", "steps", ["step", *IDLE_CAUSES]).drop_duplicates("step")
        steps = steps.merge(causes, on="step", how="left").drop(columns="step")
        table = pd.DataFrame({name: numbers(steps[name]) for name in steps.columns})
        return table[table["time"] > 0].reset_index(drop=True)

    @cached_property
    def uses_of_slowest(self) -> pd.DataFrame:
        """By step, ns: time, busy time by use and idle of the slowest rank; fewer rows where the report lacks some."""
        columns = ["time", *BUSY_USES, "idle"]
        slowest = self.frame("step_time", "steps", ["step", "slowest_rank"]).drop_duplicates("step")
        rows = self.frame("temporal_breakdown", "per_step", ["rank", "step", *columns])
        rows = rows.merge(slowest, left_on=["step", "rank"], right_on=["step", "slowest_rank"])
        table = pd.DataFrame({name: numbers(rows[name]) for name in columns}).groupby(rows["step"].to_numpy()).mean()
        return table[table["time"] > 0].reset_index(drop=True)

    @cached_property
    def uses_of_span(self) -> pd.Series[Any]:
        """The same over everything recorded: `time` is the span. nan where nothing is known."""
        columns = ["span", *BUSY_USES, "idle"]
        table = self.frame("temporal_breakdown", "ranks", columns)
        ranks = pd.DataFrame({name: numbers(table[name]) for name in columns})
        means = ranks[ranks["span"] > 0].mean().rename({"span": "time"})
        devices = self.frame("idle_time", "devices", ["rank", "device", "category", "idle"])
        count = max(len(devices[["rank", "device"]].drop_duplicates()), 1)
        idle = pd.Series(numbers(devices["idle"])).groupby(devices["category"].to_numpy()).sum() / count
        uses: pd.Series[Any] = pd.concat([means, idle.reindex(IDLE_CAUSES)])
        return uses

    # --- work -------------------------------------------------------------------------------

    @property
    def has_steps(self) -> bool:
        """Whether the run has steps."""
        return len(self.step_times) > 0

    @property
    def per_step_label(self) -> str:
        """What the numbers of work are per, in words."""
        return "per step and rank" if self.has_steps and self.other_has_steps else "per rank"

    @cached_property
    def _steps_per_rank(self) -> float:
        """Factor of numbers per step and rank: 1, or if the other run has no steps the number of steps of a rank."""
        if not self.has_steps or self.other_has_steps:
            return 1.0
        basis = self.frame("step_work", "basis", ["ranks", "steps"])
        steps = numbers(basis["steps"]) / np.maximum(numbers(basis["ranks"]), 1)
        return float(steps[0]) if np.isfinite(steps[:1]).any() else float(len(self.step_times))

    @property
    def tells_kernels(self) -> bool:
        """Whether `kernels`, `collectives` and `copies` are known, be it as none."""
        return self._tells("step_work", "kernels", _KERNEL)

    @property
    def tells_operators(self) -> bool:
        """Whether `operators` are known, be it as none."""
        return self._tells("operators", "operators", _OPERATOR)

    @cached_property
    def kernels(self) -> pd.DataFrame:
        """Device work (see `per_step_label`): path, shapes, kernel, kind, count, time (ns)."""
        return self._work("step_work", "kernels", _KERNEL[:4], _KERNEL[4:])

    @cached_property
    def operators(self) -> pd.DataFrame:
        """Operators of the host (see `per_step_label`): name, count, time (self, ns)."""
        table = self._work("operators", "operators", _OPERATOR[:1], _OPERATOR[1:])
        table = table.rename(columns={"step_count": "count", "step_self": "time"})
        is_step = table["name"].str.startswith("ProfilerStep").astype(bool)  # An operator in traces of before 2022.
        return table[(table["count"] > 0) & ~is_step].reset_index(drop=True)

    @cached_property
    def collectives(self) -> pd.DataFrame:
        """Collectives (see `per_step_label`): collective, process_group, count, time (ns), bytes."""
        return self._work("step_work", "collectives", ["collective", "process_group"], ["count", "time", "bytes"])

    @cached_property
    def copies(self) -> pd.DataFrame:
        """Copies and fills (see `per_step_label`): kind, count, time (ns), bytes."""
        return self._work("step_work", "copies", ["kind"], ["count", "time", "bytes"])

    def _work(self, section: str, table: str, names: list[str], amounts: list[str]) -> pd.DataFrame:
        frame = self.frame(section, table, [*names, *amounts])
        columns: dict[str, Any] = {name: texts(frame[name]) for name in names}
        columns |= {name: numbers(frame[name]) * self._steps_per_rank for name in amounts}
        work = pd.DataFrame(columns)
        return work[(work[amounts[:2]] >= 0).all(axis=1)].reset_index(drop=True)

    # --- ranks ------------------------------------------------------------------------------

    @cached_property
    def ranks(self) -> pd.DataFrame:
        """By rank, ns: time (mean over the steps; unless both runs have some the span), own (less exposed_comm)."""
        columns = ["rank", "span", "exposed_comm", "own_step"]
        frame = self.frame("temporal_breakdown", "ranks", columns)
        table = pd.DataFrame({name: numbers(frame[name]) for name in columns})
        if self.has_steps and self.other_has_steps:
            means = self.frame("step_time", "ranks", ["rank", "mean"])
            times = pd.DataFrame({"rank": numbers(means["rank"]), "time": numbers(means["mean"])})
            own = table.groupby("rank")["own_step"].mean().rename("own").reset_index()
        else:
            times = table.rename(columns={"span": "time"})[["rank", "time"]]
            own = table.assign(own=table["span"] - table["exposed_comm"])[["rank", "own"]]
        ranks = times.groupby("rank").mean().join(own.groupby("rank").mean()).reset_index()
        return ranks[ranks["time"] > 0].astype({"rank": "int64"}).reset_index(drop=True)


def _frames(section: Section, table: str, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
    """Yield these columns of the section's tables of that name that have all of them."""
    for candidate in section.tables:
        if candidate.spec.name == table and set(columns) <= set(candidate.frame.columns):
            yield candidate.frame[list(columns)]


Sides: TypeAlias = tuple[Side, Side]  # Base and new.


def sides(base: Report, new: Report) -> Sides:
    """Return both runs, their work in the same measure: per step and rank, or without steps in one of them per rank."""
    return Side(base, Side(new).has_steps), Side(new, Side(base).has_steps)


def numbers(column: pd.Series[Any]) -> Floats:
    """Return a column as floats; nan where a cell is missing, no number, or too large."""
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    return np.where(np.abs(numbers) < _MAX_NUMBER, numbers, np.nan)


def texts(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return a column as texts, empty where it is missing."""
    return pd.Series(["" if is_missing(value) else str(value) for value in column], column.index, dtype=object)
