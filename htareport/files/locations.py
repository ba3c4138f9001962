"""Where files are: a folder of this machine, or whatever fsspec opens (s3://, gs://, https://, …), as paths alike.

Architecture invariants: for files of this machine nothing here costs anything or loads anything; a URL is read as a
stream, in ranges, and never copied to the disk.
"""

from __future__ import annotations

import glob
import importlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

from htareport.errors import UsageError, without_credentials

Location: TypeAlias = str | Path  # A Path is one of pathlib, or a UPath, which has the same methods.
Files: TypeAlias = Location | Iterable[Location]  # Of one rank.

_URL = re.compile(r"(?:[a-z][a-z0-9+.-]*::)*[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_FILE = "file://"


def located(location: Location) -> Path:
    """Return the path of a name or URL. UsageError, naming what to install, where no library is there for a URL."""
    if not isinstance(location, str):
        return location
    if location.lower().startswith(_FILE):
        return Path(location[len(_FILE) :])
    return cast("Path", _remote(location).path_of(location)) if _URL.match(location) else Path(location)


def is_remote(path: Path) -> bool:
    """Whether a path is that of a URL."""
    return not isinstance(path, Path)


def paths_of(locations: Location | Iterable[Location]) -> tuple[Path, ...]:
    """Return the paths of one place or of several."""
    if isinstance(locations, str) or not isinstance(locations, Iterable):
        return (located(locations),)
    return tuple(map(located, locations))


def shown(path: Location) -> str:
    """Return a place as it may be shown: a URL without what lets others in."""
    return without_credentials(str(path))


def resolved(path: Path) -> Path:
    """Return a path by which equal files are equal, as far as links can tell."""
    return path if is_remote(path) else path.resolve()


def is_folder(path: Path) -> bool:
    """Whether there is such a folder. OSError where that cannot be found out."""
    return bool(_remote(path).is_folder(path)) if is_remote(path) else path.is_dir()


def exists(path: Path) -> bool:
    """Whether there is such a file or folder. OSError where that cannot be found out."""
    return bool(_remote(path).exists(path)) if is_remote(path) else path.exists()


def is_file(path: Path) -> bool:
    """Whether there is such a file. OSError where that cannot be found out."""
    return bool(_remote(path).is_file(path)) if is_remote(path) else path.is_file()


def inside(path: Path, *, below: bool = False) -> list[Path]:
    """Return what is in a folder, or also what is below it. OSError where that cannot be found out."""
    if is_remote(path):
        return cast("list[Path]", _remote(path).inside(path, below=below))
    return list(path.rglob("*") if below else path.iterdir())


def matching(pattern: Path) -> list[Path]:
    """Return what a pattern with `*`, `?` or `[…]` stands for, in order of name."""
    if is_remote(pattern):
        return cast("list[Path]", _remote(pattern).matching(pattern))
    return [Path(name) for name in sorted(glob.glob(str(pattern), recursive=True))]  # noqa: PTH207  relative to where we are


def named(path: Path) -> str:
    """Return what a file or folder is called; one called `.` by its own name, as far as it has one."""
    if is_remote(path):
        return path.name or shown(path).rstrip("/").rpartition("/")[2]
    try:
        name = path.resolve().name
    except (OSError, RuntimeError):  # The folder we are in was deleted; a link that leads to itself.
        name = path.name
    return name or str(path)


def reading(path: Path) -> IO[bytes]:
    """Open a file to read from it, without a buffer. OSError where that cannot be."""
    return cast("IO[bytes]", _remote(path).Stream(path) if is_remote(path) else path.open("rb", buffering=0))


def size_of(path: Path) -> int:
    """Return the bytes of a file, 0 where the server does not tell."""
    return stat_of(path).st_size or 0


def stat_of(path: Path) -> os.stat_result:
    """Return size and times of a file; 0 for a time that the server does not tell."""
    return cast("os.stat_result", _remote(path).stat_of(path)) if is_remote(path) else path.stat()


def _remote(location: Location) -> Any:
    """Load what URLs need."""
    try:
        return importlib.import_module("htareport.files.remote")
    except ImportError as error:
        raise UsageError(f"{location}: URLs need more packages: pip install 'htareport[remote]' ({error})") from error
