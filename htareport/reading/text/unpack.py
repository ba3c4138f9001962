"""Streams of bytes, unpacked in blocks: plain, gzip and zstd, told apart by how they begin.

Whatever is wrong with packed data, everything before the damage is given first, and then the error.
"""

from __future__ import annotations

import contextlib
import io
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, Protocol, cast

from htareport.errors import TraceFileError

_inflate: Any
try:
    from isal import isal_zlib as _inflate  # Three to four times as fast.
except ImportError:  # pragma: no cover  where isal has no wheel
    _inflate = zlib

INFLATED_BY = str(_inflate.__name__)
BLOCK = 1 << 20
READ = 1 << 18
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
COMPRESSED = (_GZIP, _ZSTD)
_ZIP, _TAR, _TAR_MAGIC = b"PK\x03\x04", b"ustar", slice(257, 262)
_EMPTY_ZIP = b"PK\x05\x06"
_NOT_READ = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x04\x22\x4d\x18": "lz4", b"7z\xbc\xaf\x27\x1c": "7-Zip"}
_WITH_GZIP_HEADER = 31
_ZLIB_SAYS = "Error -3 while decompressing data: "


class DamagedDataError(TraceFileError):
    """Packed data that end early or are damaged; what could be unpacked was given before."""


class Readable(Protocol):
    """What bytes are read from: a file, a member of an archive, or blocks."""

    def read(self, size: int = -1, /) -> bytes:
        """Return up to so many bytes, none at the end."""


class Reread:
    """Blocks as something to read from, for libraries that want a file. Where they are damaged they end."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._held = blocks, bytearray()
        self.damage: DamagedDataError | None = None

    def read(self, size: int = -1, /) -> bytes:
        """Return up to so many bytes, fewer only at the end; everything for a negative size."""
        while size < 0 or len(self._held) < size:
            try:
                self._held += next(self._blocks)
            except StopIteration:
                break
            except DamagedDataError as error:
                self.damage = error
                break
        size = len(self._held) if size < 0 else size
        data = bytes(self._held[:size])
        del self._held[:size]
        return data


def unpacked(
    opened: Callable[[], contextlib.AbstractContextManager[Readable]], content_name: str = "the content"
) -> Iterator[bytes]:
    """Yield the content of a stream, which `opened` opens at its beginning, in blocks of about 1 MB.

    `content_name` is what that is, for the place of a damage. DamagedDataError behind the last block if packed data end
    early or are damaged.
    """
    with opened() as file:
        start = file.read(READ)
        if start.startswith(_ZSTD):
            yield from _unzstd(file, start, content_name=content_name)
            return
        if not start.startswith(_GZIP):
            while start:
                yield start
                start = file.read(BLOCK)
            return
        num_yielded = 0
        try:
            for block in inflated(file, start, _inflate.decompressobj, what=("gzip", content_name)):
                num_yielded += len(block)
                yield block
        except DamagedDataError:
            pass
        else:
            return
    with opened() as file:  # What a decompressor held back when it failed is got by a slower one.
        for block in inflated(file, file.read(READ), Careful, what=("gzip", content_name)):
            if num_yielded < len(block):
                yield block[num_yielded:]
            num_yielded = max(0, num_yielded - len(block))


def begin_of(start: bytes, size: int) -> bytes:
    """Return up to `size` bytes of what packed data hold, of which the first bytes are given; none if that fails."""
    try:
        if start.startswith(_ZSTD):
            return next(_unzstd(io.BytesIO(), start, size), b"")
        return next(inflated(io.BytesIO(), start, _inflate.decompressobj, size), b"")
    except DamagedDataError:
        return b""


def archive_kind(start: bytes) -> str:
    """Tell by its first bytes whether a file is a `zip`, a `tar`, a compressed one (`tar+`), or no archive."""
    if start.startswith(_ZIP):
        return "zip"
    if start[_TAR_MAGIC] == _TAR:
        return "tar"
    is_packed = start.startswith(COMPRESSED)
    return "tar+" if is_packed and begin_of(start, _TAR_MAGIC.stop)[_TAR_MAGIC] == _TAR else ""


def not_read(start: bytes) -> str:
    """Say why something packed is not read, by how its content begins where all that is read is unpacked."""
    if archive_kind(start):
        return "an archive in an archive; unpack the outer one"
    if start.startswith(_EMPTY_ZIP) or not start.strip(b"\0"):  # A tar without members is zeros.
        return "an empty archive" if start.startswith(_EMPTY_ZIP) else "zeros where JSON begins, as in an empty tar"
    if start.startswith(COMPRESSED):
        return "packed twice; unpack it once"
    packer = next((name for magic, name in _NOT_READ.items() if start.startswith(magic)), "")
    return f"packed by {packer}, which is not read; gzip and zstd are" if packer else ""


class Careful:
    """zlib's decompressor; data that it refuses are tried byte by byte, so that nothing before the fault is lost."""

    def __init__(self, wbits: int) -> None:
        self._zlib = zlib.decompressobj(wbits)
        self._fault: zlib.error | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._zlib, name)

    def decompress(self, data: bytes, size: int) -> bytes:
        """Return up to so many bytes; zlib.error where there are none before the fault."""
        if self._fault:
            raise self._fault
        before = self._zlib.copy()
        try:
            return self._zlib.decompress(data, size)
        except zlib.error as error:
            self._zlib, self._fault = before, error
        out = bytearray()
        with contextlib.suppress(zlib.error):
            for index in range(len(data)):
                out += self._zlib.decompress(data[index : index + 1])
        return bytes(out)


