"""Report → files and notebook cells. A renderer reads the report and nothing else; the suffix picks it.

Importing this package is cheap: jinja2 and plotly load when something is drawn.
"""

# ruff: noqa: PLC0415  each format loads only what it needs

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from htareport.errors import OutputError, UsageError
from htareport.files.atomic import whole_file
from htareport.files.locations import located

if TYPE_CHECKING:
    from htareport.report import Report, Section

__all__ = [
    "SUFFIXES",
    "encoded",
    "notebook_html",
    "prepare",
    "section_html",
    "suffix_of",
    "write",
    "write_all",
    "write_bytes",
]

SUFFIXES = (".html", ".pdf", ".md", ".json", ".json.gz", ".eml", ".xml", ".csv.zip")


def suffix_of(path: str | Path) -> str:
    """Return which of SUFFIXES a file name ends with. UsageError, naming them, if none."""
    name = located(path).name.lower()
    found = max((suffix for suffix in SUFFIXES if name.endswith(suffix)), key=len, default="")
    if not found:
        raise UsageError(f"{path}: no known suffix; a report can be written as {', '.join(SUFFIXES)}")
    return found


def prepare(plotlyjs: str | Path | None = None) -> None:
    """Start packing plotly.js for .html in a thread, so that it is ready when the traces are read."""
    from htareport.render.html import plotly_bundle

    plotly_bundle.prepare(plotlyjs)


def encoded(  # noqa: PLR0911  one for each format
    report: Report,
    suffix: str,
    *,
    plotlyjs: str | Path | None = None,
    paper: str = "A4",
    full_report: tuple[str, str] | None = None,
) -> bytes:
    """Return a report in the format of one of SUFFIXES; equal reports give equal bytes.

    `plotlyjs` is for .html; `paper` (A4 or Letter) and `full_report` (name and sha256 of the HTML) are for .pdf.
    """
    if suffix == ".pdf":
        from htareport.render.pdf import pdf

        return pdf(report, paper=paper, full_report=full_report)
    if suffix == ".html":
        from htareport.render.html.page import html

        return html(report, plotlyjs=plotlyjs).encode()
    if suffix == ".md":
        from htareport.render.markdown import markdown

        return markdown(report).encode("utf-8", "replace")
    if suffix == ".eml":
        from htareport.render.mail import eml

        return eml(report)
    if suffix == ".xml":
        from htareport.render.junit import junit

        return junit(report).encode("utf-8", "replace")
    if suffix == ".csv.zip":
        from htareport.render.csv import csv_zip

        return csv_zip(report)
    if suffix == ".json.gz":
        import gzip

        return gzip.compress(report.to_json(), 6, mtime=0)
    return report.to_json()


def write(
    report: Report,
    path: str | Path,
    *,
    plotlyjs: str | Path | None = None,
    paper: str = "A4",
    full_report: tuple[str, str] | None = None,
) -> Path:
    """Write a report to a file whose suffix picks the format, and return its path.

    `plotlyjs` names a file to embed in .html in place of the installed package's plotly.js; `paper` is the size of a
    .pdf's pages, and `full_report` name and sha256 of the HTML that it belongs to. The file appears whole or not at
    all. UsageError for an unknown suffix, OutputError (naming the file) where it cannot be written,
    MissingLibraryError (a kind of it) where a .pdf lacks a library of the system.
    """
    path = located(path)
    data = encoded(report, suffix_of(path), plotlyjs=plotlyjs, paper=paper, full_report=full_report)
    return write_bytes(path, data)


def write_all(
    report: Report, paths: Iterable[str | Path], *, plotlyjs: str | Path | None = None, paper: str = "A4"
) -> Iterator[tuple[Path, OutputError | None]]:
    """Write a report to several files, and yield each with what went wrong, if anything did. The others come still.

    Pages come first, since a PDF names the page that it belongs to and its sha256.
    """
    import hashlib

    from htareport.errors import printable

    full_report = None
    for path in sorted(map(located, paths), key=lambda path: path.suffix.lower() != ".html"):
        try:
            write(report, path, plotlyjs=plotlyjs, paper=paper, full_report=full_report)
            if path.suffix.lower() == ".html":
                full_report = printable(path.name), hashlib.sha256(path.read_bytes()).hexdigest()
        except OutputError as error:
            yield path, error
        except OSError as error:
            yield path, OutputError(f"{path}: {error.strerror or error}")
        else:
            yield path, None


def write_bytes(path: str | Path, data: bytes) -> Path:
    """Write a file that appears whole or not at all, and return its path. OutputError where it cannot be written."""
    path = located(path)
    try:
        _replace(path, data)
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror or error}") from error
    return path


def _replace(path: Path, data: bytes) -> None:
    with whole_file(path) as file:
        file.write(data)


def section_html(section: Section) -> str:
    """Return one section as HTML for a notebook cell: tables and static charts, no scripts."""
    from htareport.render.notebook import section_html as made

    return made(section)


def notebook_html(report: Report) -> str:
    """Return a report as HTML for a notebook cell: verdict, key numbers, tables and static charts, no scripts."""
    from htareport.render.notebook import notebook_html as made

    return made(report)
