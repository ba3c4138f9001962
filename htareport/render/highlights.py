"""The highlights of a report for mail, comment and index: headline, key numbers, top kernels, slowest ranks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

from htareport.render import kernel_names
from htareport.render.charts import ticks as fmt
from htareport.report import Column, Fact, Report, Table, Unit
from htareport.report.json_codec import column_values

MAX_TITLE = 200
MAX_NAME = 64
MAX_FINDINGS = 5
_HEADLINES = (("step_time", "Training step"), ("device_span", "GPU time"))
_KERNELS = ("name", "kind", "share", "count", "sum", "mean")
_OPERATORS = ("name", "share", "self", "count", "mean")
_CHANGED_KERNELS = ("kernel", "kind", "change", "delta", "base_time", "new_time")
_CHANGED_OPERATORS = ("name", "calls", "change", "delta", "base_time", "new_time")
_CHANGED_RANKS = ("rank", "time_base", "time_new", "delta", "share")
_KEY_NUMBERS = ("step_time", "compute_pct", "exposed_comm_pct", "idle_pct", "memory_peak", "span", "operator_time")
_MAX_NUMBERS = 5
_RANKS = ("rank", "device", "own_step", "compute_share", "exposed_comm_share", "idle_share")
_STEPS = ("rank", "median", "mean", "max", "slowest_step")


@dataclass(frozen=True, slots=True)
class Grid:
    """The head of a table: some of its columns and rows, with short names, and how many rows the table has."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    total: int

    def drop_columns(self, names: Collection[str]) -> Grid:
        """Return the table without the columns of these names."""
        is_shown = [column.name not in names for column in self.columns]
        rows = tuple(tuple(compress(row, is_shown)) for row in self.rows)
        return Grid(self.title, tuple(compress(self.columns, is_shown)), rows, self.total)


def headline(report: Report) -> tuple[str, str]:
    """Return the most important number of a run and its label: step time, else GPU time; empty without both."""
    facts = {fact.name: fact for section in report.sections for fact in section.facts if fact.value is not None}
    return next(((label, value(facts[name])) for name, label in _HEADLINES if name in facts), ("", ""))


def value(fact: Fact) -> str:
    """Return a key number as text."""
    return fmt.text(fact.value, fact.unit)


def title(report: Report) -> str:
    """Return the title on one line, of bounded length."""
    return " ".join(kernel_names.visible(kernel_names.cut(report.title, MAX_TITLE)).split()) or "htareport"


def kernels(report: Report, max_rows: int = 10) -> Grid | None:
    """Return the kernels that take most time, or the host's operators where no GPU was recorded."""
    if is_comparison(report):
        grid = _grid(
            "Kernels that changed most", _table(report, "compare_kernels", "kernels"), _CHANGED_KERNELS, max_rows
        )
        names_table = _table(report, "compare_names", "names")
        return grid or _grid("Operators that changed most", names_table, _CHANGED_OPERATORS, max_rows)
    grid = _grid("Top kernels", _table(report, "kernel_breakdown", "kernels"), _KERNELS, max_rows)
    return grid or _grid("Top operators", _table(report, "operators", "operators"), _OPERATORS, max_rows)


def worst_ranks(report: Report, max_rows: int = 5) -> Grid | None:
    """Return the slowest ranks; None where there is only one rank."""
    if is_comparison(report):
        grid = _grid("Ranks", _table(report, "compare_ranks", "ranks"), _CHANGED_RANKS, max_rows, order_by="delta")
        return grid if grid and grid.total > 1 else None
    grid = _grid("Worst ranks", _table(report, "temporal_breakdown", "ranks"), _RANKS, max_rows, order_by="own_step")
    grid = grid or _grid("Worst ranks", _table(report, "step_time", "ranks"), _STEPS, max_rows, order_by="median")
    return grid if grid and grid.total > 1 else None


def is_comparison(report: Report) -> bool:
    """Whether a report compares two runs."""
    return isinstance(report.meta.get("comparison"), dict)


def numbers(report: Report) -> list[tuple[str, str, str, str]]:
    """Return name, base, new and change of the key numbers of a comparison; of other reports nothing."""
    table = _table(report, "compare", "metrics") if is_comparison(report) else None
    columns = ("metric", "base", "new", "change")
    if table is None or not {"name", *columns} <= set(table.frame.columns):
        return []
    rows = {str(row["name"]): row for row in table.frame.to_dict("records")}
    shown = [rows[name] for name in _KEY_NUMBERS if name in rows][:_MAX_NUMBERS]
    return [(str(row["metric"]), str(row["base"]), str(row["new"]), str(row["change"])) for row in shown]


def gates(report: Report) -> list[tuple[str, str, str]]:
    """Return gate, outcome and value of each gate."""
    gates = (gate for gate in report.meta.get("gates", ()) if isinstance(gate, dict))
    return [(str(gate.get("gate", "")), str(gate.get("state", "")), str(gate.get("reason", ""))) for gate in gates]


def change(report: Report) -> str:
    """Return how much the step time changed, and against which run; empty without a base."""
    comparison = report.meta.get("comparison")
    fact = next((f for s in report.sections if s.name == "compare" for f in s.facts if f.name == "change"), None)
    if not isinstance(comparison, dict) or fact is None or fact.value is None:
        return ""
    base = comparison.get("base")
    against = kernel_names.cut(str(base.get("title", "the base")) if isinstance(base, dict) else "the base", MAX_NAME)
    return f"{fmt.text(fact.value, Unit.RATIO_CHANGE)} against {against}"


def _table(report: Report, section: str, name: str) -> Table | None:
    tables = (table for candidate in report.sections if candidate.name == section for table in candidate.tables)
    return next((table for table in tables if table.spec.name == name and len(table.frame)), None)


def _grid(
    name: str, table: Table | None, column_names: Sequence[str], max_rows: int, *, order_by: str = ""
) -> Grid | None:
    """Return columns and rows of a table, largest `order_by` first; None without the table or any such number."""
    if table is None:
        return None
    frame = table.frame
    if order_by:
        if order_by not in frame.columns or frame[order_by].isna().all():
            return None
        frame = frame.sort_values(order_by, ascending=False, kind="stable")
    columns = tuple(column for column in table.spec.columns if column.name in column_names)
    cells = [_values(column_values(frame[column.name].head(max_rows)), column.unit) for column in columns]
    return Grid(name, columns, tuple(zip(*cells, strict=True)), len(frame)) if columns else None


def _values(cells: list[Any], unit: Unit) -> list[Any]:
    if unit is not Unit.NAME:
        return cells
    short = kernel_names.labels((str(cell) for cell in cells if cell is not None), MAX_NAME)
    return [None if cell is None else short[str(cell)] for cell in cells]
