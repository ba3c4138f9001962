"""Reads a rank once: what its files gave is kept in a folder, and read from there the next time.

The way of a rank:

    files ─▶ key ─▶ is there a file of that name in the folder? ─ yes ─▶ stored.read, checked ─▶ Loaded
                          │ no, or it is damaged                                                   ▲
                          └▶ capture.load_rank (decode, repair, set aside, join) ─▶ stored.write ──┘

What is kept is all that reading a rank gives (`Loaded`: tables, texts, metadata, repairs, what was salvaged, warnings)
before anything is chosen that differs between runs: the window of steps, what is redacted, the analyses. So every
command profits from what another one has read, and a report is the same to the byte with and without.

The key is a hash of what the content can depend on: of each file its name, size, times of modification and of change,
first and last 64 KB, and its place in an archive; the options that change what is read; the patterns that tell kernels
apart by name; the source of the code that reads, and the versions of what it reads with. A file that was written within
the last two seconds is read, but not kept, since it could be written to once more without its times showing it; neither
is one behind a URL whose server tells no time. What could go unnoticed is a change behind the back of the file system:
in the middle of a plain file of the same size, its times of change set back as well.

Nothing here raises: whatever is wrong with the cache costs the time it would have saved, and a line in the log.
"""

from __future__ import annotations

import hashlib
import json
import logging
import platform
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import orjson

from htareport._version import __version__
from htareport.errors import TraceFileError
from htareport.files.locations import exists, stat_of
from htareport.reading import cache_folder, capture
from htareport.reading.text import unpack
from htareport.reading.text.blocks import archive_of, open_regular
from htareport.reading.text.decode import Reader
from htareport.rows import classify
from htareport.rows.capture import Loaded
from htareport.rows.options import DEFAULT_OPTIONS, ReadOptions

PACKAGE = Path(__file__).parents[1]
_ROOMS = ("algorithms", "files", "plugins", "reading", "report", "rows")  # That this one loads; beside the root.
MIN_BYTES = 300_000  # Of a rank on disk: smaller ones are read as fast as they are looked up.
MIN_EVENTS = 20_000  # Likewise, of a rank whose files are packed less tightly.
SETTLED_NS = 2 * 10**9  # The coarsest time stamps of a file system that are in use.
_END_BYTES = 1 << 16  # Bytes at the beginning and the end of a file that are part of its key.

_NUMBERED = "-numbered"
_IMPORTED_NS = time.time_ns()  # About when this process imports all that reads and measures.

log = logging.getLogger(__name__)


def is_possible() -> bool:
    """Whether the library is there that writes and reads what is kept."""
    return find_spec("pyarrow") is not None


def load_rank(paths: tuple[Path, ...], options: ReadOptions | None = None, numbered: Reader | None = None) -> Loaded:
    """Read the files of a rank, in order of name, or take from the cache what was read of them before.

    TraceFileError if none can be used. `numbered` is the reader for those who need the place of each event; a rank that
    was read so serves others, too.
    """
    how, state = options or DEFAULT_OPTIONS, state_of(paths, options)
    if state is None:
        return capture.load_rank(_in_order(paths), how, numbered)
    folder, key, paths = state.folder, state.key, state.paths
    names = [key + _NUMBERED] if numbered else [key, key + _NUMBERED]
    for name in names:
        if (loaded := _read_cached(folder, name, paths, how, numbered=numbered is not None)) is not None:
            return loaded
    loaded = capture.load_rank(paths, how, numbered)
    if not loaded.is_transient and is_large(sum(file.events for file in loaded.captures)) and state.still_holds():
        _store(folder, names[0], loaded, paths)
    return loaded


@dataclass(frozen=True)
class State:
    """The files of a rank, in order of name, as they were at a time: what reading them can depend on, as a key."""

    folder: Path  # Of the cache.
    key: str
    paths: tuple[Path, ...]
    options: ReadOptions
    at_ns: int

    def still_holds(self) -> bool:
        """Whether the files are what they were then, and would show it by their times if they were not."""
        return _is_settled(self.paths, self.at_ns) and _key(self.paths, self.options) == self.key


def state_of(paths: tuple[Path, ...], options: ReadOptions | None = None) -> State | None:
    """Return the state of a rank's files now; None where nothing is kept of them."""
    how, paths, now = options or DEFAULT_OPTIONS, _in_order(paths), time.time_ns()
    folder = cache_folder.folder(how.cache) if is_possible() else None
    key = _key(paths, how) if folder else None
    return None if folder is None or key is None else State(folder, key, paths, how, now)


