"""The bytes of a trace file, decompressed, in blocks: plain, gzip, zstd, and members of zip and tar archives.

What a file is is decided by its content, never by its suffix. Nothing here looks at JSON.
"""

from __future__ import annotations

import gzip
import lzma
import posixpath
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from htareport.errors import TraceFileError

_inflate: Any
try:
    from isal import isal_zlib as _inflate  # Three to four times as fast.
except ImportError:  # pragma: no cover  where isal has no wheel
    _inflate = zlib

BLOCK = 1 << 20
_READ = 1 << 18
_GZIP, _ZIP, _ZSTD = b"\x1f\x8b", b"PK\x03\x04", b"\x28\xb5\x2f\xfd"
COMPRESSED = (_GZIP, _ZSTD)
NOT_REGULAR = "not a regular file but a pipe, socket or device; save what it gives to a file"
_TAR_MAGIC = slice(257, 262)
# What the standard library raises for damaged archives: KeyError for a member that is not there, RuntimeError and
# NotImplementedError for one that is encrypted or packed in a way it does not know.
_DAMAGED = (
    *(zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, lzma.LZMAError),
    *(EOFError, KeyError, ValueError, OverflowError, RuntimeError),
)


def blocks(path: Path) -> Iterator[bytes]:
    """Yield the decompressed bytes in blocks of about 1 MB.

    `path` may go on inside an archive (`run.zip/rank0.json`); an archive itself stands for the only file in it.
    TraceFileError if the compressed data end early or are damaged; OSError if the file cannot be read.
    """
    with _opened(path) as file:
        start = file.read(_READ)
        if start.startswith(_GZIP):
            yield from _gunzipped(file, start)
        elif start.startswith(_ZSTD):
            yield from _unzstd(file, start)
        else:
            while start:
                yield start
                start = file.read(BLOCK)


def archive_members(path: Path) -> list[Path] | None:
    """Return the files inside a zip or tar (also compressed), as paths below it; None if it is no archive."""
    try:
        with open_regular(path) as file:
            kind = _archive_kind(file.read(_READ))
        if kind == "zip":
            with zipfile.ZipFile(path) as archive:
                return [path / _clean(info.filename) for info in archive.infolist() if not info.is_dir()]
        if kind == "tar":
            with tarfile.open(path) as tar:
                return [path / _clean(member.name) for member in tar if member.isfile()]
    except _DAMAGED as error:
        raise _damaged(error) from error
    return None


def open_regular(path: Path) -> IO[bytes]:
    """Open a file. TraceFileError for a pipe, socket or device: it may never answer or never end, and is read twice."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # A folder gets the system's own message.
        raise TraceFileError(NOT_REGULAR)
    return cast("IO[bytes]", path.open("rb", buffering=0))


def exists(path: Path) -> bool:
    """Whether there is such a file, or an archive that may hold it."""
    return path.exists() or archive_of(path) is not None


def archive_of(path: Path) -> Path | None:
    """Return the file within which a path lies that is no file itself; None if there is no such."""
    return next((each for each in path.parents if each.is_file()), None)


def _archive_kind(start: bytes) -> str:
    """Tell by its first bytes whether a file is a `zip`, a `tar`, or no archive."""
    if start.startswith(_ZIP):
        return "zip"
    if start.startswith(_GZIP):
        try:
            start = _inflate.decompressobj(31).decompress(start, 512)
        except _inflate.error:
            return ""
    return "tar" if start[_TAR_MAGIC] == b"ustar" else ""


def _clean(member: str) -> str:
    """Return the name of a member as a path below its archive: `./rank0.json` and `/rank0.json` are `rank0.json`."""
    return posixpath.normpath("/" + member).lstrip("/")


def _damaged(error: Exception) -> TraceFileError:
    return TraceFileError(f"damaged archive: {' '.join(str(error).split()) or type(error).__name__}")


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    if not path.exists() and (archive := archive_of(path)):
        with _member(archive, path.relative_to(archive).as_posix()) as inner:
            yield inner
        return
    with open_regular(path) as raw:
        kind = _archive_kind(raw.read(_READ))
        if not kind:
            raw.seek(0)
            yield raw
            return
    members = archive_members(path) or []
    if len(members) != 1:
        raise TraceFileError(f"an archive of {len(members)} files, not one")
    with _opened(members[0]) as inner:
        yield inner


@contextmanager
def _member(archive: Path, name: str) -> Iterator[IO[bytes]]:
    """A file inside an archive, decompressed as it is read."""
    with archive.open("rb") as peek:
        is_zip = peek.read(4) == _ZIP
    try:
        if is_zip:
            with zipfile.ZipFile(archive) as zipped:
                found = next((info for info in zipped.infolist() if _clean(info.filename) == name), name)
                with zipped.open(found) as inner:
                    yield inner
        else:
            with tarfile.open(archive) as tar:  # Member by member: a compressed tar is read up to this one, once.
                member = next((each for each in tar if each.isfile() and _clean(each.name) == name), None)
                if member is None:
                    raise TraceFileError(f"no {name} in {archive.name}")
                yield cast("IO[bytes]", tar.extractfile(member))
    except _DAMAGED as error:
        raise _damaged(error) from error


def _gunzipped(file: IO[bytes], data: bytes) -> Iterator[bytes]:
    """All members of a gzip stream, one after the other; zero bytes behind them are padding."""
    given, decompressor = 0, _inflate.decompressobj(31)
    while True:
        try:
            out = decompressor.decompress(data, BLOCK)
        except _inflate.error as error:
            raise TraceFileError(f"the gzip data are damaged behind byte {given} of the content: {error}") from error
        if out:
            given += len(out)
            yield out
        if decompressor.eof:
            data = _behind_padding(file, decompressor.unused_data)
            if not data.startswith(_GZIP):
                return
            decompressor = _inflate.decompressobj(31)
            continue
        data = decompressor.unconsumed_tail or file.read(_READ)
        if not data and not out:
            raise TraceFileError(f"the gzip data end early, at byte {given} of the content")


def _behind_padding(file: IO[bytes], data: bytes) -> bytes:
    """What follows a gzip member, from its first byte that is not zero on; enough to tell what it is."""
    data = data.lstrip(b"\0")
    while len(data) < len(_GZIP) and (more := file.read(_READ)):
        data = (data + more).lstrip(b"\0")
    return data


def _unzstd(file: IO[bytes], start: bytes) -> Iterator[bytes]:
    import zstandard  # noqa: PLC0415  few traces need it

    class Joined:
        """The file with the bytes that were looked at put back."""

        pending = start

        def read(self, size: int = -1) -> bytes:
            data, self.pending = self.pending, b""
            return data or file.read(size)

    reader = zstandard.ZstdDecompressor().stream_reader(cast("Any", Joined()), read_across_frames=True)
    try:
        out = reader.read(BLOCK)
        if not out:
            raise TraceFileError("the zstd data end early, or hold nothing")
        while out:
            yield out
            out = reader.read(BLOCK)
    except zstandard.ZstdError as error:
        raise TraceFileError(f"the zstd data are damaged: {error}") from error
