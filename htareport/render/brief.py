"""What the short channels (mail, comment, index) tell of a report: headline, key numbers, top kernels, worst ranks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from htareport.codec import column_values
from htareport.render import format as fmt
from htareport.render import names
from htareport.report import Column, Fact, Finding, Report, Table, Unit

LONGEST_TITLE = 200
LONGEST_NAME = 64
MOST_FINDINGS = 5
_HEADLINES = (("step_time", "Training step"), ("device_span", "GPU time"))
_KERNELS = ("name", "kind", "share", "count", "sum", "mean")
_OPERATORS = ("name", "share", "self", "count", "mean")
_RANKS = ("rank", "device", "own_step", "compute_share", "exposed_comm_share", "idle_share")
_STEPS = ("rank", "median", "mean", "max", "slowest_step")


@dataclass(frozen=True, slots=True)
class Grid:
    """The head of a table: some of its columns and rows, names made short, and how many rows there are in all."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    total: int

    def without(self, left_out: Collection[str]) -> Grid:
        """Return the table without the columns of these names."""
        kept = [place for place, column in enumerate(self.columns) if column.name not in left_out]
        rows = tuple(tuple(row[place] for place in kept) for row in self.rows)
        return Grid(self.title, tuple(self.columns[place] for place in kept), rows, self.total)


def headline(report: Report) -> tuple[str, str]:
    """Return the one number of a run with its name: the step time, else what the GPU took; empty without both."""
    facts = {fact.name: fact for section in report.sections for fact in section.facts if fact.value is not None}
    return next(((words, value(facts[name])) for name, words in _HEADLINES if name in facts), ("", ""))


def value(fact: Fact) -> str:
    """Return a key number as text."""
    return fmt.text(fact.value, fact.unit)


def title(report: Report) -> str:
    """Return the title on one line, of bounded length."""
    return " ".join(names.visible(names.cut(report.title, LONGEST_TITLE)).split()) or "htareport"


def saving(finding: Finding) -> str:
    """Return what a finding would save, if it says so."""
    return f"up to {fmt.text(finding.saving_ns, Unit.NANOSECONDS)}" if finding.saving_ns else ""


def kernels(report: Report, most: int = 10) -> Grid | None:
    """Return what takes most time: kernels, or operators of the host where no GPU was recorded."""
    found = _grid("Top kernels", _table(report, "kernel_breakdown", "kernels"), _KERNELS, most)
    return found or _grid("Top operators", _table(report, "operators", "operators"), _OPERATORS, most)


def worst_ranks(report: Report, most: int = 5) -> Grid | None:
    """Return the ranks that take longest; None where there is only one."""
    found = _grid("Worst ranks", _table(report, "temporal_breakdown", "ranks"), _RANKS, most, by="own_step")
    found = found or _grid("Worst ranks", _table(report, "step_time", "ranks"), _STEPS, most, by="median")
    return found if found and found.total > 1 else None


def _table(report: Report, section: str, name: str) -> Table | None:
    tables = (table for each in report.sections if each.name == section for table in each.tables)
    return next((table for table in tables if table.spec.name == name and len(table.frame)), None)


def _grid(name: str, table: Table | None, wanted: Sequence[str], most: int, *, by: str = "") -> Grid | None:
    """Return columns and rows of a table, largest `by` first; None where there is no such table, or no such numbers."""
    if table is None:
        return None
    frame = table.frame
    if by:
        if by not in frame.columns or frame[by].isna().all():
            return None
        frame = frame.sort_values(by, ascending=False, kind="stable")
    columns = tuple(column for column in table.spec.columns if column.name in wanted)
    cells = [_values(column_values(frame[column.name].head(most)), column.unit) for column in columns]
    return Grid(name, columns, tuple(zip(*cells, strict=True)), len(frame)) if columns else None


def _values(cells: list[Any], unit: Unit) -> list[Any]:
    if unit is not Unit.NAME:
        return cells
    short = names.labels((str(cell) for cell in cells if cell is not None), LONGEST_NAME)
    return [None if cell is None else short[str(cell)] for cell in cells]
