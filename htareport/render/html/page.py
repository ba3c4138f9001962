"""The report as one HTML file that opens from disk, needs no network, and works without scripts.

Figures are SVG at first; the page's script swaps in Plotly when one is scrolled into view. Tables have their first rows
as markup and all rows as packed data. A content security policy allows only the page's own scripts and style, by hash.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import orjson
from markupsafe import Markup

from htareport.render import about, findings, prose
from htareport.render.charts import palette
from htareport.render.environment import environment, source
from htareport.render.html import bounds, plotly_bundle, sections, tables
from htareport.render.html.fit import Fitter, Plan
from htareport.render.html.sections import PageSection
from htareport.render.html.tables import Source
from htareport.report import Column, Fact, Report, Section

LIMIT = 2_500_000  # Bytes of the whole file.
_MAX_CARDS = 8
_MAX_FINDINGS = 50
_MAX_FILES = 200
_DETAIL_ROWS = 10  # As markup, of tables that are shown on demand.
_MAX_DEFINITIONS = 150_000  # Characters.
_EMPTY_STYLE = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"  # Plotly adds an empty <style> and fills it.
_EARLY = 'document.documentElement.classList.add("js")'


def html(report: Report, *, plotlyjs: str | Path | None = None) -> str:
    """Return the page. Equal reports give equal text, of no more than LIMIT bytes in UTF-8.

    UsageError where `plotlyjs` names a file that cannot be read; OutputError where not even the words of the report
    fit.
    """
    plotly_bundle.prepare(plotlyjs)
    page = _Page(bounds.bounded(report), plotly_bundle.load(plotlyjs))
    charts = {figure.id: figure.size for section in page.page_sections for figure in section.figures}
    return Fitter(LIMIT, page.sources, charts, page.render, page.min_markup_size).page().decode()


class _Page:
    """Renders one report by a plan."""

    def __init__(self, report: Report, script: plotly_bundle.Bundle) -> None:
        self.report, self.script = report, script
        self.page_sections = sections.page_sections(report)
        self.sources = [source for section in self.page_sections for source in section.sources]
        self.app = "\n".join(source(name) for name in ("report.js", "table.js"))
        self.css = source("report.css") + palette.css()
        self.policy = _policy(self.app, self.css, script)
        self.definitions, self.undefined = _definitions(self.page_sections)
        links = {section.section.name: (section.id, section.section.title) for section in self.page_sections}
        self.findings = findings.summary(report, _MAX_FINDINGS, links)
        self._rows: dict[tuple[int, int], dict[str, list[tables.Row]]] = {}
        self._bodies: dict[tuple[int, int, frozenset[str]], dict[str, Markup]] = {}
        self._figures: tuple[frozenset[str], str] | None = None

    def render(self, plan: Plan) -> bytes:
        """Return the page."""
        bodies, rows = self._tables(plan)
        views = {
            source.id: source.view(
                rows[source.id],
                plan.rows.get(source.id, source.max_packed),
                plan.max_name,
                has_definitions=plan.has_definitions,
            )
            for source in self.sources
            if source.id not in plan.no_tables
        }
        filled_sections = [self._with_tables(section, plan, views, bodies) for section in self.page_sections]
        figures = self._packed_figures(plan)
        chapters = sections.chapters(filled_sections)
        text: str = environment().get_template("report.html.j2").render(
            report=self.report, policy=self.policy, css=Markup(self.css), app=Markup(self.app), early=Markup(_EARLY),  # noqa: S704
            chips=about.chips(self.report), window=about.window(self.report), version=about.version(self.report),
            cards=cards(self.report.sections), told=self.findings,
            how=prose.split_help(self.findings.how if self.findings else ""),
            chapters=chapters,
            before=findings.num_before(self.report, [chapter.sections[0].section.name for chapter in chapters]),
            missing=sections.missing(self.report), entries=about.entries(self.report),
            options=about.options(self.report),
            files=about.files(self.report), num_files=about.num_files(self.report), most_files=_MAX_FILES,
            left_out=about.left_out(self.report),
            definitions=self.definitions, undefined=self.undefined,
            blocks=[(view.id, Markup(view.packed)) for view in views.values() if view.packed],  # noqa: S704
            figures=Markup(figures), plotly=self.script if figures else None,  # noqa: S704
        )  # fmt: skip
        return text.encode()

    def min_markup_size(self, plan: Plan) -> int:
        """Return a lower bound of the bytes of the tables' rows."""
        return sum(row.min_markup_size for rows in self._all_rows(plan).values() for row in rows)

    def _all_rows(self, plan: Plan) -> dict[str, list[tables.Row]]:
        """Return every table's rows as markup, not linked."""
        key = (plan.markup_rows, plan.max_name)
        if key not in self._rows:
            sources = {source.id: source for source in self.sources}
            self._rows = {key: {name: s.rows(_markup_rows(s, plan), plan.max_name) for name, s in sources.items()}}
        return self._rows[key]

    def _tables(self, plan: Plan) -> tuple[dict[str, Markup], dict[str, list[tables.Row]]]:
        """Return every table's rows, as markup and as values."""
        all_rows = self._all_rows(plan)
        rows = {name: all_rows[name] for name in all_rows if name not in plan.no_tables}
        key = (plan.markup_rows, plan.max_name, frozenset(plan.no_tables))
        if key not in self._bodies:
            columns = {source.id: source.columns for source in self.sources}
            body = environment().get_template("table.html.j2").module.rows_of  # type: ignore[attr-defined]
            linked = zip(rows, tables.linked(rows.values()), strict=True)
            self._bodies = {key: {name: body(table_rows, columns[name]) for name, table_rows in linked}}
        return self._bodies[key], rows

    def _with_tables(
        self, section: PageSection, plan: Plan, views: dict[str, tables.View], bodies: dict[str, Markup]
    ) -> PageSection:
        table_of = environment().get_template("table.html.j2").module.table_of  # type: ignore[attr-defined]
        shown_views = [views[source.id] for source in section.sources if source.id in views]
        figures = tuple(figure for figure in section.figures if figure.id not in plan.no_charts)
        return replace(
            section,
            figures=figures,
            tables=tuple(table_of(view, bodies[view.id]) for view in shown_views),
            charts_left_out=section.charts_left_out + len(section.figures) - len(figures),
            tables_left_out=section.tables_left_out + len(section.sources) - len(shown_views),
        )

    def _packed_figures(self, plan: Plan) -> str:
        """Return what Plotly needs for the charts that are on the page."""
        left_out = frozenset(plan.no_charts)
        if self._figures is None or self._figures[0] != left_out:
            figures = (figure for section in self.page_sections for figure in section.figures)
            spec_by_figure = {figure.id: figure.spec for figure in figures if figure.spec and figure.id not in left_out}
            data = {"dark": palette.dark_by_light(), "figures": spec_by_figure}
            self._figures = left_out, plotly_bundle.pack(orjson.dumps(data)) if spec_by_figure else ""
        return self._figures[1]


