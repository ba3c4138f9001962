"""Prints for the command line. Text from traces and file names is made harmless for terminals here.

Architecture invariant: printing never raises. Errors of standard output are remembered, and reported at the end.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO

from htareport.errors import printable, without_credentials

MAX_SHOWN = 10
Progress = Callable[[int, int, str], None]

_closed = list[str]()  # Standard streams that were closed when the program started.
_lost = list[str]()  # Errors of standard output.


def prepare() -> None:
    """Make printing safe: closed streams are opened, and text that a stream cannot encode is escaped."""
    _lost.clear()
    _open_missing()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _open_missing() -> None:
    """Open missing standard streams to nowhere; else the next file that is opened would get their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            _closed.append(name)
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003  It gets the lowest free number: this one.
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123  Open to the end.
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123


def write(text: str) -> None:
    """Write to standard output as it is; for text that is known to be harmless."""
    with _remembered(sys.stdout):
        sys.stdout.write(text)


def out(text: str) -> None:
    """Print to standard output."""
    write(f"{_harmless(text)}\n")


def err(text: str) -> None:
    """Print to standard error. If that fails, only the exit status reports the problem."""
    flush()
    with _remembered(sys.stderr):
        sys.stderr.write(f"{_harmless(text)}\n")
        sys.stderr.flush()


def flush() -> None:
    """Flush standard output."""
    with _remembered(sys.stdout):
        sys.stdout.flush()


def is_closed() -> bool:
    """Return whether there is no standard output, as in `htareport … >&-`."""
    return "stdout" in _closed


def lost() -> str:
    """Return the error of standard output, empty if everything was written."""
    flush()
    return _lost[0] if _lost else ""


@contextlib.contextmanager
def _remembered(stream: TextIO) -> Iterator[None]:
    """After an error of a stream, drop all text for it; a reader that closes the pipe (`… | head`) is no error."""
    try:
        yield
    except OSError as error:
        if stream is sys.stdout and not isinstance(error, BrokenPipeError):
            _lost.append(error.strerror or str(error))
        with contextlib.suppress(OSError, ValueError):  # Buffered text goes there too, when the program ends.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def _harmless(text: str) -> str:
    return "\n".join(printable(without_credentials(line)) for line in text.split("\n"))


def error(text: str) -> None:
    """Print why something could not be done."""
    err(f"error: {_line(text)}")


def warning(text: str) -> None:
    """Print a warning."""
    err(f"warning: {_line(text)}")


def problems(errors: Sequence[str], warnings: Sequence[str], limit: int | None = MAX_SHOWN) -> None:
    """Print errors, then warnings, of each at most `limit`."""
    for label, texts in (("error", errors), ("warning", warnings)):
        for text in texts[:limit]:
            err(f"{label}: {_line(text)}")
        if limit is not None and len(texts) > limit:
            err(f"{label}: … and {len(texts) - limit} more in the report")


def _line(text: str) -> str:
    return " ".join(text.split())


@contextlib.contextmanager
def progress(title: str, *, quiet: bool) -> Iterator[Progress | None]:
    """Yield a function that moves a progress bar; None with `quiet`, or if standard output or error is no terminal."""
    if quiet or not (sys.stderr.isatty() and sys.stdout.isatty()):
        yield None
        return
    from rich import progress as bars
    from rich.console import Console
    from rich.markup import escape

    text, counts = bars.TextColumn("{task.description}"), bars.MofNCompleteColumn()
    columns = (text, bars.BarColumn(), counts, bars.TimeElapsedColumn())
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)

        def update(done: int, total: int, label: str) -> None:
            bar.update(task, completed=done, total=total, description=escape(printable(label)) or title)

        yield update


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> None:
    """Print rows under a header; the columns with numbers in `right` are right-aligned."""
    clean = [[printable(_line(cell)) for cell in row] for row in (header, *rows)]
    if is_terminal():
        from rich import box
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column, name in enumerate(header):
            shown.add_column(name, justify="right" if column in right else "left", overflow="fold")
        for row in clean[1:]:
            shown.add_row(*map(escape, row))
        console = Console()
        with console.capture() as captured:
            console.print(shown)
        write(captured.get())
        return
    widths = [max(map(len, column)) for column in zip(*clean, strict=True)]
    for row in clean:
        sides = [">" if column in right else "<" for column in range(len(row))]
        cells = [f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)]
        out("  ".join(cells).rstrip())


def heading(text: str) -> str:
    """Return a line in bold, for a terminal."""
    return f"\033[1m{text}\033[0m" if is_terminal() else text


def is_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout.isatty()


def width() -> int:
    """Return the width of running text, in columns."""
    return min(100, shutil.get_terminal_size().columns)


def size(count: int) -> str:
    """Return a number of bytes as text, such as 1.2 MB."""
    for factor, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "KB")):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"