def _in_order(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    return tuple(sorted(paths, key=lambda path: (path.name, str(path))))


def is_large(events: int) -> bool:
    """Whether a rank of so many events is worth keeping."""
    return events >= MIN_EVENTS


def _read_cached(
    folder: Path, name: str, paths: tuple[Path, ...], options: ReadOptions, *, numbered: bool
) -> Loaded | None:
    """Read a rank that was kept under a name; None where there is none, or its file is damaged."""
    if (file := cache_folder.find_file(folder, name)) is None:
        return None
    try:
        from htareport.reading import stored  # noqa: PLC0415  pyarrow is loaded by those who read or write

        loaded = stored.read(file, paths, options, numbered=numbered)
    except Exception as error:  # noqa: BLE001  whatever is wrong with it, the trace is there to be read
        log.info("%s is no use: %s: %s", file.name, type(error).__name__, error)
        return None
    log.info("%s is read from %s", ", ".join(capture.name for capture in loaded.captures), file.name)
    return loaded


def _store(folder: Path, name: str, loaded: Loaded, paths: tuple[Path, ...]) -> None:
    try:
        from htareport.reading import stored  # noqa: PLC0415  as above

        size = cache_folder.put(folder, name, lambda file: stored.write(loaded, paths, file, name))
    except Exception as error:  # noqa: BLE001  a full disk, a folder nobody may write to, texts no file can hold
        log.info("nothing is kept in %s: %s: %s", folder, type(error).__name__, error)
        return
    log.info("%s: %d bytes are kept in %s", ", ".join(capture.name for capture in loaded.captures), size, folder)


def _is_settled(paths: tuple[Path, ...], now: int) -> bool:
    """Whether a file that is written to from now on will show it by its times."""
    try:
        stats = [stat_of(_on_disk(path)) for path in paths]
    except OSError:
        return False
    return all(max(stat.st_mtime_ns, getattr(stat, "st_ctime_ns", 0)) < now - SETTLED_NS for stat in stats)


# --- the key


def _key(paths: tuple[Path, ...], options: ReadOptions) -> str | None:
    """Hash all that reading these files can depend on; None where they are too small, or cannot be read."""
    try:
        states = [_state(path) for path in paths]
    except (OSError, TraceFileError):
        return None
    if sum(size for _, size, *_ in states) < MIN_BYTES:
        return None
    tables = [classify.COMMUNICATION_NAMES, classify.MEMORY_NAMES, classify.NO_WORK_NAMES]  # Users may add to them.
    if (code := _code()) is None:
        return None
    dependencies = [states, options.salvage, options.max_bytes, tables, code]
    return hashlib.sha256(json.dumps(dependencies).encode()).hexdigest()[:40]


def _state(path: Path) -> tuple[Any, ...]:
    """What changes when a file does: its name and place in an archive, size, times, first and last bytes.

    OSError for one of which no time is known, of which only the size and the ends would tell.
    """
    on_disk = _on_disk(path)
    state = stat_of(on_disk)
    times = [getattr(state, name, 0) for name in ("st_mtime_ns", "st_ctime_ns")]
    if not any(times):
        raise OSError(None, "no time is known")
    with open_regular(on_disk) as file:
        ends = hashlib.sha256(file.read(_END_BYTES))
        file.seek(max(0, state.st_size - _END_BYTES))
        ends.update(file.read(_END_BYTES))
    inside = "" if on_disk == path else path.relative_to(on_disk).as_posix()
    return path.name, state.st_size, *times, ends.hexdigest(), inside


def _on_disk(path: Path) -> Path:
    """The file itself, or the archive that it lies in."""
    return path if exists(path) else archive_of(path) or path


@cache
def _code() -> list[str] | None:
    """What reads: the source of this room and of all that it imports, and the versions of what it reads with."""
    sources = digest_of(sources_of_reading())
    library_versions = [module.__version__ for module in (msgspec, np, orjson)]
    versions = [platform.python_version(), unpack.INFLATED_BY, *library_versions]
    return None if sources is None else [__version__, sources, *versions]


def sources_of_reading() -> Iterator[Path]:
    """The source files that decide what is read from a trace: those that this module loads, directly or not."""
    yield from PACKAGE.glob("*.py")
    for subpackage in _ROOMS:
        yield from (PACKAGE / subpackage).rglob("*.py")


def digest_of(sources: Iterable[Path]) -> str | None:
    """Hash source files of the package; None if one was changed since this process began, which runs what it was."""
    digest = hashlib.sha256()
    for source in sorted(sources):
        if source.stat().st_ctime_ns > _IMPORTED_NS:
            log.info("nothing is kept: htareport was changed since this process began")
            return None
        digest.update(f"{source.relative_to(PACKAGE)}\0".encode() + source.read_bytes())
    return digest.hexdigest()
