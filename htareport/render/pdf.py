"""The report as a PDF summary of two to four pages for mail and archive, laid out by WeasyPrint without a browser.

WeasyPrint needs Pango from the system; it is imported only here, and the error names the missing library in one line.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from htareport.errors import MissingLibraryError
from htareport.render import about, empty_columns, findings, highlights, kernel_names, prose
from htareport.render.charts import ticks as fmt
from htareport.render.charts.draw import picture_of
from htareport.render.charts.svg import draw
from htareport.render.environment import environment
from htareport.render.html import sections
from htareport.render.html.page import cards
from htareport.report import Chart, Mark, Report, Section, Status, Table, Unit

if TYPE_CHECKING:
    from weasyprint import Document

MAX_PAGES = 4
PAPERS = {"A4": 265.0, "Letter": 247.0}  # Height of the text on a page, in mm.
_NARROW, _WIDE = 420, 860  # SVG widths that give 8 pt text in one and in two columns of the page.
_NARROW_MM, _WIDE_MM = 84.0, 174.0  # Widths of these columns.
_MAX_COLUMNS = 7
_MAX_ROWS = 10
_MAX_NAME = 60
_MAX_FINDINGS, _MAX_FINDINGS_OF_COMPARISON = 5, 3  # Fewer in a comparison, whose first chapter is the changes.
_LINE_LENGTH = 100  # Characters of a line of text, rather too few.
# Heights in mm of page head, section title, chart frame, table, row and line of text.
_HEAD, _TITLE, _FRAME, _TABLE, _ROW, _LINE = 72.0, 17.0, 15.0, 9.0, 4.7, 4.2
_FILL_SHARE = 0.88  # Of the pages: a block that does not fit at the end of one moves to the next.
_SVG_SIZE = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')
_PANGO_HELP = "PDF needs Pango: apt-get install libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0"


@dataclass(frozen=True, slots=True)
class Figure:
    """One chart of the summary."""

    chart: Chart
    svg: Markup
    is_wide: bool

    @property
    def height(self) -> float:
        """Height of the picture on the page, in mm."""
        size = _SVG_SIZE.search(self.svg)
        width = _WIDE_MM if self.is_wide else _NARROW_MM
        return width * float(size[2]) / float(size[1]) if size else width


@dataclass(frozen=True, slots=True)
class Block:
    """One section of the summary: charts, and the head of its first table as texts."""

    section: Section
    lead: Markup
    figures: tuple[Figure, ...]
    columns: tuple[Any, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str

    @property
    def height(self) -> float:
        """Estimate of its height on the page, in mm."""
        narrow = [figure.height for figure in self.figures if not figure.is_wide]
        row_heights = [max(narrow[i : i + 2]) for i in range(0, len(narrow), 2)]
        row_heights += [figure.height for figure in self.figures if figure.is_wide]
        charts = sum(height + _FRAME for height in row_heights)
        return _TITLE + charts + (_TABLE + _ROW * len(self.rows) if self.rows else 0.0)


def pdf(report: Report, *, paper: str = "A4", full_report: tuple[str, str] | None = None) -> bytes:
    """Return the summary as PDF/UA (tagged, selectable text, bookmarks); equal reports give equal bytes.

    `full_report` is name and sha256 of the HTML that it belongs to. MissingLibraryError where Pango is absent.
    """
    try:
        import weasyprint  # noqa: PLC0415  takes 0.8 s, and fails where Pango is missing
    except OSError as error:
        raise MissingLibraryError(f"{_PANGO_HELP} ({error})") from error
    logging.getLogger("weasyprint").setLevel(logging.ERROR)
    document = _fitting_document(weasyprint, report, paper, full_report)
    data: bytes = document.write_pdf(pdf_variant="pdf/ua-1")
    return data


def _fitting_document(weasyprint: Any, report: Report, paper: str, full_report: tuple[str, str] | None) -> Document:
    """Return the laid-out document, with fewer sections until it has no more than four pages."""
    height = MAX_PAGES * PAPERS[paper] * _FILL_SHARE
    while True:
        text = summary_html(report, selected_blocks(report, height), paper, full_report)
        fetcher = weasyprint.URLFetcher(allowed_protocols={"data"})  # Nothing is read from disk or network.
        document = weasyprint.HTML(string=text, url_fetcher=fetcher).render()
        if len(document.pages) <= MAX_PAGES or height < PAPERS[paper]:
            return document
        del document  # Two at once would be the peak of memory.
        height *= 0.95


def selected_blocks(report: Report, total_height: float) -> list[Block]:
    """Return the sections that fit into so many mm, in order of the report.

    The first section of each chapter is chosen first, then the second ones and so on, each as large as still fits.
    """
    candidates = findings.other_sections(report)
    groups = [section.group for section in candidates]
    order = {section.name: groups[:index].count(section.group) for index, section in enumerate(candidates)}
    if highlights.is_comparison(report) and candidates:  # Of its chapter the first three count as first ones.
        order |= {s.name: max(0, order[s.name] - 2) for s in candidates if s.group == groups[0]}
    num_without_results = sum(section.status is not Status.OK for section in report.sections)
    num_lines = min(len(report.warnings), 6) + num_without_results + len(cards(report.sections)) + 4
    height_left = total_height - _HEAD - _LINE * num_lines
    summary = _findings_summary(report)
    height_left -= sum(map(_height, summary.cards)) if summary else 0.0
    blocks = dict[str, Block]()
    for section in sorted(candidates, key=lambda section: order[section.name]):
        sizes = ((2, _MAX_ROWS), (2, 5), (2, 0), (1, 0)) if not order[section.name] else ((2, 0), (1, 0))
        for charts, rows in sizes:
            block = _block(section, charts, rows)
            if (block.figures or block.rows) and block.height <= height_left:
                blocks[section.name] = block
                height_left -= block.height
                break
    return [blocks[section.name] for section in candidates if section.name in blocks]


def summary_html(report: Report, blocks: list[Block], paper: str, full_report: tuple[str, str] | None) -> str:
    """Return the page that WeasyPrint lays out."""
    return environment().get_template("summary.pdf.html.j2").render(
        report=report, title=highlights.title(report), blocks=blocks, paper=paper, full_report=full_report,
        chips=about.chips(report), cards=cards(report.sections), told=_findings_summary(report),
        before=findings.num_before(report, [block.section.name for block in blocks]),
        window=about.json_text(report.meta.get("window")), version=about.json_text(report.meta.get("version")),
        missing=sections.missing(report), elsewhere=_elsewhere(report, blocks),
        failed=[s for s in report.sections if s.status is Status.FAILED],
    )  # fmt: skip


def _findings_summary(report: Report) -> findings.FindingsSummary | None:
    return findings.summary(report, _MAX_FINDINGS_OF_COMPARISON if highlights.is_comparison(report) else _MAX_FINDINGS)


def _height(card: findings.Card) -> float:
    """Estimate the height of a finding on the page, in mm."""
    finding, code = card.finding, card.finding.snippet.splitlines() if card.saving else ()
    lines = (f"{finding.title}{card.saving}{card.where}", f"{finding.evidence} Try: {finding.advice}", *code)
    return _LINE * (1 + sum(1 + len(text) // _LINE_LENGTH for text in lines))


def _elsewhere(report: Report, blocks: list[Block]) -> list[str]:
    """Return the titles of the sections that only the full report has."""
    shown = {block.section.name for block in blocks}
    return [s.title for s in findings.other_sections(report) if s.name not in shown]


def _block(section: Section, max_charts: int, max_rows: int) -> Block:
    tables = (t for t in section.tables if len(t.frame) > 1 and not t.spec.is_detail and empty_columns.is_shown(t))
    table = next(tables, None)
    columns, rows = _rows(table, max_rows) if table and max_rows else ((), ())
    pictures = list(islice((picture for picture in map(picture_of, section.charts) if picture.num_marks), max_charts))
    is_wide_mask = [_is_wide(picture.chart) for picture in pictures]
    if is_wide_mask.count(False) == 1:  # It would be alone in its row.
        is_wide_mask = [True] * len(is_wide_mask)
    figures = tuple(
        Figure(picture.chart, Markup(draw(picture, _WIDE if is_wide else _NARROW)), is_wide)  # noqa: S704  our own SVG
        for picture, is_wide in zip(pictures, is_wide_mask, strict=True)
    )
    lead = prose.split_help(section.help).lead
    return Block(section, lead, figures, columns, rows, table.spec.title if table else "")


def _is_wide(chart: Chart) -> bool:
    return chart.mark is Mark.TIMELINE or Unit.NAME in {chart.x_unit, chart.y_unit}


def _rows(table: Table, max_rows: int) -> tuple[tuple[Any, ...], tuple[tuple[str, ...], ...]]:
    """Return the head of a table as texts: columns with values, keys first."""
    columns = empty_columns.filled_columns(table, max_rows, _MAX_COLUMNS)
    texts = [_texts(cells, column.unit) for column, cells in columns]
    return tuple(column for column, _ in columns), tuple(zip(*texts, strict=True))


def _texts(cells: list[Any], unit: Unit) -> list[str]:
    """Return cells as text; names with equal short forms say in what they differ."""
    texts = [fmt.text(cell, unit) for cell in cells]
    if unit is not Unit.NAME:
        return [kernel_names.cut(text, _MAX_NAME) for text in texts]
    short = kernel_names.labels((text for text, cell in zip(texts, cells, strict=True) if cell is not None), _MAX_NAME)
    return [short.get(text, text) for text in texts]
