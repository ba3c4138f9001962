"""What the short channels (mail, comment, index) tell of a report: headline, key numbers, top kernels, worst ranks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from htareport.render import kernel_names
from htareport.render.charts import ticks as fmt
from htareport.report import Column, Fact, Report, Table, Unit
from htareport.report.json_codec import column_values

LONGEST_TITLE = 200
LONGEST_NAME = 64
MOST_FINDINGS = 5
_HEADLINES = (("step_time", "Training step"), ("device_span", "GPU time"))
_KERNELS = ("name", "kind", "share", "count", "sum", "mean")
_OPERATORS = ("name", "share", "self", "count", "mean")
_CHANGED = ("kernel", "kind", "change", "delta", "base_time", "new_time")
_CHANGED_OPERATORS = ("name", "calls", "change", "delta", "base_time", "new_time")
_MOVED = ("rank", "time_base", "time_new", "delta", "share")
_NUMBERS = ("step_time", "compute_pct", "exposed_comm_pct", "idle_pct", "memory_peak", "span", "operator_time")
_MOST_NUMBERS = 5
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
    return " ".join(kernel_names.visible(kernel_names.cut(report.title, LONGEST_TITLE)).split()) or "htareport"


def kernels(report: Report, most: int = 10) -> Grid | None:
    """Return what takes most time: kernels, or operators of the host where no GPU was recorded."""
    if is_comparison(report):
        found = _grid("Kernels that changed most", _table(report, "compare_kernels", "kernels"), _CHANGED, most)
        names_ = _table(report, "compare_names", "names")
        return found or _grid("Operators that changed most", names_, _CHANGED_OPERATORS, most)
    found = _grid("Top kernels", _table(report, "kernel_breakdown", "kernels"), _KERNELS, most)
    return found or _grid("Top operators", _table(report, "operators", "operators"), _OPERATORS, most)


def worst_ranks(report: Report, most: int = 5) -> Grid | None:
    """Return the ranks that take longest; None where there is only one."""
    if is_comparison(report):
        found = _grid("Ranks", _table(report, "compare_ranks", "ranks"), _MOVED, most, by="delta")
        return found if found and found.total > 1 else None
    found = _grid("Worst ranks", _table(report, "temporal_breakdown", "ranks"), _RANKS, most, by="own_step")
    found = found or _grid("Worst ranks", _table(report, "step_time", "ranks"), _STEPS, most, by="median")
    return found if found and found.total > 1 else None


def is_comparison(report: Report) -> bool:
    """Tell whether a report is one of two runs."""
    return isinstance(report.meta.get("comparison"), dict)


def numbers(report: Report) -> list[tuple[str, str, str, str]]:
    """Return name, base, new and change of the key numbers of a comparison; nothing of a report that is none."""
    table = _table(report, "compare", "metrics") if is_comparison(report) else None
    columns = ("metric", "base", "new", "change")
    if table is None or not {"name", *columns} <= set(table.frame.columns):
        return []
    rows = {str(row["name"]): row for row in table.frame.to_dict("records")}
    shown = [rows[name] for name in _NUMBERS if name in rows][:_MOST_NUMBERS]
    return [(str(row["metric"]), str(row["base"]), str(row["new"]), str(row["change"])) for row in shown]


def gates(report: Report) -> list[tuple[str, str, str]]:
    """Return gate, outcome and value of each gate."""
    found = (gate for gate in report.meta.get("gates", ()) if isinstance(gate, dict))
    return [(str(gate.get("gate", "")), str(gate.get("state", "")), str(gate.get("reason", ""))) for gate in found]


def change(report: Report) -> str:
    """Return how much the step changed against which run, and which gates were crossed; empty without a base."""
    about = report.meta.get("comparison")
    fact = next((f for s in report.sections if s.name == "compare" for f in s.facts if f.name == "change"), None)
    if not isinstance(about, dict) or fact is None or fact.value is None:
        return ""
    base = about.get("base")
    against = kernel_names.cut(
        str(base.get("title", "the base")) if isinstance(base, dict) else "the base", LONGEST_NAME
    )
    return f"{fmt.text(fact.value, Unit.RATIO_CHANGE)} against {against}"


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
    short = kernel_names.labels((str(cell) for cell in cells if cell is not None), LONGEST_NAME)
    return [None if cell is None else short[str(cell)] for cell in cells]
