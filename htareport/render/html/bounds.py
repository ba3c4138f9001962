"""Upper bounds for the words of a page: reports may come from anywhere, and nothing in one may make the page endless.

Tables and charts have their own (`fit`). What is cut ends in an ellipsis, and lists say how many items they leave out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from htareport.render import kernel_names
from htareport.report import Chart, Column, Fact, Report, Section, Table
from htareport.report.findings import Finding

MOST_CHARTS, MOST_TABLES = 300, 300  # Of a report; more are not drawn.
_MOST_SECTIONS = 150
_MOST_NOTES, _MOST_LINES, _MOST_WARNINGS = 20, 40, 105
_TITLE, _LINE, _PARAGRAPH = 200, 600, 1500
_LABEL = 100
_MOST_PLACES, _PLACE = 5, 200
_HELP_OF_ALL = 300_000  # Characters, shared by the sections.
_TOLD_OF_ALL = 150_000


def bounded(report: Report) -> Report:
    """Return the report with the words and lists that a page has room for; tables and charts stay whole."""
    sections = report.sections[:_MOST_SECTIONS]
    help_, notes = (room // max(len(sections), 1) for room in (_HELP_OF_ALL, _TOLD_OF_ALL))
    unsaid = len(report.sections) - len(sections)
    warnings = listed([_line(warning) for warning in report.warnings], _MOST_WARNINGS, "warning")
    if unsaid:
        warnings = [f"{unsaid:,} more sections did not fit into this file; the JSON has them.", *warnings]
    return Report(
        _end(report.title, _TITLE), _end(report.verdict, _PARAGRAPH), report.meta, tuple(warnings),
        tuple(_section(section, help_, notes) for section in sections),
    )  # fmt: skip


def listed(items: Sequence[str], most: int, what: str) -> list[str]:
    """Return the first items, and a sentence that says how many more there are."""
    left = len(items) - most
    more = [f"{left:,} more {what}{'' if left == 1 else 's'} in the JSON."] if left > 0 else []
    return [*items[:most], *more]


def _section(section: Section, help_: int, notes: int) -> Section:
    told = listed([_line(note) for note in section.notes], _MOST_NOTES, "note")
    while len(told) > 1 and sum(map(len, told)) > notes:
        told = listed(told, len(told) // 2, "note")
    return replace(
        section,
        title=_end(section.title, _TITLE),
        group=_end(section.group, _LABEL),
        help=_end(section.help, min(help_, 12_000)),
        reason=_end(section.reason, _PARAGRAPH),
        notes=tuple(told),
        facts=tuple(map(_fact, section.facts)),
        findings=tuple(map(finding, section.findings)),
        charts=tuple(map(_chart, section.charts)),
        tables=tuple(_table(table) for table in section.tables if not table.spec.is_data),
    )


def _fact(fact: Fact) -> Fact:
    return replace(fact, label=_end(fact.label, _LABEL), detail=_line(fact.detail), help=_end(fact.help, _PARAGRAPH))


def finding(found: Finding) -> Finding:
    """Return a finding with the words that there is room for."""
    return replace(
        found,
        code=_end(found.code, _LABEL),
        title=_line(found.title),
        evidence=_end(found.evidence, _PARAGRAPH),
        advice=_end(found.advice, _PARAGRAPH),
        confidence=_end(found.confidence, _LABEL),
        assumption=_end(found.assumption, _PARAGRAPH),
        verify=_end(found.verify, _PARAGRAPH),
        snippet=_end(found.snippet, _PARAGRAPH),
        spans=tuple(replace(span, name=kernel_names.cut(span.name, _PLACE)) for span in found.spans[:_MOST_PLACES]),
    )


def _chart(chart: Chart) -> Chart:
    return replace(
        chart,
        title=_end(chart.title, _TITLE),
        caption=_line(chart.caption),
        x_label=_end(chart.x_label, _LABEL),
        y_label=_end(chart.y_label, _LABEL),
        lines=chart.lines[:_MOST_LINES],
    )


def _table(table: Table) -> Table:
    spec = table.spec
    columns = tuple(map(_column, spec.columns))
    return replace(
        table,
        spec=replace(spec, title=_end(spec.title, _TITLE), help=_end(spec.help, _PARAGRAPH), columns=columns),
        note=_line(table.note),
    )


def _column(column: Column) -> Column:
    return replace(column, label=_end(column.label, _LABEL), help=_line(column.help))


def _end(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _line(text: str) -> str:
    return kernel_names.cut(text, _LINE)
