"""Names and writes copies of trace files in a folder of their own."""

from __future__ import annotations

import contextlib
import gzip
import re
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from pathlib import Path
from typing import IO, Any, cast

from htareport.errors import OutputError, UsageError
from htareport.export.rewrite import Edit, rewrite
from htareport.files.atomic import whole_file
from htareport.files.locations import located, resolved
from htareport.rank.rank import Rank
from htareport.reading.redact import redacted_metadata
from htareport.reading.text.blocks import archive_of, open_regular
from htareport.rows.metadata import COPY_KEY

igzip: Any
try:
    from isal import igzip  # Ten times as fast.
except ImportError:  # pragma: no cover  where isal has no wheel
    igzip = None

_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK")  # gzip, zstd, zip
_SUFFIXES = re.compile(r"(?:\.json)?(?:\.(?:gz|zst|zip))?$", re.IGNORECASE)


class CopyFolder:
    """The folder for copies of some trace files; it is made when the first is written.

    UsageError if it is the folder that one of the files stands in. `redact` takes secrets out of the metadata.
    """

    def __init__(self, folder: str | Path, inputs: Iterable[Path], *, redact: bool = True) -> None:
        if not str(folder):
            raise UsageError("no folder for the copies was named: the path is empty")
        self.folder, self.redact = located(folder), redact
        self._inputs = {resolved(_folder_of(path)) for path in inputs}
        self._check(self.folder)

    def _check(self, folder: Path) -> None:
        if resolved(folder) in self._inputs:
            raise UsageError(f"{folder}: this is the folder of the traces; copies need one of their own")

    def absolute(self) -> CopyFolder:
        """Return the same folder by the name that it has wherever a program runs."""
        other = copy(self)
        other.folder = self.folder.absolute()
        return other

    def path_for(self, source: Path, prefix: str = "", suffix: str = "") -> Path:
        """Return where the copy of a file goes: x.json.gz is <prefix>x<suffix>.json.gz; compressed if the source is."""
        stem = _SUFFIXES.sub("", source.name)
        target = self.folder / f"{prefix}{stem}{suffix}.json{'.gz' if _is_compressed(source) else ''}"
        self._check(resolved(target).parent)  # A link there may lead back.
        return target

    def write(  # noqa: PLR0913  what a copy consists of
        self,
        rank: Rank,
        capture: int,
        target: Path,
        what: str,
        *,
        more: Iterable[bytes] = (),
        edit: Edit | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Path:
        """Write the copy of one file of a rank: `what` is added by `more` and `edit` (see rewrite). OutputError."""
        source = rank.captures[capture]
        about: dict[str, Any] = {COPY_KEY: {"with": what, "rank": rank.rank}}
        if source.salvaged is not None:  # Which nothing else in the copy tells.
            about[COPY_KEY]["salvaged"] = source.salvaged.reason
        metadata_of_source = redacted_metadata(source.meta) if self.redact else dict(source.meta)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with whole_file(target) as file, packed(file, target) as out:
                all_metadata = about | metadata_of_source | dict(metadata or {})
                rewrite(source.path, out, all_metadata, more, edit, options=source.options)
        except OSError as error:
            raise OutputError(f"{target}: {error.strerror or error}") from error
        return target


def _folder_of(path: Path) -> Path:
    archive = archive_of(path)
    return (archive or path).parent


def _is_compressed(path: Path) -> bool:
    """Return whether a file is compressed, by its content; what is inside an archive counts as such."""
    if archive_of(path):
        return True
    with open_regular(path) as file:
        start = file.read(4)
    return start.startswith(_COMPRESSED)


@contextlib.contextmanager
def packed(file: IO[bytes], target: Path) -> Iterator[IO[bytes]]:
    """Compress what is written, if the name says so; without time or name, so that equal content gives equal bytes."""
    if target.suffix != ".gz":
        yield file
    elif igzip is not None:
        with igzip.IGzipFile(filename="", mode="wb", fileobj=file, compresslevel=2, mtime=0) as out:
            yield out
    else:  # pragma: no cover  where isal has no wheel
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0) as out:
            yield cast("IO[bytes]", out)
