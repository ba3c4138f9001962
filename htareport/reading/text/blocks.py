"""The bytes of a trace file, decompressed, in blocks: plain, gzip, zstd, and members of zip and tar archives.

What a file is is decided by its content, never by its suffix. Nothing here looks at JSON. Members of archives are read
where they lie: their names lead nowhere, and nothing is unpacked onto the disk.
"""

from __future__ import annotations

import gzip
import lzma
import os
import posixpath
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import lru_cache, partial
from pathlib import Path
from tarfile import HeaderError
from typing import IO, Any, cast

from htareport.errors import TraceFileError, printable
from htareport.files import locations
from htareport.files.locations import is_remote, reading, size_of
from htareport.reading.text import cut_zip
from htareport.reading.text.unpack import READ, DamagedDataError, Readable, Reread, archive_kind, unpacked
from htareport.rows.options import DEFAULT_OPTIONS, ReadOptions

NOT_REGULAR = "not a regular file but a pipe, socket or device; save what it gives to a file"
MAX_UNPACKED_BYTES = 1 << 30  # Bytes that any file may hold once unpacked, and times its size on disk if that is more.
# Kineto's JSON packs to a twentieth; what packs ten times better is made to fill memory or time.
MAX_UNPACK_RATIO = 200
_BLOCK_BYTES = 1 << 14
_ARCHIVE = re.compile(r"\.(?:zip|tar|tgz)\b", re.IGNORECASE)  # Behind URLs, where to ask of each folder takes its time.
# What the standard library raises for damaged archives: KeyError for a member that is not there, RuntimeError and
# NotImplementedError for one that is encrypted or packed in a way it does not know.
_DAMAGED = (
    *(zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, lzma.LZMAError),
    *(EOFError, KeyError, ValueError, OverflowError, RuntimeError),
)


def blocks(path: Path, max_bytes: int | None = None) -> Iterator[bytes]:
    """Yield the decompressed bytes in blocks of about 1 MB.

    `path` may go on inside an archive (`run.zip/rank0.json`); an archive itself stands for the only file in it.
    TraceFileError if the file changes meanwhile or holds more than `max_bytes` (by default MAX_UNPACK_RATIO times its
    size, at least MAX_UNPACKED_BYTES); DamagedDataError behind the last block if packed data end early or are damaged;
    OSError if the file cannot be read.
    """
    on_disk = path if locations.exists(path) else archive_of(path) or path
    before = _state(on_disk)
    yield from _limited(unpacked(partial(_opened, path, max_bytes, on_disk)), on_disk, max_bytes)
    if _state(on_disk) not in {before, None}:
        raise TraceFileError("the file changed while it was read; read it again when it is complete")


def archive_members(
    path: Path, options: ReadOptions = DEFAULT_OPTIONS, warn: Callable[[str], object] | None = None
) -> list[Path] | None:
    """Return the files inside a zip or tar (also compressed), as paths below it; None if it is no archive.

    TraceFileError for a damaged one; of one that is to be salvaged those that are found, with a warning.
    """
    archive_members = list[Path]()
    try:
        with open_regular(path) as file:
            kind = archive_kind(file.read(READ))
        if not kind:
            return None
        archive_members.extend(path / _clean(name) for name in _names(path, kind, options.max_bytes, warn))
    except (*_DAMAGED, DamagedDataError) as error:
        damage = error if isinstance(error, DamagedDataError) else _damaged(error)
        if not archive_members:
            raise damage from error
        if not options.salvage:
            raise TraceFileError(f"{damage}; --salvage (salvage=True) keeps what is complete") from error
        if warn:
            number = f"{len(archive_members)} file{'s' if len(archive_members) > 1 else ''} found in it"
            warn(f"{printable(path.name)} is salvaged: {damage}; {number}, others may be missing")
    return archive_members


