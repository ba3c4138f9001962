"""Which files are traces, and of which rank: by content, reading no events."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count, repeat
from pathlib import Path

from htareport.errors import NothingToReadError, TraceFileError, UsageError, printable
from htareport.files.locations import Location, exists, inside, is_file, is_folder, is_remote, located, matching, shown
from htareport.reading.sources.heads import Header, NotATraceError, SavedReportError, read_header
from htareport.reading.text.blocks import NOT_REGULAR, archive_members, archive_of, blocks, open_regular
from htareport.reading.text.unpack import COMPRESSED
from htareport.rows.metadata import plausible_rank
from htareport.rows.options import DEFAULT_OPTIONS, ReadOptions

_JSON_LIKE = re.compile(
    r"\.(?:json|gz|zst|zip|tar|tgz|(?:json|tar)\.(?:bz2|xz|lz4)|tbz2?|txz)$",  # The last are named, and not read.
    re.IGNORECASE,
)
_TRACE_NAME = re.compile(r"\.pt\.trace\.json", re.IGNORECASE)
_RANK_IN_NAME = re.compile(r"(?:rank|worker)[-_ ]?(\d+)", re.IGNORECASE)
_TIME_STAMP_SUFFIX = re.compile(r"\.\d{10,}(?:\.pt)?\.trace\.json(?:\.\w+)?$")
_AT_ONCE = 16  # Files behind URLs whose heads are read at the same time.


@dataclass
class Discovery:
    """What a search came to."""

    ranks: dict[int, tuple[Path, ...]] = field(default_factory=dict)
    left_out: list[tuple[str, str]] = field(default_factory=list)  # Name, reason: JSON that is no trace.
    reports: list[str] = field(default_factory=list)  # Names of our own saved reports, which are no news to anybody.
    unusable: list[tuple[str, str]] = field(default_factory=list)  # Name, reason: traces that cannot be read.
    warnings: list[str] = field(default_factory=list)


@dataclass
class _Heads:
    """What the heads of the files in one file told, or why they could not be told."""

    headers: list[tuple[Path, Header | Exception]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def find_traces(source: Location, options: ReadOptions = DEFAULT_OPTIONS) -> Discovery:
    """Find the traces of a folder, file, glob or archive. NothingToReadError says what was looked for and found."""
    if not str(source):  # Path("") would be the folder we are in, which nobody meant: a shell variable was not set.
        raise UsageError("no traces were named: the path is empty")
    path, named = located(source), shown(source)
    try:
        if is_folder(path):
            files, where = _candidates(inside(path)), f"folder {shown(path)}"
            result = assign(files, explicit=False, options=options)
            if not result.ranks and not result.unusable:  # No trace directly inside, so those below are meant.
                below = (file for file in inside(path, below=True) if file.parent != path)
                files += _candidates(file for file in below if not _hidden(file.relative_to(path)))
                result = assign(files, explicit=False, options=options)
            return _nonempty(result, where, files)
        if exists(path):
            if not is_file(path):
                raise NothingToReadError(f"{named}: {NOT_REGULAR}")
            return _nonempty(assign([path], explicit=True, options=options), f"file {named}", [path])
        if matches := matching(path):
            files = [file for file in matches if is_file(file)]
            return _nonempty(assign(files, explicit=True, options=options), f"pattern {named}", files)
        if archive := archive_of(path):
            if path in (archive_members(archive, options) or ()):
                return _nonempty(assign([path], explicit=True, options=options), f"file {named}", [path])
            raise NothingToReadError(f"{named}: there is no such file in {archive.name}")
    except OSError as error:
        raise NothingToReadError(f"{named}: {error.strerror or error}") from error
    raise NothingToReadError(f"{named}: there is no such file or folder")


def find_among(files: Iterable[Location], options: ReadOptions = DEFAULT_OPTIONS) -> Discovery:
    """Sort files that were named one by one into ranks. NothingToReadError if none is a trace."""
    paths = [located(file) for file in files]
    return _nonempty(assign(paths, explicit=True, options=options), f"{len(paths)} files", paths)


def assign(files: Iterable[Path], *, explicit: bool, options: ReadOptions = DEFAULT_OPTIONS) -> Discovery:
    """Sort files into ranks. A file that was named itself must be a trace; others may be left out.

    Copies with something added stand for a rank only where there are no other traces.
    """
    result, headers = Discovery(), dict[Path, Header]()
    for heads in _read_heads(list(files), options):
        result.warnings += heads.warnings
        for file, header_or_error in heads.headers:
            if isinstance(header_or_error, Header):
                headers[file] = header_or_error
            else:
                _refuse(file, header_or_error, result, explicit=explicit)
    by_rank = dict[int, list[Path]]()
    for file, rank in _numbered(_ranks_of(headers, result), result.warnings):
        by_rank.setdefault(rank, []).append(file)
    result.ranks = {rank: tuple(by_rank[rank]) for rank in sorted(by_rank)}
    return result


def _refuse(file: Path, reason: Exception, result: Discovery, *, explicit: bool) -> None:
    """Note why a file is no trace; of one that nobody named and that is not named like one, nothing is said."""
    name, is_trace = printable(file.name), _TRACE_NAME.search(file.name)
    named = explicit or _JSON_LIKE.search(file.name) or is_trace
    if isinstance(reason, SavedReportError):
        result.reports.append(name)
    elif isinstance(reason, OSError):
        result.unusable.append((name, reason.strerror or str(reason)))
    elif is_trace or (named and isinstance(reason, TraceFileError)):
        result.unusable.append((name, str(reason)))
    elif named and isinstance(reason, NotATraceError):
        result.left_out.append((name, str(reason)))


def _ranks_of(headers: dict[Path, Header], result: Discovery) -> dict[Path, int | None]:
    """Return the rank that each trace gives itself, without copies if there are others."""
    copies = {file for file, header in headers.items() if header.is_copy}
    if len(copies) < len(headers):
        result.left_out += [(printable(file.name), "a copy of a trace with something added") for file in sorted(copies)]
        return {file: header.rank for file, header in headers.items() if file not in copies}
    return {file: header.rank for file, header in headers.items()}


def _numbered(ranks: dict[Path, int | None], warnings: list[str]) -> Iterator[tuple[Path, int]]:
    """Give each file its rank: its own, else that of its name, else the lowest free number in order of name."""
    rank_by_file, nameless, by_name = dict[Path, int](), list[Path](), list[str]()
    shown, num_by_archive = _shown(ranks), Counter(archive_of(file) for file in ranks)
    for file in sorted(ranks, key=str):
        rank, archive = ranks[file], archive_of(file)
        names = (file.name, archive.name) if archive and num_by_archive[archive] == 1 else (file.name,)
        if rank is None and (rank := _rank_in_names(names)) is not None:
            by_name.append(f"{shown[file]} is rank {rank}")
        if rank is None:
            nameless.append(file)
        else:
            rank_by_file[file] = rank
    if by_name:
        warnings.append(f"no rank inside the files, so it is taken from their names: {_few(by_name)}")
    yield from rank_by_file.items()
    used_ranks, processes, numbers = set(rank_by_file.values()), dict[str, int](), list[str]()
    for file in nameless:
        process = _TIME_STAMP_SUFFIX.sub("", str(file))
        if process not in processes:
            processes[process] = next(number for number in count() if number not in used_ranks)
            used_ranks.add(processes[process])
            numbers.append(f"{_TIME_STAMP_SUFFIX.sub('', shown[file])} is rank {processes[process]}")
        yield file, processes[process]
    if len(processes) > 1:
        warnings.append(f"no rank inside the files nor in their names, so they are numbered by name: {_few(numbers)}")


def _rank_in_names(names: Iterable[str]) -> int | None:
    """Return the rank in the name of a file, else in that of the archive of which it is the only trace."""
    matches = (_RANK_IN_NAME.search(name) for name in names)
    return next((plausible_rank(match[1]) for match in matches if match), None)


def _shown(files: Iterable[Path]) -> dict[Path, str]:
    """Return the name of each file, with its folder where several have that name."""
    times = Counter(file.name for file in files)
    named = {file: file.name if times[file.name] == 1 else f"{file.parent.name}/{file.name}" for file in files}
    return {file: printable(name) for file, name in named.items()}


def _few(texts: list[str], max_shown: int = 4) -> str:
    return ", ".join(texts[:max_shown]) + (f" and {len(texts) - max_shown} more" if len(texts) > max_shown else "")


def _read_heads(paths: list[Path], options: ReadOptions) -> Iterator[_Heads]:
    """What the head of each file tells; behind URLs of many at once, since each takes its time to answer."""
    if not any(map(is_remote, paths)):
        yield from (_heads_of(path, options) for path in paths)
        return
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(_heads_of, paths, repeat(options))


def _heads_of(path: Path, options: ReadOptions) -> _Heads:
    """Read the head of a file, or those of the files in an archive."""
    heads = _Heads()
    for file in _members_or_self(path, options, heads.warnings):
        try:
            heads.headers.append((file, read_header(file, options.max_bytes)))
        except (SavedReportError, NotATraceError, TraceFileError, OSError) as reason:
            heads.headers.append((file, reason))
    return heads


def _hidden(path: Path) -> bool:
    return any(name.startswith(".") for name in path.parts)


def _candidates(paths: Iterable[Path]) -> list[Path]:
    """Files that may be traces, by their suffix or by how they begin."""
    return [
        path
        for path in sorted(paths)
        if not path.name.startswith(".") and (is_file(path) or (path.is_symlink() and not path.exists()))
        if _JSON_LIKE.search(path.name) or _TRACE_NAME.search(path.name) or _looks_like_json(path)
    ]


def _looks_like_json(path: Path) -> bool:
    """Whether a file under another suffix begins like a trace, compressed or not."""
    try:
        with open_regular(path) as file:
            start = file.read(64)
        if start.startswith(COMPRESSED):
            start = next(blocks(path), b"")
    except (OSError, TraceFileError):
        return False
    return start.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in {b"{", b"["}


def _members_or_self(path: Path, options: ReadOptions, warnings: list[str]) -> list[Path]:
    try:
        members = archive_members(path, options, warnings.append)
    except (TraceFileError, OSError):
        return [path]  # Named with its reason when it is opened.
    if members is None:
        return [path]
    return [
        member for member in sorted(members) if _JSON_LIKE.search(member.name) and not _hidden(member.relative_to(path))
    ]


def _nonempty(result: Discovery, where: str, files: list[Path]) -> Discovery:
    if not result.ranks:
        raise NothingToReadError(_nothing_found(where, files, result))
    return result


def _nothing_found(where: str, files: list[Path], result: Discovery) -> str:
    looked = "traces (JSON with traceEvents, plain, as .gz or .zst, or in a .zip or .tar) were looked for"
    if not files:
        return f"{where}: {looked}, and no such file was found"
    reasons = [f"{name}: {reason}" for name, reason in (*result.unusable, *result.left_out)]
    reasons += [f"{name}: a saved report, not a trace" for name in result.reports]
    shown = "; ".join(reasons[:3]) + (f"; and {len(reasons) - 3} more" if len(reasons) > 3 else "")  # noqa: PLR2004  so many are shown
    return f"{where}: {looked}; none is usable ({shown or 'no JSON in it'})"
