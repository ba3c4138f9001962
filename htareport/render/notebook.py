"""Reports and sections as cells of a notebook: static pictures and tables, no scripts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from markupsafe import Markup

from htareport.render import about, findings, prose
from htareport.render.charts.svg import svg
from htareport.render.environment import environment
from htareport.render.html import tables
from htareport.render.html.bounds import bounded
from htareport.render.html.page import cards
from htareport.report import Report, Section, Status

_MAX_ROWS = 20
_MAX_FINDINGS = 50


@dataclass(frozen=True, slots=True)
class _Cell:
    section: Section
    help: prose.Help
    pictures: tuple[Markup, ...]
    tables: tuple[tuple[tables.Source, list[tables.Row]], ...]
    findings_cards: tuple[
        findings.Card, ...
    ] = ()  # Of a section that is shown alone; a report has its findings on top.


def cell_html(value: Report | Section) -> str:
    """Return a report or a section as HTML."""
    return notebook_html(value) if isinstance(value, Report) else section_html(value)


def section_html(section: Section) -> str:
    """Return one section as HTML."""
    cell = replace(_cell(section), findings_cards=tuple(findings.cards(section.findings, {})))
    return environment().get_template("notebook.html.j2").render(report=None, cells=[cell], missing=[])


def notebook_html(report: Report) -> str:
    """Return a whole report as HTML."""
    report = bounded(report)
    section_of_findings = findings.findings_section(report)
    shown = [s for s in report.sections if s.status is not Status.NOT_APPLICABLE and s is not section_of_findings]
    return environment().get_template("notebook.html.j2").render(
        report=report, chips=about.chips(report), cards=cards(report.sections),
        told=findings.summary(report, _MAX_FINDINGS),
        cells=[_cell(section) for section in shown],
        missing=[section for section in report.sections if section.status is Status.NOT_APPLICABLE],
    )  # fmt: skip


def _cell(section: Section) -> _Cell:
    pictures = tuple(Markup(svg(chart, xmlns=False)) for chart in section.charts)  # noqa: S704  it escapes what it shows
    sources = (tables.Source(table, "") for table in section.tables if not table.spec.is_data)
    tables_with_rows = tuple((source, source.rows(_MAX_ROWS)) for source in sources if source.has_content)
    return _Cell(section, prose.split_help(section.help), pictures, tables_with_rows)
