"""Report → PDF of two to four pages: the summary that is mailed and filed. Laid out by WeasyPrint, without a browser.

WeasyPrint needs Pango from the system; it is imported here only, and what is missing is said in one line.
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
from htareport.report.json_codec import column_values

if TYPE_CHECKING:
    from weasyprint import Document

MOST_PAGES = 4
PAPERS = {"A4": 265.0, "Letter": 247.0}  # Height of the text on a page, in mm.
_NARROW, _WIDE = 420, 860  # SVG widths that give 8 pt text in one and in two columns of the page,
_NARROW_MM, _WIDE_MM = 84.0, 174.0  # which are so wide.
_MOST_COLUMNS = 7
_MOST_ROWS = 10
_LONGEST_NAME = 60
_MOST_FINDINGS, _MOST_BESIDE_CHANGES = 5, 3  # The latter of a comparison, which has its own chapter first.
_LINE_LENGTH = 100  # Characters of a line of text, rather too few.
# Heights in mm of what surrounds charts and rows.
_HEAD, _TITLE, _FRAME, _TABLE, _ROW, _LINE = 72.0, 17.0, 15.0, 9.0, 4.7, 4.2
_FILLED = 0.88  # Of the pages, since what does not fit at the end of one moves to the next.
_SIZE = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')
_PANGO = "PDF needs Pango: apt-get install libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0"


@dataclass(frozen=True, slots=True)
class Figure:
    """One chart of the summary."""

    chart: Chart
    svg: Markup
    is_wide: bool

    @property
    def height(self) -> float:
        """Height of the picture on the page, in mm."""
        size = _SIZE.search(self.svg)
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
        """About how much of a page it takes, in mm."""
        narrow = [f.height for f in self.figures if not f.is_wide]
        pairs = [max(narrow[i : i + 2]) for i in range(0, len(narrow), 2)]
        charts = sum(height + _FRAME for height in (*pairs, *(f.height for f in self.figures if f.is_wide)))
        return _TITLE + charts + (_TABLE + _ROW * len(self.rows) if self.rows else 0.0)


def pdf(report: Report, *, paper: str = "A4", full_report: tuple[str, str] | None = None) -> bytes:
    """Return the summary as PDF/UA (tagged, selectable text, bookmarks); equal reports give equal bytes.

    `full_report` is name and sha256 of the HTML that it belongs to. MissingLibraryError where Pango is absent.
    """
    try:
        import weasyprint  # noqa: PLC0415  takes 0.8 s, and fails where Pango is missing
    except OSError as error:
        raise MissingLibraryError(f"{_PANGO} ({error})") from error
    logging.getLogger("weasyprint").setLevel(logging.ERROR)
    document = _fitting(weasyprint, report, paper, full_report)
    data: bytes = document.write_pdf(pdf_variant="pdf/ua-1")
    return data


def _fitting(weasyprint: Any, report: Report, paper: str, full_report: tuple[str, str] | None) -> Document:
    """Lay out what should fit the pages, and with less if it does not."""
    room = MOST_PAGES * PAPERS[paper] * _FILLED
    while True:
        text = summary_html(report, chosen(report, room), paper, full_report)
        fetcher = weasyprint.URLFetcher(allowed_protocols={"data"})  # Nothing is read from disk or network.
        document = weasyprint.HTML(string=text, url_fetcher=fetcher).render()
        if len(document.pages) <= MOST_PAGES or room < PAPERS[paper]:
            return document
        del document  # Two at once would be the peak of memory.
        room *= 0.95


def chosen(report: Report, room: float) -> list[Block]:
    """The sections that fit into so many mm, in order of the report.

    The first section of each chapter comes first, then the second ones and so on; each as large as there is room for.
    """
    good = _good(report)
    places = {section.name: [s.name for s in good if s.group == section.group].index(section.name) for section in good}
    if highlights.is_comparison(report) and good:  # Of its chapter the first three count as first ones.
        places |= {s.name: max(0, places[s.name] - 2) for s in good if s.group == good[0].group}
    others = [section for section in report.sections if section.status is not Status.OK]
    left = room - _HEAD - _LINE * (min(len(report.warnings), 6) + len(others) + len(cards(report.sections)) + 4)
    told = _told(report)
    left -= sum(map(_height, told.cards)) if told else 0.0
    blocks = dict[str, Block]()
    for section in sorted(good, key=lambda section: places[section.name]):
        sizes = ((2, _MOST_ROWS), (2, 5), (2, 0), (1, 0)) if not places[section.name] else ((2, 0), (1, 0))
        for charts, rows in sizes:
            block = _block(section, charts, rows)
            if (block.figures or block.rows) and block.height <= left:
                blocks[section.name] = block
                left -= block.height
                break
    return [blocks[section.name] for section in good if section.name in blocks]


def summary_html(report: Report, blocks: list[Block], paper: str, full_report: tuple[str, str] | None) -> str:
    """Return the page that WeasyPrint lays out."""
    return environment().get_template("summary.pdf.html.j2").render(
        report=report, title=highlights.title(report), blocks=blocks, paper=paper, full_report=full_report,
        chips=about.chips(report), cards=cards(report.sections), told=_told(report),
        before=findings.num_before(report, [block.section.name for block in blocks]),
        window=about.json_text(report.meta.get("window")), version=about.json_text(report.meta.get("version")),
        missing=sections.missing(report), elsewhere=_elsewhere(report, blocks),
        failed=[s for s in report.sections if s.status is Status.FAILED],
    )  # fmt: skip


def _good(report: Report) -> list[Section]:
    """The sections that could be made, but for the findings, which stand on the first page."""
    advice = findings.findings_section(report)
    return [section for section in report.sections if section.status is Status.OK and section is not advice]


def _told(report: Report) -> findings.FindingsSummary | None:
    return findings.summary(report, _MOST_BESIDE_CHANGES if highlights.is_comparison(report) else _MOST_FINDINGS)


def _height(card: findings.Card) -> float:
    """About how much of a page a finding takes, in mm."""
    said, code = card.finding, card.finding.snippet.splitlines() if card.saving else ()
    texts = (f"{said.title}{card.saving}{card.where}", f"{said.evidence} Try: {said.advice}", *code)
    return _LINE * (1 + sum(1 + len(text) // _LINE_LENGTH for text in texts))


def _elsewhere(report: Report, blocks: list[Block]) -> list[str]:
    """Titles of the sections that only the full report has."""
    here = {block.section.name for block in blocks}
    return [s.title for s in _good(report) if s.name not in here]


def _block(section: Section, most_charts: int, most_rows: int) -> Block:
    table = next(
        (t for t in section.tables if len(t.frame) > 1 and not t.spec.is_detail and empty_columns.is_shown(t)), None
    )
    columns, rows = _rows(table, most_rows) if table and most_rows else ((), ())
    pictures = list(islice((made for made in map(picture_of, section.charts) if made.num_marks), most_charts))
    wide = [_is_wide(made.chart) or len(pictures) == 1 for made in pictures]
    if wide.count(False) == 1:  # Nobody beside it.
        wide = [True] * len(wide)
    figures = tuple(
        Figure(made.chart, Markup(draw(made, _WIDE if is_wide else _NARROW)), is_wide)  # noqa: S704  our own SVG
        for made, is_wide in zip(pictures, wide, strict=True)
    )
    lead = prose.split_help(section.help).lead
    return Block(section, lead, figures, columns, rows, table.spec.title if table else "")


def _is_wide(chart: Chart) -> bool:
    return chart.mark is Mark.TIMELINE or Unit.NAME in {chart.x_unit, chart.y_unit}


def _rows(table: Table, most: int) -> tuple[tuple[Any, ...], tuple[tuple[str, ...], ...]]:
    """The head of a table as texts: keys and the first measures, of those with values."""
    cells = {column.name: column_values(table.frame[column.name].head(most)) for column in table.spec.columns}
    columns = [column for column in table.spec.columns if empty_columns.has_value(cells[column.name])][:_MOST_COLUMNS]
    texts = [_texts(cells[column.name], column.unit) for column in columns]
    return tuple(columns), tuple(zip(*texts, strict=True))


def _texts(cells: list[Any], unit: Unit) -> list[str]:
    """Return cells as they are shown; names that are short for the same are told apart."""
    shown = [fmt.text(cell, unit) for cell in cells]
    if unit is not Unit.NAME:
        return [kernel_names.cut(text, _LONGEST_NAME) for text in shown]
    short = kernel_names.labels(
        (text for text, cell in zip(shown, cells, strict=True) if cell is not None), _LONGEST_NAME
    )
    return [short.get(text, text) for text in shown]
