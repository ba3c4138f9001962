"""The report as a mail: a short HTML body with a picture, the same as plain text, and the PDF summary attached.

A draft (`-o report.eml`) has neither sender nor date: mail clients add them, and the same report gives the same bytes.
"""

from __future__ import annotations

import hashlib
import logging
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime

from htareport.errors import OutputError, UsageError
from htareport.render import about, highlights, kernel_names, prose
from htareport.render.charts import ticks as fmt
from htareport.render.charts.svg import svg
from htareport.render.environment import environment
from htareport.render.findings import findings, saving
from htareport.render.html.page import cards
from htareport.report import Chart, Report, Section

LIMIT = 100_000  # Bytes of the HTML body: Gmail cuts what is above 102 KB.
LONGEST_SUBJECT = 200
_PICTURE_WIDTH = 620
_ZOOM = 2.0  # Pixels per pixel, for sharp text on dense screens.
_MAX_WARNINGS = 5
_FOR_WIDE_SCREENS = {"kind", "mean", "device", "idle_share"}  # Columns; mail is read on phones.
_MAX_TEXT = 600
_LINE_WIDTH = 78  # Characters of a line of the plain text.
_NBSP = "\u00a0"  # Fonts of mail clients know it better than the narrow one.
_SPACES = re.compile(r"[ \t\r\n]+")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail; `missing` has a sentence for each attachment that it lacks, with the reason."""

    message: EmailMessage
    missing: tuple[str, ...]

    def encoded(self) -> bytes:
        """Return the bytes that are sent or written to a file."""
        return self.message.as_bytes(policy=SMTP)


def eml(report: Report) -> bytes:
    """Return the report as a draft that a mail client opens. Equal reports give equal bytes."""
    draft = mail(report)
    draft.message["X-Unsent"] = "1"  # Clients that know it open the file for writing recipients into it.
    for reason in draft.missing:
        log.warning("the mail %s", reason)
    return draft.encoded()


def mail(
    report: Report,
    *,
    subject: str = "",
    sender: Address | None = None,
    to: Sequence[Address] = (),
    date: datetime | None = None,
) -> Mail:
    """Return a mail; the default subject is title and headline. UsageError for an invalid subject."""
    png, no_picture = _png(report)
    pdf, no_pdf = _pdf(report)
    missing = tuple(reason for reason in (no_picture, no_pdf) if reason)
    text = plain(report, missing)
    digest = hashlib.sha256(text.encode()).hexdigest()[:24]  # Tells apart the parts of one mail: no more is needed.
    cid = f"chart-{digest}@htareport"
    message = EmailMessage()
    message["Subject"] = subject_line(subject) if subject else default_subject(report)
    if sender:
        message["From"] = sender
    if to:
        message["To"] = tuple(to)
    if date:
        message["Date"] = format_datetime(date)
        seed = f"{digest}{date.isoformat()}{message['To']}"
        message["Message-ID"] = f"<{hashlib.sha256(seed.encode()).hexdigest()[:32]}@htareport>"
    message.set_content(text, cte="quoted-printable")
    message.add_alternative(html(report, cid if png else "", missing), subtype="html", cte="quoted-printable")
    if png:
        html_part = list(message.iter_parts())[-1]
        html_part.add_related(png, "image", "png", cid=f"<{cid}>", filename="chart.png", disposition="inline")
    if pdf:
        message.add_attachment(pdf, "application", "pdf", filename=f"{_file_name(report)}.pdf")
    _name_boundaries(message, digest)
    return Mail(message, missing)


def default_subject(report: Report) -> str:
    """Return title and headline on one line; the headline is ASCII, since encoded words may lose spaces."""
    label, number = highlights.headline(report)
    suffix = f": {label.lower() if label != 'GPU time' else label} {number}" if label else ""
    if change := highlights.change(report).partition(" against")[0]:
        suffix += f" ({change})"
    suffix = suffix.replace(fmt.NNBSP, " ").replace(fmt.MINUS, "-").replace("µ", "u")
    return f"{kernel_names.cut(highlights.title(report), LONGEST_SUBJECT - len(suffix))}{suffix}"


def subject_line(text: str) -> str:
    """Return a subject without outer spaces. UsageError if it is blank, too long, or holds control characters."""
    if not text.strip():
        raise UsageError("--subject: is blank")
    if len(text) > LONGEST_SUBJECT:
        raise UsageError(f"--subject: {len(text):,} characters; at most {LONGEST_SUBJECT} are shown anywhere")
    if kernel_names.visible(text) != text or len(text.splitlines()) != 1 or "\t" in text:
        raise UsageError("--subject: holds a line end or a control character")
    return text.strip()


def html(report: Report, cid: str, missing: Sequence[str] = ()) -> str:
    """Return the HTML body, of no more than LIMIT bytes; `cid` names the picture, if there is one."""
    chart = _chart(report)
    for max_rows in (10, 5, 0):
        text = environment().get_template("email.html.j2").render(
            title=highlights.title(report), verdict=_cut(report.verdict), chips=about.chips(report),
            warnings=[_cut(warning) for warning in report.warnings[:_MAX_WARNINGS]],
            more_warnings=max(0, len(report.warnings) - _MAX_WARNINGS),
            cards=[(_cut(f.label, 80), highlights.value(f), _cut(f.detail, 160)) for f in cards(report.sections)],
            findings=[(f.severity.capitalize(), _cut(f.title, 200), saving(f), _cut(f.advice))
                      for f in findings(report.sections)[:highlights.MAX_FINDINGS]],
            grids=[_grid_texts(grid) for grid in _grids(report, max_rows)], cid=cid, width=_PICTURE_WIDTH,
            chart=(_cut(chart.title, 160), _cut(chart.caption)) if chart else ("", ""),
            missing=missing, version=about.version(report),
        )  # fmt: skip
        if len(text.encode("utf-8", "replace")) <= LIMIT:
            break
    return text.encode("utf-8", "replace").decode()


def plain(report: Report, missing: Sequence[str] = ()) -> str:
    """Return the body as plain text with lines of a mail's width."""
    return "\n".join(_plain_lines(report, missing)).encode("utf-8", "replace").decode()


