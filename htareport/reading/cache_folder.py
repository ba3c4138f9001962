"""The folder of the cache: files that appear whole or not at all, for this user alone, bounded in size.

Several processes may look into it, write to it and tidy it up at once: each file is written under a name of its own and
then given its place in one step, and one that was removed meanwhile is one that is not there.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO

VARIABLE = "HTAREPORT_CACHE"
MAX_BYTES = 20 * 10**9  # Of the whole folder; those not used for longest are removed first.
_SUFFIX, _UNFINISHED = ".rank", ".part"
_BETWEEN = 1 << 28  # Bytes that a process writes before it looks again whether the folder is too large.
_GIVEN_UP_S = 86_400  # Age at which a file that was never finished is removed: its process was killed.
_written: defaultdict[Path, int] = defaultdict(lambda: _BETWEEN)  # By folder, since it was looked at.
_lock = threading.Lock()

log = logging.getLogger(__name__)


def folder(setting: Path | bool) -> Path | None:  # noqa: FBT001  it is what ReadOptions holds
    """Return the folder that was chosen, or the user's own; None for no cache. It need not be there yet."""
    if isinstance(setting, Path):
        return setting
    if not setting:
        return None
    if named := os.environ.get(VARIABLE):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):  # noqa: PTH117  others are to be passed over, says the XDG Base Directory Specification
        return Path(base) / "htareport"
    try:
        return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "htareport"
    except RuntimeError:  # A user without a home.
        return None


def find_file(directory: Path, name: str) -> Path | None:
    """Return the file of a name, marked as used just now; None if there is none, or another user's."""
    path = directory / (name + _SUFFIX)
    try:
        if path.stat().st_uid != os.geteuid():
            return None
        os.utime(path)
    except OSError:
        return None
    return path


def put(directory: Path, name: str, write: Callable[[IO[bytes]], object]) -> int:
    """Write a file and return its size. OSError where that cannot be done; nothing is left then."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=directory, suffix=_UNFINISHED, delete=False) as file:  # Which nobody else can read.
        unfinished = Path(file.name)
        try:
            write(file.file)
            file.close()
            size = unfinished.stat().st_size
            unfinished.replace(directory / (name + _SUFFIX))
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
    with _lock:
        _written[directory] += size
        is_due = _written[directory] >= _BETWEEN
        if is_due:
            _written[directory] = 0
    if is_due:
        tidy(directory)
    return size


def tidy(directory: Path, max_bytes: int | None = None) -> None:
    """Remove what was never finished, and as many files as need be for the others to be within the limit."""
    bytes_left, files = MAX_BYTES if max_bytes is None else max_bytes, list[tuple[float, int, Path]]()
    with os.scandir(directory) as entries:
        for entry in entries:
            path = Path(entry.path)
            if path.suffix not in {_SUFFIX, _UNFINISHED}:
                continue
            try:
                stat = entry.stat(follow_symlinks=False)
                if path.suffix == _SUFFIX:
                    files.append((stat.st_mtime, stat.st_size, path))
                elif stat.st_mtime < time.time() - _GIVEN_UP_S:
                    path.unlink(missing_ok=True)
            except OSError:  # Removed by another process.
                continue
    for _, size, path in sorted(files, reverse=True):
        bytes_left -= size
        if bytes_left < 0:
            log.info("%s is removed: it was not used for longest", path.name)
            path.unlink(missing_ok=True)