def _names(path: Path, kind: str, max_bytes: int | None, warn: Callable[[str], object] | None) -> Iterator[str]:
    """The names of the files in an archive; the error behind the last, if there is one."""
    if kind == "zip":
        with _zip(path) as archive:
            if archive:
                yield from (info.filename for info in archive.infolist() if not info.is_dir())
                return
        yield from (member.name for member in _cut_members(path, _state(path)))
        raise DamagedDataError("damaged archive: its directory, which stands at the end, is missing or damaged")
    with _tar(path, kind, max_bytes) as (tar, content):
        yield from (member.name for member in tar if member.isfile())
        if content.damage:
            raise content.damage
        if tar.is_cut_short and warn:
            warn(f"{printable(path.name)} may be cut off: it has no mark at its end; files may be missing")
        if tar.damage:
            raise tar.damage


def open_regular(path: Path) -> IO[bytes]:
    """Open a file. TraceFileError for a pipe, socket or device: it may never answer or never end, and is read twice."""
    if not is_remote(path):
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # A folder gets the system's own message.
            raise TraceFileError(NOT_REGULAR)
    return reading(path)


def exists(path: Path) -> bool:
    """Whether there is such a file, or an archive that may hold it."""
    return locations.exists(path) or archive_of(path) is not None


def archive_of(path: Path) -> Path | None:
    """Return the file within which a path lies that is no file itself; None if there is no such."""
    parents = (parent for parent in path.parents if not is_remote(parent) or _ARCHIVE.search(parent.name))
    return next((parent for parent in parents if parent.is_file()), None)


def _state(on_disk: Path) -> tuple[int, int] | None:
    """What changes when a file is written to; None once it is deleted, whose content an open file still gives."""
    try:
        state = locations.stat_of(on_disk)
    except FileNotFoundError:
        return None
    return state.st_size, state.st_mtime_ns


def _limited(content: Iterator[bytes], on_disk: Path, max_bytes: int | None) -> Iterator[bytes]:
    """The same blocks; TraceFileError where there are too many for a file that was not made to do harm."""
    limit = max_bytes if max_bytes is not None else max(MAX_UNPACKED_BYTES, MAX_UNPACK_RATIO * size_of(on_disk))
    for block in content:
        limit -= len(block)
        if limit < 0:
            allowed = (
                f"{max_bytes:,} bytes" if max_bytes is not None else f"{MAX_UNPACK_RATIO} times its size, or 1 GB,"
            )
            raise TraceFileError(f"holds more than {allowed} once unpacked; --max-bytes allows more")
        yield block


def _clean(member: str) -> str:
    """Return the name of a member as a path below its archive: `./rank0.json` and `/rank0.json` are `rank0.json`."""
    return posixpath.normpath("/" + member).lstrip("/")


def _damaged(error: Exception) -> DamagedDataError:
    return DamagedDataError(f"damaged archive: {' '.join(str(error).split()) or type(error).__name__}")


@contextmanager
def _opened(path: Path, max_bytes: int | None, on_disk: Path) -> Iterator[Readable]:
    if on_disk != path:
        with _member(on_disk, path.relative_to(on_disk).as_posix(), max_bytes) as inner:
            yield inner
        return
    with open_regular(path) as raw:
        kind = archive_kind(raw.read(READ))
        if not kind:
            raw.seek(0)
            yield raw
            return
    members = archive_members(path, ReadOptions(max_bytes=max_bytes)) or []
    if len(members) != 1:
        raise TraceFileError(f"an archive of {len(members)} files, not one")
    with _opened(members[0], max_bytes, path) as inner:
        yield inner


@contextmanager
def _member(archive: Path, name: str, max_bytes: int | None) -> Iterator[Readable]:
    """A file inside an archive, decompressed as it is read."""
    with open_regular(archive) as peek:
        kind = archive_kind(peek.read(READ))
    try:
        if kind == "zip":
            content = Reread(_limited(_unzipped(archive, name), archive, max_bytes))
            yield content
            if content.damage:
                raise content.damage
        else:
            with _tar(archive, kind, max_bytes) as (tar, content):  # A compressed tar is read up to this member, once.
                member = next((info for info in tar if info.isfile() and _clean(info.name) == name), None)
                if member is None:
                    raise TraceFileError(f"no {name} in {archive.name}")
                yield _TarMember(tar, member, content)
    except _DAMAGED as error:
        raise _damaged(error) from error


