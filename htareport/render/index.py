"""The index page over many reports: the runs by date, the trend of their key numbers, and a link to each report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pandas as pd
from markupsafe import Markup

from htareport._version import __version__
from htareport.render import about, highlights, kernel_names
from htareport.render.charts import palette
from htareport.render.charts import ticks as fmt
from htareport.render.charts.svg import svg
from htareport.render.environment import environment, source
from htareport.render.html import plotly_bundle
from htareport.report import Chart, Fact, Mark, Report, Unit

WIDTH = 520
_SHARES = {"compute_share": "computing", "exposed_comm_share": "exposed communication", "idle_share": "idle"}
_TIMES = {"step_time": "Step time", "device_span": "GPU time"}
_LABEL_BY_FACT = _TIMES | {name: label.capitalize() for name, label in _SHARES.items()}
_MIN_RUNS = 2  # For a trend.
_MAX_LISTED = 50
_CSS = """
.index{max-width:1200px;margin:0 auto;padding:16px 20px 60px}
.index h1{font-size:23px;color:inherit}
td.long{text-align:left;white-space:normal;min-width:220px;max-width:360px;overflow-wrap:anywhere}
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One run: its report, the path to open (relative to the page), and its date."""

    report: Report
    path: str
    date: datetime | None
    is_file_date: bool = False  # When the file was written, where the trace does not say when it was recorded.

    def fact(self, name: str) -> Fact | None:
        """Return a key number that has a value."""
        facts = (fact for section in self.report.sections for fact in section.facts)
        return next((fact for fact in facts if fact.name == name and fact.value is not None), None)


@dataclass(frozen=True, slots=True)
class Cell:
    """The text of a cell, and the key by which the column is sorted."""

    text: str
    key: float | str | None = None


def started(report: Report) -> datetime | None:
    """Return when a run was recorded, if its report says so."""
    start = str(report.meta.get("start") or "").strip().removesuffix(" UTC")
    try:
        date = datetime.fromisoformat(start)
    except ValueError:
        return None
    return date.replace(tzinfo=UTC) if date.tzinfo is None else date.astimezone(UTC)


def index(runs: Sequence[Run], *, title: str, created: datetime, damaged: Sequence[tuple[str, str]] = (),
          other_files: Sequence[str] = ()) -> str:  # fmt: skip
    """Return the page. `damaged` are files that cannot be read, with the reason; `other_files` are no reports."""
    oldest = datetime.min.replace(tzinfo=UTC)
    ordered = sorted(runs, key=lambda run: (run.date or oldest, run.path))
    script = source("index.js")
    css = source("report.css") + palette.css() + _CSS
    policy = (
        f"default-src 'none'; script-src {plotly_bundle.csp_hash(script)}; style-src {plotly_bundle.csp_hash(css)}; "
        "base-uri 'none'; form-action 'none'"
    )
    return environment().get_template("index.html.j2").render(
        title=title, policy=policy, css=Markup(css), script=Markup(script), version=__version__,  # noqa: S704  our own
        created=f"{created:%Y-%m-%d %H:%M} UTC", runs=len(ordered), columns=_columns(ordered), rows=_rows(ordered),
        charts=[(chart, Markup(svg(chart, WIDTH, xmlns=False))) for chart in trends(ordered)],  # noqa: S704  it escapes
        crossings=crossings(ordered)[:_MAX_LISTED],
        damaged=damaged[:_MAX_LISTED], more_damaged=max(0, len(damaged) - _MAX_LISTED),
        other_files=other_files[:_MAX_LISTED], more_files=max(0, len(other_files) - _MAX_LISTED),
        has_file_dates=any(run.is_file_date for run in ordered),
    ).encode("utf-8", "replace").decode()  # fmt: skip


def trends(runs: Sequence[Run]) -> list[Chart]:
    """Return the charts over the runs, oldest first; those of which fewer than two runs have a number are left out."""
    charts = []
    times = _points(runs, {"step_time": "step time"})
    if len(times) >= _MIN_RUNS:
        charts.append(Chart("step_time", "Step time", Mark.LINE, times, "run", "value", x_label="run",
                          y_label="step time", caption="Runs by date; their numbers stand in the table."))  # fmt: skip
    shares = _points(runs, _SHARES)
    if shares["run"].nunique() >= _MIN_RUNS:
        charts.append(Chart("shares", "Where the time goes", Mark.LINE, shares, "run", "value", "part", x_label="run",
                          y_label="share of the time", y_unit=Unit.RATIO,
                          caption="Shares of step time; of all that was recorded in runs without steps."))  # fmt: skip
    return charts


def _points(runs: Sequence[Run], label_by_fact: dict[str, str]) -> pd.DataFrame:
    points = [(number, label, fact.value) for name, label in label_by_fact.items()
             for number, run in enumerate(runs, 1) if (fact := run.fact(name))]  # fmt: skip
    return pd.DataFrame(points, columns=["run", "part", "value"])


def _columns(runs: Sequence[Run]) -> list[tuple[str, bool]]:
    """Return the columns: label, and whether it is text."""
    fact_labels = [_LABEL_BY_FACT[name] for name in _fact_names(runs)]
    if "Step time" in fact_labels:
        fact_labels.insert(fact_labels.index("Step time") + 1, "Change")
    texts = {"Date", "Report", "Gates"}
    gates = ["Gates"] if _has_gates(runs) else []
    return [
        (label, label in texts)
        for label in ("Run", "Date", "Report", "Ranks", "Steps", *fact_labels, *gates, "Warnings")
    ]


def _fact_names(runs: Sequence[Run]) -> list[str]:
    return [name for name in _LABEL_BY_FACT if any(run.fact(name) for run in runs)]


def _rows(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the rows of the table, newest first; a change is against the last run before that has a step time."""
    facts, has_gates, rows, previous_time = _fact_names(runs), _has_gates(runs), [], None
    for number, run in enumerate(runs, 1):
        cells = [_count(run.report.meta.get("num_ranks")), _count(_steps(run.report))]
        for name in facts:
            fact = run.fact(name)
            cells.append(Cell(highlights.value(fact), fact.value) if fact else Cell(fmt.MISSING))
            if name == "step_time":
                cells.append(_change(previous_time, fact.value if fact else None))
                previous_time = fact.value if fact else previous_time
        if has_gates:
            cells.append(_gates(run.report))
        cells.append(_count(len(run.report.warnings)))
        rows.append({"number": number, "date": _date(run), "cells": cells, "title": highlights.title(run.report),
                     "href": run.path if "://" in run.path else quote(run.path, safe="/"), "path": run.path,
                     "devices": _devices(run.report)})  # fmt: skip
    return rows[::-1]


