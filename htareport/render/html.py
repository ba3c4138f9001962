"""The report as one HTML file that opens from disk, asks the network for nothing, and works without scripts.

Figures are SVG at first; the page's script swaps in Plotly when one is scrolled into view. Tables have their first rows
as markup and all rows as packed data. A policy by hash allows exactly the page's own scripts and style.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import orjson
from markupsafe import Markup

from htareport.codec import column_values
from htareport.render import about, bounds, bundle, names, palette, plotly, prose, tables
from htareport.render.environment import environment, source
from htareport.render.fit import Fitter, Plan
from htareport.render.picture import picture
from htareport.render.svg import WIDTH, draw
from htareport.render.tables import Source
from htareport.report import Chart, Column, Fact, Finding, Mark, Report, Section, Status, Table, Unit

LIMIT = 2_500_000  # Bytes of the whole file.
WIDE = 1064
_MOST_CARDS = 8
_MOST_FINDINGS = 50
_LEAST_MARKS = 2  # A figure with fewer has nothing to zoom into.
_MOST_FILES = 200
_LONG_NAME = 40
_LONGEST_SLUG = 80
_DETAIL_ROWS = 10  # As markup, of tables that are shown on demand.
_DEFINITIONS = 150_000  # Characters.
_PACKED = 6  # Of so many bytes of a live chart's data about one is left when they are packed.
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

    @property
    def size(self) -> int:
        """About how many bytes it takes, rather too many than too few."""
        words = len(self.chart.title.encode()) + len(self.chart.caption.encode()) + 400
        return len(self.svg.encode()) + 2 * words + (len(orjson.dumps(self.spec)) // _PACKED if self.spec else 0)


@dataclass(frozen=True, slots=True)
class Part:
    """One section on the page, its tables ready; how many charts and tables did not fit."""

    section: Section
    id: str
    help: prose.Help
    figures: tuple[Figure, ...]
    tables: tuple[Markup, ...] = ()
    charts_left_out: int = 0
    tables_left_out: int = 0


@dataclass(frozen=True, slots=True)
class Chapter:
    """The sections of one group."""

    id: str
    title: str
    parts: tuple[Part, ...]


def html(report: Report, *, plotlyjs: str | Path | None = None) -> str:
    """Return the page. Equal reports give equal text, of no more than LIMIT bytes in UTF-8.

    UsageError where `plotlyjs` names a file that cannot be read; OutputError where not even the words of the report
    fit.
    """
    bundle.prepare(plotlyjs)
    page = _Page(bounds.bounded(report), bundle.load(plotlyjs))
    charts = {figure.id: figure.size for part in page.parts for figure in part.figures}
    return Fitter(LIMIT, page.sources, charts, page.render, page.weigh).page().decode()


class _Page:
    """Renders one report as a plan says."""

    def __init__(self, report: Report, script: bundle.Bundle) -> None:
        self.report, self.script = report, script
        self.parts = _parts(report)
        every = [(part, table) for part in self.parts for table in part.section.tables][: bounds.MOST_TABLES]
        named = [(part.id, Source(table, _table_id(part.section, table))) for part, table in every]
        self.sources = [source for _, source in named]
        self.of_part = {part.id: [source for at, source in named if at == part.id] for part in self.parts}
        self.app = "\n".join(source(name) for name in ("report.js", "table.js"))
        self.css = source("report.css") + palette.css()
        self.policy = _policy(self.app, self.css, script)
        self.definitions = _definitions(self.parts)
        self._rows: dict[tuple[int, int], dict[str, list[tables.Row]]] = {}
        self._bodies: dict[tuple[int, int, frozenset[str]], dict[str, Markup]] = {}
        self._figures: tuple[frozenset[str], str] | None = None

    def render(self, plan: Plan) -> bytes:
        """Return the page."""
        bodies, rows = self._tables(plan)
        views = {
            source.id: source.view(
                rows[source.id], plan.rows.get(source.id, source.most_packed), plan.longest, told=plan.told
            )
            for source in self.sources
            if source.id not in plan.no_tables
        }
        parts = [self._filled(part, plan, views, bodies) for part in self.parts]
        figures = self._packed_figures(plan)
        missing = [s for s in self.report.sections if s.status is Status.NOT_APPLICABLE]
        text: str = environment().get_template("report.html.j2").render(
            report=self.report, policy=self.policy, css=Markup(self.css), app=Markup(self.app), early=Markup(_EARLY),  # noqa: S704
            chips=about.chips(self.report), window=about.window(self.report), version=about.version(self.report),
            cards=cards(self.report.sections), findings=findings(self.report.sections), most_findings=_MOST_FINDINGS,
            chapters=_chapters(parts), missing=missing, entries=about.entries(self.report),
            files=about.files(self.report), most_files=_MOST_FILES, left_out=about.left_out(self.report),
            definitions=self.definitions,
            blocks=[(view.id, Markup(view.packed)) for view in views.values() if view.packed],  # noqa: S704
            figures=Markup(figures), plotly=self.script if figures else None,  # noqa: S704
        )  # fmt: skip
        return text.encode()

    def weigh(self, plan: Plan) -> int:
        """Return how many bytes the tables' rows have at least."""
        return sum(row.weight for rows in self._all_rows(plan).values() for row in rows)

    def _all_rows(self, plan: Plan) -> dict[str, list[tables.Row]]:
        """Return every table's rows as markup, not linked."""
        at = (plan.static, plan.longest)
        if at not in self._rows:
            self._rows = {at: {one.id: one.rows(_static(one, plan), plan.longest) for one in self.sources}}
        return self._rows[at]

    def _tables(self, plan: Plan) -> tuple[dict[str, Markup], dict[str, list[tables.Row]]]:
        """Return every table's rows, as markup and as values."""
        rows = {name: each for name, each in self._all_rows(plan).items() if name not in plan.no_tables}
        at = (plan.static, plan.longest, frozenset(plan.no_tables))
        if at not in self._bodies:
            columns = {one.id: one.columns for one in self.sources}
            body = environment().get_template("table.html.j2").module.rows_of  # type: ignore[attr-defined]
            linked = zip(rows, tables.linked(rows.values()), strict=True)
            self._bodies = {at: {name: body(each, columns[name]) for name, each in linked}}
        return self._bodies[at], rows

    def _filled(self, part: Part, plan: Plan, views: dict[str, tables.View], bodies: dict[str, Markup]) -> Part:
        table_of = environment().get_template("table.html.j2").module.table_of  # type: ignore[attr-defined]
        shown = [views[one.id] for one in self.of_part[part.id] if one.id in views]
        figures = tuple(figure for figure in part.figures if figure.id not in plan.no_charts)
        return replace(
            part,
            figures=figures,
            tables=tuple(table_of(view, bodies[view.id]) for view in shown),
            charts_left_out=len(part.section.charts) - len(figures),
            tables_left_out=len(part.section.tables) - len(shown),
        )

    def _packed_figures(self, plan: Plan) -> str:
        """Return what Plotly needs for the charts that are on the page."""
        at = frozenset(plan.no_charts)
        if self._figures is None or self._figures[0] != at:
            every = (figure for part in self.parts for figure in part.figures if figure.id not in at)
            live = {figure.id: figure.spec for figure in every if figure.spec is not None}
            data = {"dark": palette.dark_of_light(), "figures": live}
            self._figures = at, bundle.pack(orjson.dumps(data)) if live else ""
        return self._figures[1]


def _static(one: Source, plan: Plan) -> int:
    return min(plan.static, _DETAIL_ROWS) if one.table.spec.is_detail else plan.static


def _table_id(section: Section, table: Table) -> str:
    return f"table-{slug(section.name)}-{slug(table.spec.name)}"


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
    return re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-")[:_LONGEST_SLUG] or "x"


def _parts(report: Report) -> list[Part]:
    room, parts = bounds.MOST_CHARTS, list[Part]()
    for section in report.sections:
        if section.status is not Status.NOT_APPLICABLE:
            parts.append(_part(section, room))
            room -= len(parts[-1].figures)
    return parts


def _part(section: Section, most: int) -> Part:
    charts = section.charts[:most]
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
    markup = Markup(draw(made, WIDE if is_wide else WIDTH, xmlns=False, captioned=True))  # noqa: S704  it escapes what it shows
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
    """Return by section the columns that have a definition, as many as there is room for."""
    pairs = [(part.section.title, tables.used_columns(list(part.section.tables))) for part in parts]
    told = accumulate(sum(len(c.label) + len(c.help) for c in columns) for _, columns in pairs)
    return [pair for pair, size in zip(pairs, told, strict=True) if pair[1] and size <= _DEFINITIONS]
