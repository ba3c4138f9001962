"""The sections of a report as the page shows them: charts drawn, tables ready, and a line on what is left out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from markupsafe import Markup

from htareport.render import findings, kernel_names, prose
from htareport.render.charts import plotly
from htareport.render.charts import ticks as fmt
from htareport.render.charts.draw import picture_of
from htareport.render.charts.picture import Picture
from htareport.render.charts.svg import WIDTH, draw
from htareport.render.html import bounds
from htareport.render.html.tables import Source
from htareport.report import Chart, Mark, Report, Section, Status, Unit
from htareport.report.json_codec import column_values

WIDE = 1036
_MIN_MARKS = 2  # A chart with fewer says no more than a number.
_MAX_NARROW_NAME = 40
_MIN_WIDE_MARKS, _MIN_WIDE_ROWS = 24, 8  # A chart that is alone in its row fills it from so many on.
_MAX_SLUG = 80
_CATEGORY_MARKS = {Mark.BAR, Mark.STACKED_BAR, Mark.BOX, Mark.RANGE}  # Marks over categories.
_PACKING_RATIO = 6  # Bytes of a Plotly chart's data, to one that is packed.


@dataclass(frozen=True, slots=True)
class Figure:
    """One chart on the page: its SVG, and what Plotly needs (None: it stays an SVG)."""

    id: str
    chart: Chart
    svg: Markup
    is_wide: bool
    spec: dict[str, Any] | None

    @property
    def size(self) -> int:
        """About how many bytes it takes, rather too many than too few."""
        words = len(self.chart.title.encode()) + len(self.chart.caption.encode()) + 400
        return len(self.svg.encode()) + 2 * words + (len(orjson.dumps(self.spec)) // _PACKING_RATIO if self.spec else 0)


@dataclass(frozen=True, slots=True)
class PageSection:
    """One section on the page, with a sentence on what was empty, and how much did not fit."""

    section: Section
    id: str
    help: prose.Help
    figures: tuple[Figure, ...]
    sources: tuple[Source, ...]
    untold: str
    charts_left_out: int
    tables_left_out: int
    tables: tuple[Markup, ...] = ()


@dataclass(frozen=True, slots=True)
class Chapter:
    """The sections of one group."""

    id: str
    title: str
    sections: tuple[PageSection, ...]


@dataclass(frozen=True, slots=True)
class Missing:
    """Sections that a run does not have, all for the same reason."""

    reason: str
    sections: tuple[Section, ...]


def page_sections(report: Report) -> list[PageSection]:
    """Return the sections that apply but for the findings, with no more charts and tables than a page can have."""
    charts_left, tables_left, shown_sections = bounds.MAX_CHARTS, bounds.MAX_TABLES, list[PageSection]()
    section_of_findings = findings.findings_section(report)
    for section in report.sections:
        if section.status is not Status.NOT_APPLICABLE and section is not section_of_findings:
            shown_sections.append(_page_section(section, charts_left, tables_left))
            charts_left -= len(shown_sections[-1].figures)
            tables_left -= min(tables_left, len(section.tables))
    return shown_sections


def chapters(sections: Iterable[PageSection]) -> list[Chapter]:
    """Return the sections by group."""
    groups: dict[str, list[PageSection]] = {}
    for section in sections:
        groups.setdefault(section.section.group, []).append(section)
    return [Chapter(f"chapter-{slug(title)}", title, tuple(group)) for title, group in groups.items()]


def missing(report: Report) -> list[Missing]:
    """Return the sections that do not apply, by reason."""
    reasons: dict[str, list[Section]] = {}
    for section in report.sections:
        if section.status is Status.NOT_APPLICABLE:
            reasons.setdefault(section.reason or "it does not apply to this run", []).append(section)
    return [Missing(reason, tuple(sections)) for reason, sections in reasons.items()]


def slug(text: str) -> str:
    """Return text as part of an id: letters, digits, hyphens and underscores."""
    return re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-")[:_MAX_SLUG] or "x"


def _page_section(section: Section, max_charts: int, max_tables: int) -> PageSection:
    prefix = f"table-{slug(section.name)}-"
    sources = [Source(table, prefix + slug(table.spec.name)) for table in section.tables[:max_tables]]
    shown_tables = tuple(source for source in sources if source.has_content)
    pictures = [picture_of(chart) for chart in section.charts[:max_charts]]
    min_marks = _MIN_MARKS if any(not source.table.spec.is_detail for source in shown_tables) else 1
    shown_pictures = [picture for picture in pictures if picture.num_marks >= min_marks]
    figures = zip(shown_pictures, _are_wide(shown_pictures), strict=True)
    return PageSection(
        section,
        f"section-{slug(section.name)}",
        prose.split_help(section.help),
        tuple(_figure(section, picture, is_wide=is_wide) for picture, is_wide in figures),
        shown_tables,
        _left_out_sentence(sources, [picture.chart.title for picture in pictures if not picture.num_marks]),
        max(0, len(section.charts) - max_charts),
        max(0, len(section.tables) - max_tables),
    )


def _left_out_sentence(sources: Iterable[Source], empty_charts: Iterable[str]) -> str:
    """Return in a sentence which tables and charts are left out because they are empty; empty where there are none."""
    left_out = [source for source in sources if not source.has_content]
    no_rows = [source.table.spec for source in left_out if not source.num_rows]
    titles_by_reason = {
        "no rows": [spec.title for spec in no_rows if not spec.is_detail],
        "only zeros": [source.table.spec.title for source in left_out if source.num_rows],
        "no data": list(empty_charts),
    }
    texts = [f"{title} ({reason})" for reason, titles in titles_by_reason.items() for title in dict.fromkeys(titles)]
    return f"Left out: {'; '.join(texts)}." if texts else ""


def _are_wide(pictures: Sequence[Picture]) -> list[bool]:
    """Return for each chart whether it takes a whole row: where it needs it, or is alone in its row and fills it."""
    is_wide = [_needs_width(picture.chart) for picture in pictures]
    if is_wide.count(False) == 1:
        index = is_wide.index(False)
        picture = pictures[index]
        is_wide[index] = picture.num_marks >= _MIN_WIDE_MARKS or len(picture.base.labels) >= _MIN_WIDE_ROWS
    return is_wide


def _figure(section: Section, picture: Picture, *, is_wide: bool) -> Figure:
    chart = picture.chart
    width = WIDE if is_wide else WIDTH
    markup = Markup(draw(picture, width, xmlns=False, captioned=True))  # noqa: S704  it escapes what it shows
    spec = plotly.figure_spec(picture, width) if picture.num_marks >= _MIN_MARKS else None
    return Figure(f"fig-{slug(section.name)}-{slug(chart.name)}", chart, markup, is_wide, spec)


def _needs_width(chart: Chart) -> bool:
    """Whether a chart needs a whole row: time lines, and those whose categories have long names."""
    along_x = chart.mark in {Mark.BOX, Mark.STACKED_BAR}
    column, unit = (chart.x, chart.x_unit) if along_x else (chart.y, chart.y_unit)
    if chart.mark in _CATEGORY_MARKS and unit.is_text and column in chart.frame.columns:
        texts = [fmt.text(value, unit) for value in column_values(chart.frame[column])]
        return any(len(kernel_names.short(text) if unit is Unit.NAME else text) > _MAX_NARROW_NAME for text in texts)
    return chart.mark is Mark.TIMELINE
