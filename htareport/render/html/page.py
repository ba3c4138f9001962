"""The report as one HTML file that opens from disk, asks the network for nothing, and works without scripts.

Figures are SVG at first; the page's script swaps in Plotly when one is scrolled into view. Tables have their first rows
as markup and all rows as packed data. A policy by hash allows exactly the page's own scripts and style.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import orjson
from markupsafe import Markup

from htareport.render import about, findings, prose
from htareport.render.charts import palette
from htareport.render.environment import environment, source
from htareport.render.html import bounds, plotly_bundle, sections, tables
from htareport.render.html.fit import Fitter, Plan
from htareport.render.html.sections import Part
from htareport.render.html.tables import Source
from htareport.report import Column, Fact, Report, Section

LIMIT = 2_500_000  # Bytes of the whole file.
_MOST_CARDS = 8
_MOST_FINDINGS = 50
_MOST_FILES = 200
_DETAIL_ROWS = 10  # As markup, of tables that are shown on demand.
_DEFINITIONS = 150_000  # Characters.
_EMPTY_STYLE = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"  # Plotly adds an empty <style> and fills it.
_EARLY = 'document.documentElement.classList.add("js")'


def html(report: Report, *, plotlyjs: str | Path | None = None) -> str:
    """Return the page. Equal reports give equal text, of no more than LIMIT bytes in UTF-8.

    UsageError where `plotlyjs` names a file that cannot be read; OutputError where not even the words of the report
    fit.
    """
    plotly_bundle.prepare(plotlyjs)
    page = _Page(bounds.bounded(report), plotly_bundle.load(plotlyjs))
    charts = {figure.id: figure.size for part in page.parts for figure in part.figures}
    return Fitter(LIMIT, page.sources, charts, page.render, page.weigh).page().decode()


class _Page:
    """Renders one report as a plan says."""

    def __init__(self, report: Report, script: plotly_bundle.Bundle) -> None:
        self.report, self.script = report, script
        self.parts = sections.parts(report)
        self.sources = [source for part in self.parts for source in part.sources]
        self.app = "\n".join(source(name) for name in ("report.js", "table.js"))
        self.css = source("report.css") + palette.css()
        self.policy = _policy(self.app, self.css, script)
        self.definitions, self.undefined = _definitions(self.parts)
        links = {part.section.name: (part.id, part.section.title) for part in self.parts}
        self.told = findings.told(report, _MOST_FINDINGS, links)
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
        filled = [self._filled(part, plan, views, bodies) for part in self.parts]
        figures = self._packed_figures(plan)
        chapters = sections.chapters(filled)
        text: str = environment().get_template("report.html.j2").render(
            report=self.report, policy=self.policy, css=Markup(self.css), app=Markup(self.app), early=Markup(_EARLY),  # noqa: S704
            chips=about.chips(self.report), window=about.window(self.report), version=about.version(self.report),
            cards=cards(self.report.sections), told=self.told, how=prose.split_help(self.told.how if self.told else ""),
            chapters=chapters,
            before=findings.num_before(self.report, [chapter.parts[0].section.name for chapter in chapters]),
            missing=sections.missing(self.report), entries=about.entries(self.report),
            options=about.options(self.report),
            files=about.files(self.report), num_files=about.num_files(self.report), most_files=_MOST_FILES,
            left_out=about.left_out(self.report),
            definitions=self.definitions, undefined=self.undefined,
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
        shown = [views[one.id] for one in part.sources if one.id in views]
        figures = tuple(figure for figure in part.figures if figure.id not in plan.no_charts)
        return replace(
            part,
            figures=figures,
            tables=tuple(table_of(view, bodies[view.id]) for view in shown),
            charts_left_out=part.charts_left_out + len(part.figures) - len(figures),
            tables_left_out=part.tables_left_out + len(part.sources) - len(shown),
        )

    def _packed_figures(self, plan: Plan) -> str:
        """Return what Plotly needs for the charts that are on the page."""
        at = frozenset(plan.no_charts)
        if self._figures is None or self._figures[0] != at:
            every = (figure for part in self.parts for figure in part.figures if figure.id not in at)
            live = {figure.id: figure.spec for figure in every if figure.spec is not None}
            data = {"dark": palette.dark_by_light(), "figures": live}
            self._figures = at, plotly_bundle.pack(orjson.dumps(data)) if live else ""
        return self._figures[1]


def _static(one: Source, plan: Plan) -> int:
    return min(plan.static, _DETAIL_ROWS) if one.table.spec.is_detail else plan.static


def _policy(app: str, css: str, script: plotly_bundle.Bundle) -> str:
    """Only these scripts and this style, no connection anywhere; styles in attributes are needed by Plotly."""
    scripts = " ".join(map(plotly_bundle.csp_hash, (_EARLY, app)))
    return (
        f"default-src 'none'; script-src {scripts} {script.hash}; "
        f"style-src {plotly_bundle.csp_hash(css)} {_EMPTY_STYLE}; style-src-attr 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def cards(sections: Iterable[Section]) -> list[Fact]:
    """Return the key numbers of all sections that have a value, in their order, at most eight."""
    facts = (fact for section in sections for fact in section.facts if fact.value is not None)
    return sorted(facts, key=lambda fact: fact.order)[:_MOST_CARDS]


def _definitions(given: Iterable[Part]) -> tuple[list[tuple[str, list[Column]]], int]:
    """Return by section the columns that have a definition, as many as there is room for, and how many there is not."""
    pairs = [(part.section.title, tables.used_columns(list(part.section.tables))) for part in given]
    told = list(accumulate(sum(len(c.label) + len(c.help) for c in columns) for _, columns in pairs))
    fitting = [pair for pair, size in zip(pairs, told, strict=True) if pair[1] and size <= _DEFINITIONS]
    return fitting, sum(len(columns) for _, columns in pairs) - sum(len(columns) for _, columns in fitting)
