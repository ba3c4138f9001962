"""Reports and sections as cells of a notebook: static pictures and tables, no scripts."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from htareport.render import about, prose, tables
from htareport.render.bounds import bounded
from htareport.render.environment import environment
from htareport.render.html import cards, findings
from htareport.render.svg import svg
from htareport.report import Report, Section, Status

_ROWS = 20


@dataclass(frozen=True, slots=True)
class _Cell:
    section: Section
    help: prose.Help
    pictures: tuple[Markup, ...]
    tables: tuple[tuple[tables.Source, list[tables.Row]], ...]


def section_html(section: Section) -> str:
    """Return one section as HTML."""
    return environment().get_template("notebook.html.j2").render(report=None, cells=[_cell(section)], missing=[])


def notebook_html(report: Report) -> str:
    """Return a whole report as HTML."""
    report = bounded(report)
    shown = [section for section in report.sections if section.status is not Status.NOT_APPLICABLE]
    return environment().get_template("notebook.html.j2").render(
        report=report, chips=about.chips(report), cards=cards(report.sections), findings=findings(report.sections),
        cells=[_cell(section) for section in shown],
        missing=[section for section in report.sections if section.status is Status.NOT_APPLICABLE],
    )  # fmt: skip


def _cell(section: Section) -> _Cell:
    pictures = tuple(Markup(svg(chart, xmlns=False)) for chart in section.charts)  # noqa: S704  it escapes what it shows
    sources = (tables.Source(table, "") for table in section.tables if not table.spec.is_data)
    heads = tuple((source, source.rows(_ROWS)) for source in sources if source.is_telling)
    return _Cell(section, prose.split_help(section.help), pictures, heads)
