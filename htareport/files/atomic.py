"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO

from htareport.files.locations import is_remote


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Give a file to write to, which takes its place in one step when the block ends; on an error nothing is left.

    A link stays one, and its file is written. OSError where that cannot be done.
    """
    if is_remote(path):
        with importlib.import_module("htareport.files.remote").whole_object(path) as file:
            yield file
        return
    if path.is_symlink():
        path = Path(os.path.realpath(path))
    if path.is_dir():
        raise IsADirectoryError(None, "is a folder")
    with NamedTemporaryFile(dir=path.parent, prefix=".htareport-", delete=False) as file:  # No longer than any name.
        temporary = Path(file.name)
        try:
            yield file.file
            file.close()
            os.chmod(temporary, _mode(path))  # noqa: PTH101  temporary files are private; reports are like any file
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _mode(path: Path) -> int:
    """Permissions of the file that is replaced, else those that new files get."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
