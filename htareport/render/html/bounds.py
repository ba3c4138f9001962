"""Limits for the texts of a page, since a report may come from anywhere and its page must not grow without end.

Tables and charts have their own limits (`fit`). A text that is cut ends in an ellipsis; a list says how many it leaves
out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from htareport.render.kernel_names import cut, cut_end
from htareport.report import Chart, Column, Fact, Report, Section, Table
from htareport.report.findings import Finding

MAX_CHARTS, MAX_TABLES = 300, 300  # Of a report; more are not drawn.
_MAX_SECTIONS = 150
_MAX_NOTES, _MAX_LINES, _MAX_WARNINGS = 20, 40, 105
_MAX_TITLE, _MAX_LINE, _MAX_PARAGRAPH = 200, 600, 1500
_MAX_LABEL = 100
_MAX_SPANS, _MAX_SPAN_NAME = 5, 200
_MAX_TOTAL_HELP = 300_000  # Characters, shared by the sections.
_MAX_TOTAL_NOTES = 150_000


def bounded(report: Report) -> Report:
    """Return the report with texts and lists cut to what a page can hold; tables and charts stay as they are."""
    sections = report.sections[:_MAX_SECTIONS]
    max_help, max_notes = (characters // max(len(sections), 1) for characters in (_MAX_TOTAL_HELP, _MAX_TOTAL_NOTES))
    num_left_out = len(report.sections) - len(sections)
    warnings = _listed([_line(warning) for warning in report.warnings], _MAX_WARNINGS, "warning")
    if num_left_out:
        warnings = [f"{num_left_out:,} more sections did not fit into this file; the JSON has them.", *warnings]
    return Report(
        cut_end(report.title, _MAX_TITLE), cut_end(report.verdict, _MAX_PARAGRAPH), report.meta, tuple(warnings),
        tuple(_section(section, max_help, max_notes) for section in sections),
    )  # fmt: skip


def _listed(items: Sequence[str], max_items: int, noun: str) -> list[str]:
    """Return the first items, and a sentence that says how many more there are."""
    num_more = len(items) - max_items
    more = [f"{num_more:,} more {noun}{'' if num_more == 1 else 's'} in the JSON."] if num_more > 0 else []
    return [*items[:max_items], *more]


def _section(section: Section, max_help: int, max_notes: int) -> Section:
    notes = _listed([_line(note) for note in section.notes], _MAX_NOTES, "note")
    while len(notes) > 1 and sum(map(len, notes)) > max_notes:
        notes = _listed(notes, len(notes) // 2, "note")
    return replace(
        section,
        title=cut_end(section.title, _MAX_TITLE),
        group=cut_end(section.group, _MAX_LABEL),
        help=cut_end(section.help, min(max_help, 12_000)),
        reason=cut_end(section.reason, _MAX_PARAGRAPH),
        notes=tuple(notes),
        facts=tuple(map(_fact, section.facts)),
        findings=tuple(map(finding, section.findings)),
        charts=tuple(map(_chart, section.charts)),
        tables=tuple(_table(table) for table in section.tables if not table.spec.is_data),
    )


def _fact(fact: Fact) -> Fact:
    return replace(
        fact, label=cut_end(fact.label, _MAX_LABEL), detail=_line(fact.detail), help=cut_end(fact.help, _MAX_PARAGRAPH)
    )


def finding(finding: Finding) -> Finding:
    """Return a finding with its texts cut to what a page can hold."""
    return replace(
        finding,
        code=cut_end(finding.code, _MAX_LABEL),
        title=_line(finding.title),
        evidence=cut_end(finding.evidence, _MAX_PARAGRAPH),
        advice=cut_end(finding.advice, _MAX_PARAGRAPH),
        confidence=cut_end(finding.confidence, _MAX_LABEL),
        assumption=cut_end(finding.assumption, _MAX_PARAGRAPH),
        verify=cut_end(finding.verify, _MAX_PARAGRAPH),
        snippet=cut_end(finding.snippet, _MAX_PARAGRAPH),
        spans=tuple(replace(span, name=cut(span.name, _MAX_SPAN_NAME)) for span in finding.spans[:_MAX_SPANS]),
    )


def _chart(chart: Chart) -> Chart:
    return replace(
        chart,
        title=cut_end(chart.title, _MAX_TITLE),
        caption=_line(chart.caption),
        x_label=cut_end(chart.x_label, _MAX_LABEL),
        y_label=cut_end(chart.y_label, _MAX_LABEL),
        lines=chart.lines[:_MAX_LINES],
    )


def _table(table: Table) -> Table:
    spec = table.spec
    columns = tuple(map(_column, spec.columns))
    return replace(
        table,
        spec=replace(
            spec, title=cut_end(spec.title, _MAX_TITLE), help=cut_end(spec.help, _MAX_PARAGRAPH), columns=columns
        ),
        note=_line(table.note),
    )


def _column(column: Column) -> Column:
    return replace(column, label=cut_end(column.label, _MAX_LABEL), help=_line(column.help))


def _line(text: str) -> str:
    return cut(text, _MAX_LINE)
