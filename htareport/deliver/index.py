"""Makes the index page over all saved reports of a folder."""

from __future__ import annotations

import gzip
import posixpath
import re
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from os.path import relpath
from pathlib import Path
from urllib.parse import urlsplit

import orjson

from htareport.errors import NothingToReadError, ReportFileError, printable
from htareport.files.locations import inside, is_file, is_folder, is_remote, named, reading, resolved, shown, stat_of
from htareport.render.index import Run, index, started
from htareport.report import Report

_SUFFIXES = (".json", ".json.gz")
_REPORT = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"schema_version"\s*:')
_HEAD_BYTES = 4096
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Overview:
    """The page over a folder's reports, how many there are, and the files that could not be read, with the reason."""

    page: str
    runs: int
    damaged: tuple[tuple[str, str], ...]


def overview(folder: Path, output: Path, now: datetime | None = None) -> Overview:
    """Return the index page over all reports in a folder, with links relative to the page at `output`.

    NothingToReadError where there is none.
    """
    try:
        if not is_folder(folder):
            raise NothingToReadError(f"{folder}: is no folder of reports")
        files = _json_files(folder)
    except OSError as error:
        raise NothingToReadError(f"{folder}: {error.strerror or error}") from error
    runs, damaged, unrelated = list[Run](), list[tuple[str, str]](), list[str]()
    for path in files:
        name = printable(path.relative_to(folder).as_posix())
        try:
            report = _light(path) if _is_report(path) else None
        except (OSError, ReportFileError) as error:
            reason = str(getattr(error, "strerror", None) or error)  # Without the path that the system adds.
            damaged.append((name, reason.removeprefix(f"{printable(shown(path))}: ")))
        else:
            if report is None:
                unrelated.append(name)
            else:
                runs.append(_run(report, path, output))
    if not runs:
        reasons = "".join(f"; {name}: {reason}" for name, reason in damaged[:3])
        raise NothingToReadError(f"{folder}: no reports (.json, .json.gz) in or below it{reasons}")
    title = f"Runs in {printable(named(folder))}"
    page = index(runs, title=title, created=now or datetime.now(UTC), damaged=damaged, other_files=unrelated)
    return Overview(page, len(runs), tuple(damaged))


def _json_files(folder: Path) -> list[Path]:
    files = (path for path in sorted(inside(folder, below=True)) if path.name.lower().endswith(_SUFFIXES))
    return [path for path in files if is_file(path)]


def _is_report(path: Path) -> bool:
    """Return whether a file begins as a report does; traces in the same folder may be large."""
    with reading(path) as file:
        head = file.read(_HEAD_BYTES)
    if head.startswith(_GZIP):
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, _HEAD_BYTES)
        except zlib.error as error:
            raise ReportFileError(f"{path}: {error}") from error
    if not head.strip():
        raise ReportFileError(f"{path}: is empty")
    return _REPORT.match(head) is not None


def _light(path: Path) -> Report:
    """Load a report without its tables and charts, which the page does not show. ReportFileError for a damaged one."""
    try:
        with reading(path) as file:
            data = file.read()
        raw = orjson.loads(gzip.decompress(data) if data.startswith(_GZIP) else data)
    except (EOFError, OSError, zlib.error, ValueError) as error:
        raise ReportFileError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    for section in raw.get("sections") or () if isinstance(raw, dict) else ():
        if isinstance(section, dict):
            section |= {"tables": [], "charts": []}
    return Report.from_json(orjson.dumps(raw), str(path))


def _run(report: Report, path: Path, output: Path) -> Run:
    """Date a run by its trace, else by its file, and link it to its page, else to its JSON."""
    date = started(report)
    stem = path.name[: -len(".json.gz" if path.name.lower().endswith(".json.gz") else ".json")]
    pages = [path.with_name(stem + suffix) for suffix in (".html", ".pdf", ".md")]
    target = next((page for page in pages if page.is_file() and resolved(page) != resolved(output)), path)
    return Run(report, _link(target, output), date or datetime.fromtimestamp(stat_of(path).st_mtime, UTC), date is None)


def _link(target: Path, page: Path) -> str:
    """Return how a page leads to a file: relative where both are on this machine, or in one store."""
    if is_remote(target) != is_remote(page):
        return shown(target) if is_remote(target) else target.resolve().as_uri()
    if not is_remote(target):
        return Path(relpath(target.resolve(), page.resolve().parent)).as_posix()
    target_url, page_url = urlsplit(shown(target)), urlsplit(shown(page.parent))
    if target_url[:2] != page_url[:2]:
        return shown(target)
    return posixpath.relpath(target_url.path, page_url.path or "/")
