"""Which files are traces, and of which rank: by content, reading no events."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from htareport.errors import NothingToReadError, TraceFileError
from htareport.trace.blocks import archive_members, blocks
from htareport.trace.metadata import rank_of
from htareport.trace.repair import mend
from htareport.trace.split import CHUNK, Window, find_events

_JSON_LIKE = re.compile(r"\.(?:json|gz|zst|zip|tar|tgz)$", re.IGNORECASE)
_TRACE_NAME = re.compile(r"\.pt\.trace\.json", re.IGNORECASE)
_RANK_IN_NAME = re.compile(r"(?:rank|worker)[-_ ]?(\d+)", re.IGNORECASE)
_TIME_STAMP_SUFFIX = re.compile(r"\.\d{10,}(?:\.pt)?\.trace\.json(?:\.\w+)?$")
_EVENT_START = re.compile(rb'\s*(?:\]|\{[^{}]*"ph"\s*:)')
_DISTRIBUTED = re.compile(rb'"distributedInfo"\s*:\s*')
_TAIL = 256 << 10
_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04")


@dataclass
class Found:
    """What a search came to."""

    ranks: dict[int, tuple[Path, ...]] = field(default_factory=dict)
    left_out: list[tuple[str, str]] = field(default_factory=list)  # Name, reason: JSON that is no trace.
    unusable: list[tuple[str, str]] = field(default_factory=list)  # Name, reason: traces that cannot be read.
    warnings: list[str] = field(default_factory=list)


class _NotATraceError(Exception):
    """The text is the reason."""


def find(source: str | Path) -> Found:
    """Find the traces of a folder, file, glob or archive. NothingToReadError says what was looked for and found."""
    path = Path(source)
    if path.is_dir():
        files = _files_in(path)
        where = f"folder {path}"
    elif path.exists():
        files, where = _members_or_self(path), f"file {path}"
    elif found := sorted(glob.glob(str(source), recursive=True)):
        files = [Path(each) for each in found if Path(each).is_file()]
        where = f"pattern {source}"
    else:
        raise NothingToReadError(f"{source}: there is no such file or folder")
    result = assign(files, explicit=not path.is_dir())
    if not result.ranks:
        raise NothingToReadError(_nothing(where, files, result))
    return result


def assign(files: Iterable[Path], *, explicit: bool) -> Found:
    """Sort files into ranks. A file that was named itself must be a trace; others may be left out."""
    result, ranks = Found(), dict[Path, int | None]()
    for file in files:
        try:
            ranks[file] = _rank_in(file)
        except _NotATraceError as reason:
            if _TRACE_NAME.search(file.name):
                result.unusable.append((file.name, str(reason)))
            elif explicit or _JSON_LIKE.search(file.name):
                result.left_out.append((file.name, str(reason)))
        except TraceFileError as error:
            if explicit or _JSON_LIKE.search(file.name):
                result.unusable.append((file.name, str(error)))
        except OSError as error:
            result.unusable.append((file.name, error.strerror or str(error)))
    by_rank = dict[int, list[Path]]()
    for file, rank in _numbered(ranks, result.warnings):
        by_rank.setdefault(rank, []).append(file)
    result.ranks = {rank: tuple(by_rank[rank]) for rank in sorted(by_rank)}
    return result


def _numbered(ranks: dict[Path, int | None], warnings: list[str]) -> Iterator[tuple[Path, int]]:
    """Give each file its rank: its own, else that of its name, else the lowest free number in order of name."""
    named, nameless, by_name = dict[Path, int](), list[Path](), list[str]()
    for file in sorted(ranks, key=lambda each: (each.name, str(each))):
        rank, in_name = ranks[file], _RANK_IN_NAME.search(file.name)
        if rank is None and in_name:
            rank = int(in_name[1])
            by_name.append(f"{file.name} is rank {rank}")
        if rank is None:
            nameless.append(file)
        else:
            named[file] = rank
    if by_name:
        warnings.append(f"no rank inside the files, so it is taken from their names: {_few(by_name)}")
    yield from named.items()
    taken, processes = set(named.values()), dict[str, int]()
    for file in nameless:
        process = _TIME_STAMP_SUFFIX.sub("", file.name)
        if process not in processes:
            processes[process] = next(number for number in count() if number not in taken)
            taken.add(processes[process])
        yield file, processes[process]
    if len(processes) > 1:
        numbers = [f"{name} is rank {rank}" for name, rank in processes.items()]
        warnings.append(f"no rank inside the files nor in their names, so they are numbered by name: {_few(numbers)}")


def _few(texts: list[str], most: int = 4) -> str:
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


def _rank_in(file: Path) -> int | None:
    """Return the rank that a trace gives itself."""
    window = Window(blocks(file))
    if not window.more():
        raise TraceFileError("the file is empty")
    if not window.data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        raise _NotATraceError("not JSON")
    head = find_events(window)
    if head is None:
        raise _NotATraceError("JSON without traceEvents")
    if not head:
        window.fill(CHUNK)
        if not _EVENT_START.match(window.data, window.position):
            raise _NotATraceError("a JSON array, but not of trace events")
        return None
    rank = rank_of(_parsed(head + b"null}"))
    if rank is None and b'"schemaVersion"' not in head:  # Kineto writes its metadata first; others may put it last.
        rank = rank_of({"distributedInfo": _distributed_behind(window)})
    return rank


def _parsed(text: bytes) -> dict[str, Any]:
    for each in (text, mend(text)[0]):
        try:
            found = orjson.loads(each)
        except orjson.JSONDecodeError:
            continue
        return found if isinstance(found, dict) else {}
    return {}


def _distributed_behind(window: Window) -> Any:
    """Return the value of the last `distributedInfo` near the end of the text."""
    try:
        while window.more():
            if len(window.data) > 2 * _TAIL:
                del window.data[:-_TAIL]
    except TraceFileError:  # What is wrong with it will be said when it is loaded.
        return None
    text = bytes(window.data[-_TAIL:])
    match = None
    for match in _DISTRIBUTED.finditer(text):
        pass
    if match is None:
        return None
    for end in (m.end() for m in re.finditer(rb"\}", text[match.end() :])):
        try:
            return orjson.loads(text[match.end() : match.end() + end])
        except orjson.JSONDecodeError:
            continue
    return None


def _files_in(folder: Path) -> list[Path]:
    """Files directly inside that may be traces; only if there are none, those below."""
    direct = _candidates(folder.iterdir())
    return direct or _candidates(folder.rglob("*"))


def _candidates(paths: Iterable[Path]) -> list[Path]:
    found = list[Path]()
    for path in sorted(paths):
        if path.name.startswith(".") or not path.is_file():
            continue
        if _JSON_LIKE.search(path.name):
            found += _members_or_self(path)
        elif _looks_like_json(path):
            found.append(path)
    return found


def _looks_like_json(path: Path) -> bool:
    """Whether a file under another suffix begins like a trace, compressed or not."""
    try:
        with path.open("rb") as file:
            start = file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()
        if start.startswith(_COMPRESSED[:2]):
            start = next(blocks(path), b"")[:64].lstrip()
    except (OSError, TraceFileError):
        return False
    return start[:1] in (b"{", b"[")


def _members_or_self(path: Path) -> list[Path]:
    try:
        members = archive_members(path)
    except (TraceFileError, OSError):
        return [path]  # Named with its reason when it is opened.
    if members is None:
        return [path]
    return [each for each in sorted(members) if _JSON_LIKE.search(each.name)]


def _nothing(where: str, files: list[Path], result: Found) -> str:
    looked = "traces (JSON with traceEvents, plain or as .gz, .zst or .zip) were looked for"
    if not files:
        return f"{where}: {looked}, and no such file was found"
    reasons = [f"{name}: {reason}" for name, reason in (*result.unusable, *result.left_out)]
    shown = "; ".join(reasons[:3]) + (f"; and {len(reasons) - 3} more" if len(reasons) > 3 else "")  # noqa: PLR2004
    return f"{where}: {looked}; none is usable ({shown or 'no JSON in it'})"
