"""What lies behind URLs, by fsspec: paths, streams that survive a bad moment of the network, and whole objects.

Loaded only where a URL is named. Architecture invariant: whatever a store's library raises leaves here as an OSError.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import time
from collections.abc import Callable, Iterator
from typing import IO, Any, TypeVar
from urllib.parse import urlsplit

from fsspec.core import has_magic
from upath import UPath

from htareport.errors import HtaReportError, UsageError, without_credentials

MIN_FETCH, MAX_FETCH = 1 << 16, 1 << 22  # Bytes fetched at once: enough for the head of a file, then ever more.
PAUSES = (0.2, 1.0, 4.0)  # Seconds before each new attempt.
PATIENCE_S = 10.0  # After so long there is no new one: the libraries of some stores have made their own by then.
WRITE_BYTES = 8 << 20  # Bytes sent at once.

_WEB = {"http", "https"}
_OF_OURS = {"s3", "s3a", "gs", "gcs", *_WEB}
_FAULTS = (HtaReportError, NotImplementedError, ImportError, MemoryError, TypeError, AttributeError, LookupError)
_GONE, _DENIED = {404, 410}, {401, 403}

Result = TypeVar("Result")


class _NoEndError(OSError):
    """A file has no end to begin from: its server gives it from its beginning only."""


_LASTING = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError, _NoEndError)


def path_of(url: str) -> Any:
    """Return the path of a URL. UsageError if nothing that is installed opens it."""
    shown, protocol = without_credentials(url), url.rpartition("::")[2].partition("://")[0].lower()
    try:
        path = _upath(url)
        path.fs.invalidate_cache()  # What was listed before may have changed.
    except ImportError as error:
        hint = " (pip install 'htareport[remote]' brings it)" if protocol in _OF_OURS else ""
        raise UsageError(f"{shown}: {error}{hint}") from error
    except ValueError as error:
        raise UsageError(f"{shown}: {error}") from error
    except Exception as error:
        raise UsageError(f"{shown}: {_reason(error)}") from error
    return path


def _upath(url: str) -> Any:
    """Return the path of a URL; a query on the web is no part of any name, but goes with each request."""
    split_url = urlsplit(url)
    if split_url.scheme.lower() not in _WEB or not split_url.query:
        return UPath(url)
    return UPath(split_url._replace(query="").geturl(), params=split_url.query)


def is_folder(path: Any) -> bool:
    """Whether there is such a folder. OSError where that cannot be found out."""
    return bool(_tried(path.is_dir))


def exists(path: Any) -> bool:
    """Whether there is such a file or folder. OSError where that cannot be found out."""
    return bool(_tried(path.exists))


def is_file(path: Any) -> bool:
    """Whether there is such a file. OSError where that cannot be found out, where libraries just say no."""
    try:
        return bool(_tried(lambda: path.fs.info(path.path))["type"] == "file")
    except (FileNotFoundError, PermissionError):
        return False


def stat_of(path: Any) -> os.stat_result:
    """Return size and times of a file, 0 for what the server does not tell."""
    stat: os.stat_result = _tried(path.stat)
    return stat


def inside(path: Any, *, below: bool) -> list[Any]:
    """Return what is in a folder, or also what is below it."""
    return _tried(lambda: list(path.rglob("*") if below else path.iterdir()))


def matching(pattern: Any) -> list[Any]:
    """Return the paths that a pattern with `*`, `?` or `[…]` stands for."""
    fs = pattern.fs
    if not has_magic(pattern.path):
        return []
    names = sorted(_tried(lambda: fs.glob(pattern.path)))
    return [UPath(fs.unstrip_protocol(name), **pattern.storage_options) for name in names]


@contextlib.contextmanager
def whole_object(path: Any) -> Iterator[IO[bytes]]:
    """Give a file to write to; its content is there when the block ends, and nothing of it on an error."""
    try:
        with path.fs.transaction, path.open("wb", block_size=WRITE_BYTES) as file:
            yield file
    except NotImplementedError as error:
        raise OSError(None, "files cannot be written there") from error
    except Exception as error:
        if isinstance(error, OSError) or _is_of_a_library(error):
            raise _as_os_error(error) from error
        raise


class Stream(io.RawIOBase):
    """A file to read from: ever larger pieces in one direction, small ones elsewhere, each tried again if it fails.

    Where a server gives files from their beginning only, going back means to read again.
    """

    def __init__(self, path: Any) -> None:
        self._path, self._file = path, None
        self._at, self._held, self._begin, self._size = 0, b"", 0, MIN_FETCH
        self._options = {"cache_type": "none", "block_size": MAX_FETCH}
        self._fetch(0)

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes, though from some servers at the cost of reading again."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to a place; OSError for one from the end where the server does not tell it."""
        if whence == os.SEEK_CUR:
            offset += self._at
        elif whence == os.SEEK_END:
            offset += _tried(self._length)
        self._at = max(0, offset)
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        """Read as much as is held already, else of the next piece."""
        skip = self._at - self._begin
        if not 0 <= skip < len(self._held):
            self._fetch(self._at)
            skip = 0
        data = self._held[skip : skip + len(buffer)]
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        """Let go of the connection."""
        self._drop()
        super().close()

    def _fetch(self, offset: int) -> None:
        """Hold the next piece, which begins at a byte; an empty one at the end."""
        self._size = (
            min(2 * self._size, MAX_FETCH) if self._held and offset == self._begin + len(self._held) else MIN_FETCH
        )
        self._held, self._begin = _tried(lambda: self._read(offset), self._drop), offset

    def _read(self, offset: int) -> bytes:
        try:
            return self._read_once(offset)
        except ValueError:  # A server of the web that does not say so before: it gives whole files only.
            if self._path.protocol not in _WEB or not self._options["block_size"]:
                raise
        self._drop()
        self._options = {"block_size": 0}
        return self._read_once(offset)

    def _read_once(self, offset: int) -> bytes:
        file = self._opened()
        if file.tell() != offset:
            try:
                file.seek(offset)
            except ValueError:  # It can only be read on.
                if file.tell() > offset:
                    self._drop()
                    file = self._opened()
                while (left := offset - file.tell()) > 0 and file.read(min(left, MAX_FETCH)):
                    pass
        return bytes(file.read(self._size))

    def _length(self) -> int:
        try:
            return int(self._opened().seek(0, os.SEEK_END))
        except ValueError as error:
            raise _NoEndError(None, "its server gives files from the beginning only, not from their middle") from error

    def _opened(self) -> Any:
        if self._file is None:
            self._file = self._path.open("rb", **self._options)
        return self._file

    def _drop(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(Exception):
                file.close()


def _tried(action: Callable[[], Result], before_retry: Callable[[], object] = lambda: None) -> Result:
    """Do something that needs the network, several times if it fails for the moment. OSError if it keeps failing."""
    begin = time.monotonic()
    for pause in (*PAUSES, None):
        try:
            return action()
        except _FAULTS:
            raise
        except Exception as error:
            os_error = _as_os_error(error)
            if pause is None or isinstance(os_error, _LASTING) or time.monotonic() - begin > PATIENCE_S:
                raise os_error from error
        before_retry()
        time.sleep(pause)
    raise AssertionError


def _as_os_error(error: Exception) -> Exception:
    """Return what a store's library raised as an OSError with a reason, without what lets others in."""
    if isinstance(error, HtaReportError):
        return error
    cause = error.__cause__
    if isinstance(error, FileNotFoundError) and cause is not None and type(cause).__module__.startswith("aiohttp"):
        error = cause if isinstance(cause, Exception) and getattr(cause, "status", None) not in _GONE else error
    if getattr(error, "status", None) in _DENIED:
        return PermissionError(None, _reason(error))
    if isinstance(error, FileNotFoundError) and " " not in str(error):  # Only the name of the file.
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    kind = type(error) if isinstance(error, _LASTING) else OSError
    return kind(None, _reason(error))


def _is_of_a_library(error: Exception) -> bool:
    return type(error).__module__.partition(".")[0] not in {"builtins", "htareport"}


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return without_credentials(" ".join(str(text).split()))
