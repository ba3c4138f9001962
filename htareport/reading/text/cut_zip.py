"""A zip archive whose directory, which stands at its end, is lost: it was cut off while it was written or copied.

Its members are found by the headers that stand before each of them, and where those give no size, which a writer fills
in later or puts behind the data, by what follows. The standard library reads none of that; libraries that do read
streams, stop at the first fault, and bring a cryptography package. Nothing is unpacked here but what is asked for.
"""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from itertools import chain, zip_longest
from typing import IO, NamedTuple

from htareport.errors import printable
from htareport.reading.text.unpack import BLOCK, READ, Careful, DamagedDataError, inflated

_SIGNATURE = re.compile(rb"PK(?:\x03\x04|\x01\x02)")  # Of a member, and of an entry of the directory.
_HEADER = struct.Struct("<4s5H3L2H")
_EXTRA = struct.Struct("<2H")
_ZIP64, _IN_ZIP64 = 1, 0xFFFFFFFF
_METHODS = {0, 8, 9, 12, 14, 93, 95, 98, 99}  # Known ones: what has another is no header.
_ENCRYPTED, _UTF8 = 0x1, 0x800
_LATEST = 63  # Version 6.3 of the format; what needs a later one is no header.
_MAX_MEMBERS = 100_000
_MAX_TRAILER = 24
# Behind the data there may be the checksum and both sizes, of 4 or 8 bytes each, with a signature before them or not.
_TRAILERS = tuple((size, extra + 4 + 2 * size) for size in (4, 8) for extra in (0, 4))


class Member(NamedTuple):
    """A file in the archive: where its packed data lie, as far as that can be told."""

    name: str
    method: int
    flags: int
    start: int
    end: int
    is_whole: bool  # False if `end` is no more than where something else begins.
    checksum: int | None


class _Header(NamedTuple):
    offset: int
    name: str
    method: int
    flags: int
    start: int
    packed: int  # Bytes; 0 for none, and where they are not known.
    checksum: int


def members(file: IO[bytes]) -> list[Member]:
    """Return the members of an archive by their own headers, in their order. DamagedDataError for too many."""
    size, headers = file.seek(0, 2), list[_Header]()
    ends = dict[int, tuple[int, int] | None]()  # By start of the data: their end and checksum, as stand behind them.
    for offset in chain(_signatures(file), (size,)):
        trailer = _read_at(file, max(0, offset - _MAX_TRAILER), min(offset, _MAX_TRAILER)).rjust(_MAX_TRAILER, b"\0")
        for width, length in _TRAILERS:
            start = offset - length - int.from_bytes(trailer[-2 * width : -width], "little")
            if ends.get(start, 0) is None:
                ends[start] = offset - length, int.from_bytes(trailer[-2 * width - 4 : -2 * width], "little")
        if header := _header(file, offset, size):
            headers.append(header)
            ends.setdefault(header.start)
        if len(headers) > _MAX_MEMBERS:
            raise DamagedDataError(f"damaged archive: more than {_MAX_MEMBERS:,} files in it")
    members, done = list[Member](), 0
    for header, following in zip_longest(headers, headers[1:]):
        if header.offset < done:  # It stands within the data of another.
            continue
        end, checksum, is_whole = header.start + header.packed, header.checksum, True
        if not header.packed or end > size:
            trailer_content = ends[header.start]
            end, checksum = trailer_content or (following.offset if following else size, 0)
            is_whole = bool(trailer_content) or end == header.start
        done = end
        if not header.name.endswith("/"):
            certain_checksum = checksum if is_whole else None
            members.append(
                Member(header.name, header.method, header.flags, header.start, end, is_whole, certain_checksum)
            )
    return members


def unzipped(file: IO[bytes], member: Member) -> Iterator[bytes]:
    """Yield the content of a member in blocks; DamagedDataError behind the last if it is damaged or not complete."""
    packed, checksum = _PackedData(file, member), 0
    if member.flags & _ENCRYPTED:
        raise DamagedDataError(f"damaged archive: {printable(member.name)} is encrypted")
    if member.method == zipfile.ZIP_DEFLATED:
        content = inflated(packed, packed.read(READ), lambda _: Careful(-zlib.MAX_WBITS), what=("zip", "the content"))
    elif member.method == zipfile.ZIP_STORED:
        content = _stored(packed, member)
    else:
        raise DamagedDataError(f"damaged archive: {printable(member.name)} is packed by method {member.method}")
    for block in content:
        checksum = zlib.crc32(block, checksum)
        yield block
    if member.checksum not in {checksum, None}:
        raise DamagedDataError(f"damaged archive: the checksum of {printable(member.name)} is wrong")


class _PackedData:
    """The packed data of a member, to read from."""

    def __init__(self, file: IO[bytes], member: Member) -> None:
        self._file, self._left = file, member.end - member.start
        file.seek(member.start)

    def read(self, size: int = -1, /) -> bytes:
        """Return up to so many bytes, none at the end."""
        data = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(data)
        return data


def _stored(packed: _PackedData, member: Member) -> Iterator[bytes]:
    while block := packed.read(BLOCK):
        yield block
    if not member.is_whole:
        raise DamagedDataError(f"the zip data end early, at byte {member.end - member.start} of the content")


def _signatures(file: IO[bytes]) -> Iterator[int]:
    """Where a header or an entry of the directory may begin."""
    offset, held = 0, b""
    while block := _read_at(file, offset + len(held), BLOCK):
        held += block
        for match in _SIGNATURE.finditer(held):
            yield offset + match.start()
        offset, held = offset + max(0, len(held) - 3), held[-3:]


def _read_at(file: IO[bytes], offset: int, size: int) -> bytes:
    file.seek(offset)
    return file.read(size)


def _header(file: IO[bytes], offset: int, size: int) -> _Header | None:
    """Return the header at a place of the file; None if there is none that can be one."""
    text = _read_at(file, offset, _HEADER.size)
    if len(text) < _HEADER.size:
        return None
    signature, version, flags, method, *_, checksum, packed, unpacked, name_length, extra_length = _HEADER.unpack(text)
    start = offset + _HEADER.size + name_length + extra_length
    if signature != b"PK\x03\x04" or version & 0xFF > _LATEST or method not in _METHODS or start > size:
        return None
    name_and_extra = file.read(name_length + extra_length)
    name = name_and_extra[:name_length].decode("utf-8" if flags & _UTF8 else "cp437", "replace").split("\0")[0]
    if packed == _IN_ZIP64:
        packed = _packed_zip64(name_and_extra[name_length:], skip=unpacked == _IN_ZIP64)
    return _Header(offset, name, method, flags, start, packed, checksum) if name else None


def _packed_zip64(extra: bytes, *, skip: bool) -> int:
    """Return the size of the packed data in the extra field for large files; 0 if it is not there."""
    offset = 0
    while offset + _EXTRA.size <= len(extra):
        kind, length = _EXTRA.unpack_from(extra, offset)
        offset += _EXTRA.size
        if kind == _ZIP64:
            offset += 8 * skip  # The size of what is unpacked stands first.
            return int.from_bytes(extra[offset : offset + 8], "little")
        offset += length
    return 0