@contextmanager
def _zip(path: Path) -> Iterator[zipfile.ZipFile | None]:
    """An opened zip; None if its directory cannot be read."""
    with _to_seek(path) as file:
        if is_remote(path):
            file.seek(0, os.SEEK_END)  # Where the directory is; from here an error tells what the server cannot do.
        try:
            opened = zipfile.ZipFile(file)
        except _DAMAGED:
            yield None
            return
        with opened:
            yield opened


@lru_cache(maxsize=4)
def _cut_members(path: Path, _state: tuple[int, int] | None) -> list[cut_zip.Member]:
    """The members of a zip without directory. To find them takes reading all of it, so not for each of them again."""
    with _to_seek(path) as file:
        return cut_zip.members(file)


def _to_seek(path: Path) -> IO[bytes]:
    return reading(path) if is_remote(path) else path.open("rb")


def _unzipped(archive: Path, name: str) -> Iterator[bytes]:
    """A member of a zip in small pieces: the library drops the one in which it finds damage."""
    try:
        with _zip(archive) as zipped:
            if zipped:
                entry = next((info for info in zipped.infolist() if _clean(info.filename) == name), name)
                with zipped.open(entry) as inner:
                    while block := inner.read(_BLOCK_BYTES):
                        yield block
                return
        members = _cut_members(archive, _state(archive))
        member = next((member for member in members if _clean(member.name) == name), None)
        if member is None:
            raise KeyError(f"no {name} in {archive.name}")
        with _to_seek(archive) as file:
            yield from cut_zip.unzipped(file, member)
    except _DAMAGED as error:
        raise _damaged(error) from error


class _TarInfo(tarfile.TarInfo):
    """A member's header. The library takes one that is damaged or cut for the end, unless it is the first."""

    @classmethod
    def fromtarfile(cls, tarfile: tarfile.TarFile) -> _TarInfo:
        try:
            return super().fromtarfile(tarfile)
        except HeaderError as error:
            cast("_Tar", tarfile).ended = error
            raise


class _Tar(tarfile.TarFile):
    """A tar that tells why its members ended. The library has no public names for the kinds of that."""

    tarinfo = _TarInfo
    ended: HeaderError | None = None

    @property
    def is_cut_short(self) -> bool:
        """Whether it ends behind a member, without the mark that stands behind the last."""
        return str(self.ended) == "empty header"

    @property
    def damage(self) -> HeaderError | None:
        """What is wrong with the header behind the last member."""
        return None if self.is_cut_short or str(self.ended) == "end of file header" else self.ended


class _TarMember:
    """A member of a tar, to read from. The library's own file loses what it has read when the tar ends within it."""

    def __init__(self, tar: tarfile.TarFile, member: tarfile.TarInfo, content: Reread) -> None:
        self._file, self._left, self._content = cast("IO[bytes]", tar.fileobj), member.size, content
        self._file.seek(member.offset_data)

    def read(self, size: int = -1, /) -> bytes:
        """Return up to so many bytes, none at the end. DamagedDataError where the tar ends before."""
        data = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(data)
        if self._left and not data:
            raise self._content.damage or DamagedDataError(f"damaged archive: it ends {self._left:,} bytes too early")
        return data


@contextmanager
def _tar(path: Path, kind: str, max_bytes: int | None) -> Iterator[tuple[_Tar, Reread]]:
    """An opened tar; the content of a compressed one is read as it comes, and no more of it than is allowed."""
    if kind == "tar":
        file = reading(path) if is_remote(path) else None
        with file or nullcontext(), _Tar.open(None if file else path, "r:", file) as tar:
            yield tar, Reread(iter(()))
        return
    content = Reread(_limited(unpacked(partial(open_regular, path), content_name="the tar"), path, max_bytes))
    with _Tar.open(fileobj=cast("Any", content), mode="r|") as tar:
        yield tar, content
