"""The sections of a report as the page shows them: their charts drawn, and what of them is not shown told in a line."""

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
_LEAST_MARKS = 2  # A chart with fewer says no more than a number.
_LONG_NAME = 40
_MANY_MARKS, _MANY_ROWS = 24, 8  # From so many on, a chart with nobody beside it fills a row.
_LONGEST_SLUG = 80
_NAMED = {Mark.BAR, Mark.STACKED_BAR, Mark.BOX, Mark.RANGE}  # Marks over categories.
_PACKED = 6  # Of so many bytes of a live chart's data about one is left when they are packed.


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
        return len(self.svg.encode()) + 2 * words + (len(orjson.dumps(self.spec)) // _PACKED if self.spec else 0)


@dataclass(frozen=True, slots=True)
class Part:
    """One section on the page, its tables ready; what of it says nothing, and how much did not fit."""

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
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Missing:
    """Sections that a run does not have, all for the same reason."""

    reason: str
    sections: tuple[Section, ...]


def parts(report: Report) -> list[Part]:
    """Return the sections that apply, with no more charts and tables than a page can have.

    That of the findings is not among them: it stands on the page in its own way.
    """
    charts, tables, made = bounds.MOST_CHARTS, bounds.MOST_TABLES, list[Part]()
    advice = findings.section_of(report)
    for section in report.sections:
        if section.status is not Status.NOT_APPLICABLE and section is not advice:
            made.append(_part(section, charts, tables))
            charts -= len(made[-1].figures)
            tables -= min(tables, len(section.tables))
    return made


def chapters(given: Iterable[Part]) -> list[Chapter]:
    """Return the sections by group."""
    groups: dict[str, list[Part]] = {}
    for part in given:
        groups.setdefault(part.section.group, []).append(part)
    return [Chapter(f"chapter-{slug(title)}", title, tuple(held)) for title, held in groups.items()]


def missing(report: Report) -> list[Missing]:
    """Return the sections that do not apply, by reason."""
    reasons: dict[str, list[Section]] = {}
    for section in report.sections:
        if section.status is Status.NOT_APPLICABLE:
            reasons.setdefault(section.reason or "it does not apply to this run", []).append(section)
    return [Missing(reason, tuple(sections)) for reason, sections in reasons.items()]


def slug(text: str) -> str:
    """Return text as part of an id: letters, digits, hyphens and underscores."""
    return re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-")[:_LONGEST_SLUG] or "x"


def _part(section: Section, most_charts: int, most_tables: int) -> Part:
    tables = [Source(t, f"table-{slug(section.name)}-{slug(t.spec.name)}") for t in section.tables[:most_tables]]
    told = tuple(source for source in tables if source.is_telling)
    pictures = [picture_of(chart) for chart in section.charts[:most_charts]]
    least = _LEAST_MARKS if any(not source.table.spec.is_detail for source in told) else 1
    shown = [made for made in pictures if made.num_marks >= least]
    return Part(
        section,
        f"section-{slug(section.name)}",
        prose.split_help(section.help),
        tuple(_figure(section, made, is_wide=is_wide) for made, is_wide in zip(shown, _wide(shown), strict=True)),
        told,
        _untold(tables, [made.chart.title for made in pictures if not made.num_marks]),
        max(0, len(section.charts) - most_charts),
        max(0, len(section.tables) - most_tables),
    )


def _untold(tables: Iterable[Source], empty_charts: Iterable[str]) -> str:
    """Return in a sentence which tables and charts are not shown since they would say nothing, and why."""
    silent = [source for source in tables if not source.is_telling]
    empty = [source.table.spec.title for source in silent if not (source.num_rows or source.table.spec.is_detail)]
    zeros = [source.table.spec.title for source in silent if source.num_rows]
    whys = {"no rows": empty, "only zeros": zeros, "no data": list(empty_charts)}
    told = [f"{title} ({why})" for why, titles in whys.items() for title in dict.fromkeys(titles)]
    return f"Left out: {'; '.join(told)}." if told else ""


def _wide(pictures: Sequence[Picture]) -> list[bool]:
    """Return for each chart whether it takes a whole row: where it needs it, or fills it and none is beside it."""
    wide = [_needs_width(made.chart) for made in pictures]
    if wide.count(False) == 1:
        alone = wide.index(False)
        wide[alone] = pictures[alone].num_marks >= _MANY_MARKS or len(pictures[alone].base.labels) >= _MANY_ROWS
    return wide


def _figure(section: Section, made: Picture, *, is_wide: bool) -> Figure:
    chart = made.chart
    width = WIDE if is_wide else WIDTH
    markup = Markup(draw(made, width, xmlns=False, captioned=True))  # noqa: S704  it escapes what it shows
    spec = plotly.figure_spec(made, width) if made.num_marks >= _LEAST_MARKS else None
    return Figure(f"fig-{slug(section.name)}-{slug(chart.name)}", chart, markup, is_wide, spec)


def _needs_width(chart: Chart) -> bool:
    """Whether a chart is better alone in its row: time lines, and those whose categories have long names."""
    along_x = chart.mark in {Mark.BOX, Mark.STACKED_BAR}
    column, unit = (chart.x, chart.x_unit) if along_x else (chart.y, chart.y_unit)
    if chart.mark in _NAMED and unit.is_text and column in chart.frame.columns:
        texts = [fmt.text(value, unit) for value in column_values(chart.frame[column])]
        return any(len(kernel_names.short(text) if unit is Unit.NAME else text) > _LONG_NAME for text in texts)
    return chart.mark is Mark.TIMELINE
