"""Writes a report to a file, in the output format that its suffix picks."""

from __future__ import annotations

import hashlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from htareport.errors import OutputError, UsageError, printable
from htareport.files.atomic import whole_file
from htareport.files.locations import located
from htareport.plugins.discovery import classes_from_entry_points, classes_in, function

ENTRY_POINT_GROUP = "htareport.formats"


@dataclass(frozen=True)
class OutputOptions:
    """How a report is written, as far as a format can tell.

    `plotlyjs` names a file to embed in a page in place of the installed plotly.js. `paper` (A4 or Letter) is the size
    of pages. `full_report` is the name and sha256 of the page that a summary belongs to.
    """

    plotlyjs: str | Path | None = None
    paper: str = "A4"
    full_report: tuple[str, str] | None = None


class OutputFormat(ABC):
    """One format of the report. The first line of its docstring is its help.

    To add one, add a file to `htareport/render/formats/` with a subclass; what is heavy to import is imported in
    `encode`, so that `--help` stays instant.
    """

    suffix: ClassVar[str]
    order: ClassVar[int] = 50  # Place in lists of formats.

    @abstractmethod
    def encode(self, report: Any, options: OutputOptions) -> bytes:
        """Return a report in this format; equal reports give equal bytes."""

    @classmethod
    def help(cls) -> str:
        """Return in a few words what it is."""
        return inspect.cleandoc(cls.__doc__ or "").partition("\n")[0].rstrip(".")


@cache
def output_formats() -> dict[str, type[OutputFormat]]:
    """Every output format by suffix, in the order of lists."""
    own = classes_in("htareport.render.formats", OutputFormat)  # type: ignore[type-abstract]  # Only concrete ones.
    formats = [*own, *classes_from_entry_points(ENTRY_POINT_GROUP, "output format")]
    return {kind.suffix: kind for kind in sorted(formats, key=lambda kind: (kind.order, kind.suffix))}


def suffix_of(path: str | Path) -> str:
    """Return the suffix of the format that a file name picks. UsageError, naming all, if none."""
    name, suffixes = located(path).name.lower(), output_formats()
    matching = [suffix for suffix in suffixes if name.endswith(suffix)]
    if not matching:
        raise UsageError(f"{path}: no known suffix; a report can be written as {', '.join(suffixes)}")
    return max(matching, key=len)


def encoded(report: Any, suffix: str, options: OutputOptions | None = None) -> bytes:
    """Return a report in the format of a suffix."""
    return output_formats()[suffix]().encode(report, options or OutputOptions())


def write(report: Any, path: str | Path, options: OutputOptions | None = None) -> Path:
    """Write a report to a file whose suffix picks the format, and return its path.

    The file appears whole or not at all. UsageError for an unknown suffix, OutputError (naming the file) where it
    cannot be written, MissingLibraryError (a kind of it) where a .pdf lacks a library of the system.
    """
    path = located(path)
    return write_bytes(path, encoded(report, suffix_of(path), options))


def write_all(
    report: Any, paths: Iterable[str | Path], *, plotlyjs: str | Path | None = None, paper: str = "A4"
) -> Iterator[tuple[Path, OutputError | None]]:
    """Write a report to several files, and yield each with what went wrong, if anything did. The others come still.

    Pages come first, since a PDF names the page that it belongs to and its sha256.
    """
    full_report = None
    for path in sorted(map(located, paths), key=lambda path: path.suffix.lower() != ".html"):
        try:
            write(report, path, OutputOptions(plotlyjs, paper, full_report))
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
        with whole_file(path) as file:
            file.write(data)
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror or error}") from error
    return path


def notebook_cell(value: Any) -> str:
    """Return a report or one of its sections as HTML for a notebook cell: tables and static charts, no scripts."""
    return str(function("htareport.render.notebook", "cell_html")(value))