def _has_gates(runs: Sequence[Run]) -> bool:
    return any(highlights.gates(run.report) for run in runs)


def _gates(report: Report) -> Cell:
    """Return how many of a run's gates did not pass."""
    states = [state for _, state, _ in highlights.gates(report)]
    not_passed = [f"{states.count(state)} {state}" for state in ("crossed", "inconclusive") if state in states]
    return Cell(", ".join(not_passed) or ("passed" if states else fmt.MISSING), states.count("crossed"))


def crossings(runs: Sequence[Run]) -> list[str]:
    """Return for each gate that was crossed which run (oldest first) did so first, and whether the latest does."""
    sentences = []
    for gate in dict.fromkeys(gate for run in runs for gate, _, _ in highlights.gates(run.report)):
        states = [(number, run, state) for number, run in enumerate(runs, 1)
                  for other_gate, state, _ in highlights.gates(run.report) if other_gate == gate]  # fmt: skip
        first = next(((number, run) for number, run, state in states if state == "crossed"), None)
        if first:
            number, run = first
            latest = "crosses it" if states[-1][2] == "crossed" else "does not"
            date = f" ({_date(run).text})" if run.date else ""
            label = kernel_names.cut(gate, highlights.MAX_TITLE)
            sentences.append(f"{label}: first crossed by run {number}{date}, and the latest {latest}")
    return sentences


def _steps(report: Report) -> Any:
    steps = report.meta.get("steps")
    return steps.get("count") if isinstance(steps, Mapping) else None


def _devices(report: Report) -> str:
    return next((entry.text for entry in about.entries(report) if entry.term == "Devices"), "")


def _count(value: Any) -> Cell:
    is_number = type(value) in {int, float}
    return Cell(fmt.text(value, Unit.COUNT), value) if is_number else Cell(fmt.MISSING)


def _change(previous: float | None, current: float | None) -> Cell:
    if not previous or current is None:
        return Cell(fmt.MISSING)
    change = current / previous - 1
    return Cell(fmt.text(change, Unit.RATIO_CHANGE), change)


def _date(run: Run) -> Cell:
    if run.date is None:
        return Cell(fmt.MISSING)
    return Cell(f"{run.date:%Y-%m-%d %H:%M}{' *' if run.is_file_date else ''}", run.date.timestamp())