def _markup_rows(source: Source, plan: Plan) -> int:
    return min(plan.markup_rows, _DETAIL_ROWS) if source.table.spec.is_detail else plan.markup_rows


def _policy(app: str, css: str, script: plotly_bundle.Bundle) -> str:
    """Return the policy: only these scripts and this style, no connections; Plotly needs styles in attributes."""
    scripts = " ".join(map(plotly_bundle.csp_hash, (_EARLY, app)))
    return (
        f"default-src 'none'; script-src {scripts} {script.hash}; "
        f"style-src {plotly_bundle.csp_hash(css)} {_EMPTY_STYLE}; style-src-attr 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def cards(sections: Iterable[Section]) -> list[Fact]:
    """Return the key numbers of all sections that have a value, in their order, at most eight."""
    facts = (fact for section in sections for fact in section.facts if fact.value is not None)
    return sorted(facts, key=lambda fact: fact.order)[:_MAX_CARDS]


def _definitions(sections: Iterable[PageSection]) -> tuple[list[tuple[str, list[Column]]], int]:
    """Return by section the columns with a definition, as many as fit on the page, and how many do not fit."""
    definitions, num_left_out, size = list[tuple[str, list[Column]]](), 0, 0
    for section in (page_section.section for page_section in sections):
        columns = tables.used_columns(list(section.tables))
        size += sum(len(column.label) + len(column.help) for column in columns)
        if columns and size <= _MAX_DEFINITIONS:
            definitions.append((section.title, columns))
        else:
            num_left_out += len(columns)
    return definitions, num_left_out