def _plain_lines(report: Report, missing: Sequence[str]) -> Iterator[str]:
    yield from (*_wrapped(highlights.title(report)), "", *_wrapped(_cut(report.verdict)))
    yield from ("", *_wrapped(" · ".join(about.chips(report))))
    if report.warnings:
        yield ""
        for warning in report.warnings[:_MAX_WARNINGS]:
            yield from _wrapped(_cut(warning), "! ")
    facts = cards(report.sections)
    if facts:
        yield ""
        for fact in facts:
            detail = f" ({_cut(fact.detail, 160)})" if fact.detail else ""
            yield from _wrapped(f"{_cut(fact.label, 80)}: {highlights.value(fact)}{detail}", "- ")
    for finding in findings(report.sections)[: highlights.MAX_FINDINGS]:
        saving_text = f" ({saving(finding)})" if finding.saving_ns else ""
        title = prose.unmarked(_cut(finding.title, 200))
        yield from ("", *_wrapped(f"{finding.severity.capitalize()}: {title}{saving_text}", "- "))
        yield from _wrapped(f"Try: {prose.unmarked(_cut(finding.advice))}" if finding.advice else "", "  ")
    for grid in _grids(report, 5):
        title, columns, rows = _grid_texts(grid)
        yield from ("", f"{title}:")
        for row in rows:
            numbers = ", ".join(f"{name} {cell}" for (name, _), cell in zip(columns[1:], row[1:], strict=True))
            first = row[0] if columns[0][1] else f"{columns[0][0]} {row[0]}"
            yield from _wrapped(f"{first}: {numbers}", "- ")
    yield from ("", *(line for reason in missing for line in _wrapped(f"This mail {reason}.")))
    yield f"Made by htareport {about.version(report)}".rstrip()


def _wrapped(text: str, mark: str = "") -> list[str]:
    """Return a text broken into lines; line breaks and control characters of names do not act."""
    line = kernel_names.visible(_SPACES.sub(" ", text)).replace(fmt.NNBSP, _NBSP)
    indent = " " * len(mark)
    return textwrap.wrap(line, _LINE_WIDTH, initial_indent=mark, subsequent_indent=indent, break_on_hyphens=False)


def _cut(text: str, max_length: int = _MAX_TEXT) -> str:
    return kernel_names.cut(text, max_length)


def _grids(report: Report, max_rows: int) -> list[highlights.Grid]:
    grids = (highlights.kernels(report, max_rows), highlights.worst_ranks(report, min(max_rows, 5))) if max_rows else ()
    return [grid.drop_columns(_FOR_WIDE_SCREENS) for grid in grids if grid is not None]


def _grid_texts(grid: highlights.Grid) -> tuple[str, list[tuple[str, bool]], list[list[str]]]:
    """Return a table's title, columns (label, whether text) and rows as texts."""
    columns = [(_cut(column.label, 40), column.unit.is_text) for column in grid.columns]
    units = [column.unit for column in grid.columns]
    rows = [[kernel_names.cut(text, highlights.MAX_NAME) for text in map(fmt.text, row, units)] for row in grid.rows]
    return grid.title, columns, rows


def _chart(report: Report) -> Chart | None:
    """Return the chart that a mail shows: the first of the temporal breakdown, else of any section."""
    shown = sorted(report.sections, key=lambda section: section.name != "temporal_breakdown")
    return next((chart for section in shown for chart in _filled(section)), None)


def _filled(section: Section) -> list[Chart]:
    return [chart for chart in section.charts if len(chart.frame)]


def _png(report: Report) -> tuple[bytes, str]:
    """Return the picture, or why there is none."""
    chart = _chart(report)
    if chart is None:
        return b"", ""
    try:
        import resvg_py  # noqa: PLC0415  optional
    except ImportError:
        return b"", "has no picture: that needs the package resvg-py, as in pip install 'htareport[png]'"
    try:
        return bytes(resvg_py.svg_to_bytes(svg(chart, _PICTURE_WIDTH), zoom=_ZOOM, background="#ffffff")), ""
    except ValueError as error:
        return b"", f"has no picture: {error}"


def _pdf(report: Report) -> tuple[bytes, str]:
    """Return the PDF summary, or why there is none."""
    from htareport.render.pdf import pdf  # noqa: PLC0415  only mails and PDFs need it

    try:
        return pdf(report), ""
    except (ImportError, OutputError) as error:
        return b"", f"has no PDF attached: {error}"


def _file_name(report: Report) -> str:
    """Return the title as a file name that is valid on every system."""
    return re.sub("[^a-z0-9]+", "-", highlights.title(report).lower()).strip("-")[:60] or "report"


def _name_boundaries(message: EmailMessage, digest: str) -> None:
    """Set the boundaries between the parts, which would be random; `=_` does not occur in their encodings."""
    for number, mime_part in enumerate(message.walk()):
        if mime_part.is_multipart():
            mime_part.set_boundary(f"=_{digest}_{number}")
