"""The bytes of a trace file, decompressed, in blocks: plain, gzip, zstd, and members of zip and tar archives.

What a file is is decided by its content, never by its suffix. Nothing here looks at JSON.
"""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from htareport.errors import TraceFileError

try:
    from isal import isal_zlib as zlib  # Three to four times as fast.
except ImportError:  # pragma: no cover  where isal has no wheel
    import zlib

BLOCK = 1 << 20
_READ = 1 << 18
_GZIP, _ZIP, _ZSTD = b"\x1f\x8b", b"PK\x03\x04", b"\x28\xb5\x2f\xfd"
_TAR_MAGIC = slice(257, 262)


def blocks(path: Path) -> Iterator[bytes]:
    """Yield the decompressed bytes in blocks of about 1 MB.

    `path` may go on inside an archive (`run.zip/rank0.json`). TraceFileError if the compressed data end early or are
    damaged; OSError if the file cannot be read.
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
    with path.open("rb") as file:
        start = file.read(512)
    try:
        if start.startswith(_ZIP):
            with zipfile.ZipFile(path) as archive:
                return [path / info.filename for info in archive.infolist() if not info.is_dir()]
        if start[_TAR_MAGIC] == b"ustar" or (start.startswith(_GZIP) and _is_compressed_tar(path)):
            with tarfile.open(path) as tar:
                return [path / member.name for member in tar.getmembers() if member.isfile()]
    except (zipfile.BadZipFile, tarfile.TarError, OSError, EOFError, NotImplementedError) as error:
        raise TraceFileError(f"damaged archive: {error}") from error
    return None


def _is_compressed_tar(path: Path) -> bool:
    """Whether what a gzip file holds begins like a tar; a trace begins like JSON."""
    try:
        return next(blocks(path), b"")[_TAR_MAGIC] == b"ustar"
    except TraceFileError:
        return False


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    archive = next((each for each in path.parents if each.is_file()), None) if not path.exists() else None
    if archive is None:
        with path.open("rb", buffering=0) as raw:
            yield cast("IO[bytes]", raw)
        return
    member = path.relative_to(archive).as_posix()
    with archive.open("rb") as peek:
        is_zip = peek.read(4) == _ZIP
    try:
        if is_zip:
            with zipfile.ZipFile(archive) as zipped, zipped.open(member) as inner:
                yield inner
        else:
            with tarfile.open(archive) as tar:
                yield cast("IO[bytes]", tar.extractfile(member))
    except (zipfile.BadZipFile, tarfile.TarError, KeyError, EOFError, NotImplementedError, RuntimeError) as error:
        raise TraceFileError(f"damaged archive: {error}") from error


def _gunzipped(file: IO[bytes], data: bytes) -> Iterator[bytes]:
    """All members of a gzip stream, one after the other; zero bytes behind them are padding."""
    given, decompressor = 0, zlib.decompressobj(31)
    while True:
        try:
            out = decompressor.decompress(data, BLOCK)
        except zlib.error as error:
            raise TraceFileError(f"the gzip data are damaged behind byte {given} of the content: {error}") from error
        if out:
            given += len(out)
            yield out
        if decompressor.eof:
            data = (decompressor.unused_data or file.read(_READ)).lstrip(b"\0")
            if not data.startswith(_GZIP):
                return
            decompressor = zlib.decompressobj(31)
            continue
        data = decompressor.unconsumed_tail or file.read(_READ)
        if not data:
            raise TraceFileError(f"the gzip data end early, at byte {given} of the content")


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
        while out := reader.read(BLOCK):
            yield out
    except zstandard.ZstdError as error:
        raise TraceFileError(f"the zstd data are damaged: {error}") from error