def inflated(
    file: Readable,
    data: bytes,
    new_decompressor: Callable[[int], Any],
    size: int | None = None,
    what: tuple[str, str] = ("gzip", "the content"),
) -> Iterator[bytes]:
    """Yield all members of a gzip stream, one after the other; zero bytes behind them are padding.

    Its first bytes were read already. DamagedDataError, which names `what` they are and hold, behind the last block.
    """
    num_yielded, decompressor = 0, new_decompressor(_WITH_GZIP_HEADER)
    while True:
        try:
            out = decompressor.decompress(data, size or BLOCK)
        except (_inflate.error, zlib.error) as error:
            reason = str(error).removeprefix(_ZLIB_SAYS)
            raise DamagedDataError(
                f"the {what[0]} data are damaged behind byte {num_yielded} of {what[1]}: {reason}"
            ) from error
        if out:
            num_yielded += len(out)
            yield out
        if decompressor.eof:
            data = _skip_padding(file, decompressor.unused_data)
            if not data.startswith(_GZIP):
                return
            decompressor = new_decompressor(_WITH_GZIP_HEADER)
            continue
        data = decompressor.unconsumed_tail or file.read(READ)
        if not data and not out:
            raise DamagedDataError(f"the {what[0]} data end early, at byte {num_yielded} of {what[1]}")


def _skip_padding(file: Readable, data: bytes) -> bytes:
    """What follows a gzip member, from its first byte that is not zero on; enough to tell what it is."""
    data = data.lstrip(b"\0")
    while len(data) < len(_GZIP) and (more := file.read(READ)):
        data = (data + more).lstrip(b"\0")
    return data


def _unzstd(
    file: Readable, start: bytes, size: int | None = None, content_name: str = "the content"
) -> Iterator[bytes]:
    import zstandard  # noqa: PLC0415  few traces need it

    class Joined:
        """The file with the bytes that were looked at put back."""

        pending = start

        def read(self, size: int = -1) -> bytes:
            data, self.pending = self.pending, b""
            return data or file.read(size)

    reader = zstandard.ZstdDecompressor().stream_reader(cast("IO[bytes]", Joined()), read_across_frames=True)
    num_yielded = 0
    try:
        while out := reader.read(size or BLOCK):
            num_yielded += len(out)
            yield out
    except zstandard.ZstdError as error:
        raise DamagedDataError(
            f"the zstd data are damaged behind byte {num_yielded} of {content_name}: {error}"
        ) from error
    if not num_yielded:
        raise DamagedDataError("the zstd data end early, or hold nothing")
