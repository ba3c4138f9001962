"""The report as one HTML file that opens from disk, asks the network for nothing, and works without scripts.

Figures are SVG at first; the page's script swaps in Plotly when one is scrolled into view. Tables have their first rows
as markup and all rows as packed data. A policy by hash allows exactly the page's own scripts and style.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from markupsafe import Markup

from htareport.codec import column_values
from htareport.render import about, bundle, names, palette, plotly, prose, tables
from htareport.render.environment import environment, source
from htareport.render.picture import picture
from htareport.render.svg import WIDTH, draw
from htareport.report import Chart, Column, Fact, Finding, Mark, Report, Section, Status, Unit

LIMIT = 2_500_000  # Bytes of the whole file.
WIDE = 1064
_MOST_CARDS = 8
_LEAST_MARKS = 2  # A figure with fewer has nothing to zoom into.
_MOST_FILES = 200
_LONG_NAME = 40
_DETAIL_ROWS = 10  # As markup, of tables that are shown on demand.
# Rows as markup, tried in this order; only then rows as data are left out, then the rest of the steps.
_ROOMY, _TIGHT = (50, 30, 20), (20, 10, 5)
_EMPTY_STYLE = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"  # Plotly adds an empty <style> and fills it.
_EARLY = 'document.documentElement.classList.add("js")'


@dataclass(frozen=True, slots=True)
class Figure:
    """One chart on the page: its SVG, and what Plotly needs (None: it stays an SVG)."""

    id: str
    chart: Chart
    svg: Markup
    is_wide: bool
    spec: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Part:
    """One section on the page."""

    section: Section
    id: str
    help: prose.Help
    figures: tuple[Figure, ...]
    tables: tuple[tables.View, ...] = ()


@dataclass(frozen=True, slots=True)
class Chapter:
    """The sections of one group."""

    id: str
    title: str
    parts: tuple[Part, ...]


def html(report: Report, *, plotlyjs: str | Path | None = None) -> str:
    """Return the page. Equal reports give equal text, of no more than LIMIT bytes in UTF-8.

    UsageError where `plotlyjs` names a file that cannot be read.
    """
    bundle.prepare(plotlyjs)
    parts = [_part(section) for section in report.sections if section.status is not Status.NOT_APPLICABLE]
    figures = [figure for part in parts for figure in part.figures]
    page = _Page(report, parts, figures, bundle.load(plotlyjs))
    for static in _ROOMY:
        if len(text := page.render(static, {}).encode()) <= LIMIT:
            return text.decode()
    most: dict[str, int] = {}
    for static in _TIGHT:
        while len(text := page.render(static, most).encode()) > LIMIT:
            if not page.shrink(most, len(text) - LIMIT):
                break
        else:
            return text.decode()
    return text.decode()  # Only a report with hundreds of charts gets here.


class _Page:
    """Renders one report again and again with less in its tables, until it fits."""

    def __init__(self, report: Report, parts: list[Part], figures: list[Figure], script: bundle.Bundle) -> None:
        self.report, self.parts, self.script = report, parts, script
        self.views: list[tables.View] = []
        self.packer = tables.Packer()
        live = {figure.id: figure.spec for figure in figures if figure.spec is not None}
        data = {"dark": palette.dark_of_light(), "figures": live}
        self.figures = bundle.pack(orjson.dumps(data)) if live else ""
        self.app = "\n".join(source(name) for name in ("report.js", "table.js"))
        self.css = source("report.css") + palette.css()
        self.policy = _policy(self.app, self.css, script)

    def render(self, static: int, most: dict[str, int]) -> str:
        """Return the page with `static` rows as markup, and at most so many as data in the tables named in `most`."""
        seen = set[str]()
        parts = [self._with_tables(part, static, most, seen) for part in self.parts]
        self.views = [view for part in parts for view in part.tables]
        missing = [s for s in self.report.sections if s.status is Status.NOT_APPLICABLE]
        return environment().get_template("report.html.j2").render(
            report=self.report, policy=self.policy, css=Markup(self.css), app=Markup(self.app), early=Markup(_EARLY),  # noqa: S704
            chips=about.chips(self.report), window=about.said(self.report.meta.get("window")),
            version=about.said(self.report.meta.get("version")),
            cards=cards(self.report.sections), findings=findings(self.report.sections), chapters=_chapters(parts),
            missing=missing, entries=about.entries(self.report), files=about.files(self.report),
            most_files=_MOST_FILES, left_out=about.left_out(self.report), definitions=_definitions(parts),
            views=self.views, figures=self.figures, plotly=self.script if self.figures else None,
        )  # fmt: skip

    def _with_tables(self, part: Part, static: int, most: dict[str, int], seen: set[str]) -> Part:
        made = []
        for table in part.section.tables:
            table_id = f"table-{slug(part.section.name)}-{slug(table.spec.name)}"
            limit = most.get(table_id)
            shown = min(static, _DETAIL_ROWS) if table.spec.is_detail else static
            made.append(tables.view(table, table_id, seen, self.packer, static=shown, most=limit))
        return Part(part.section, part.id, part.help, part.figures, tuple(made))

    def shrink(self, most: dict[str, int], excess: int) -> bool:
        """Take rows from the largest block of data; False if none has any left."""
        largest = max(self.views, key=lambda view: len(view.packed), default=None)
        if largest is None or not largest.packed:
            return False
        size = len(largest.packed)
        most[largest.id] = int(largest.num_packed * max(0.0, 1 - 1.05 * excess / size)) if size > excess else 0
        return True


def _policy(app: str, css: str, script: bundle.Bundle) -> str:
    """Only these scripts and this style, no connection anywhere; styles in attributes are needed by Plotly."""
    scripts = " ".join(map(bundle.csp_hash, (_EARLY, app)))
    return (
        f"default-src 'none'; script-src {scripts} {script.hash}; "
        f"style-src {bundle.csp_hash(css)} {_EMPTY_STYLE}; style-src-attr 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def slug(text: str) -> str:
    """Return text as part of an id: letters, digits, hyphens and underscores."""
    return re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-") or "x"


def _part(section: Section) -> Part:
    charts = section.charts
    wide = [_needs_width(chart) for chart in charts]
    narrow = [i for i, is_wide in enumerate(wide) if not is_wide]
    if len(narrow) % 2:  # Nobody beside it.
        wide[narrow[-1]] = True
    figures = tuple(_figure(section, chart, is_wide=is_wide) for chart, is_wide in zip(charts, wide, strict=True))
    return Part(section, f"section-{slug(section.name)}", prose.split_help(section.help), figures)


def _needs_width(chart: Chart) -> bool:
    """Whether a chart is better alone in its row: time lines, and those with the long names of kernels."""
    column, unit = (chart.x, chart.x_unit) if chart.mark is Mark.BOX else (chart.y, chart.y_unit)
    if chart.mark in {Mark.BAR, Mark.BOX, Mark.RANGE} and unit is Unit.NAME and column in chart.frame.columns:
        return any(len(names.short(str(name))) > _LONG_NAME for name in column_values(chart.frame[column]))
    return chart.mark is Mark.TIMELINE


def _figure(section: Section, chart: Chart, *, is_wide: bool) -> Figure:
    made = picture(chart)
    markup = Markup(draw(made, WIDE if is_wide else WIDTH, xmlns=False))  # noqa: S704  it escapes what it shows
    spec = plotly.figure_spec(made, WIDE if is_wide else WIDTH) if made.num_marks >= _LEAST_MARKS else None
    return Figure(f"fig-{slug(section.name)}-{slug(chart.name)}", chart, markup, is_wide, spec)


def _chapters(parts: Iterable[Part]) -> list[Chapter]:
    groups: dict[str, list[Part]] = {}
    for part in parts:
        groups.setdefault(part.section.group, []).append(part)
    return [Chapter(f"chapter-{slug(title)}", title, tuple(held)) for title, held in groups.items()]


def cards(sections: Iterable[Section]) -> list[Fact]:
    """Return the key numbers of all sections that have a value, in their order, at most eight."""
    facts = (fact for section in sections for fact in section.facts if fact.value is not None)
    return sorted(facts, key=lambda fact: fact.order)[:_MOST_CARDS]


def findings(sections: Iterable[Section]) -> list[Finding]:
    """Return all findings, what saves most first."""
    every = [finding for section in sections for finding in section.findings]
    return sorted(every, key=lambda finding: -(finding.saving_ns or 0))


def _definitions(parts: Iterable[Part]) -> list[tuple[str, list[Column]]]:
    """Return by section the columns that have a definition."""
    pairs = ((part.section.title, tables.used_columns(list(part.section.tables))) for part in parts)
    return [(title, columns) for title, columns in pairs if columns]
