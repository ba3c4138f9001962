"""What the command line prints. Text from traces and file names is made harmless for terminals here."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence

MAX_SHOWN = 10
Progress = Callable[[int, int, str], None]

_HARMLESS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code not in (9, 10)}


def prepare() -> None:
    """Make sure that no character can end the program: what the terminal cannot show is shown escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def drop_output() -> None:
    """Stop writing to a reader that has gone, as in `htareport … | head`."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(nowhere, stream.fileno())


def out(text: str) -> None:
    """Print to standard output."""
    print(text.translate(_HARMLESS))  # noqa: T201  One of the two places that print.


def err(text: str) -> None:
    """Print to standard error."""
    sys.stdout.flush()
    print(text.translate(_HARMLESS), file=sys.stderr)  # noqa: T201


def error(text: str) -> None:
    """Print why something could not be done."""
    err(f"error: {_line(text)}")


def problems(errors: Sequence[str], warnings: Sequence[str], limit: int | None = MAX_SHOWN) -> None:
    """Print what could not be used, then what else the user should know; of each only so many as `limit`."""
    for label, texts in (("error", errors), ("warning", warnings)):
        for text in texts[:limit]:
            err(f"{label}: {_line(text)}")
        if limit is not None and len(texts) > limit:
            err(f"{label}: … and {len(texts) - limit} more in the report")


def _line(text: str) -> str:
    return " ".join(text.split())


@contextlib.contextmanager
def progress(what: str, *, quiet: bool) -> Iterator[Progress | None]:
    """Give a function that moves a bar on the terminal; None where nobody would see it."""
    if quiet or not (sys.stderr.isatty() and sys.stdout.isatty()):
        yield None
        return
    from rich import progress as bars
    from rich.console import Console
    from rich.markup import escape

    text, counts = bars.TextColumn("{task.description}"), bars.MofNCompleteColumn()
    columns = (text, bars.BarColumn(), counts, bars.TimeElapsedColumn())
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def moved(done: int, total: int, label: str) -> None:
            bar.update(task, completed=done, total=total, description=escape(label.translate(_HARMLESS)) or what)

        yield moved


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> None:
    """Print rows under a header; the columns whose numbers are in `right` are right-aligned."""
    clean = [[_line(cell).translate(_HARMLESS) for cell in row] for row in (header, *rows)]
    if is_terminal():
        from rich import box
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for place, name in enumerate(header):
            shown.add_column(name, justify="right" if place in right else "left", overflow="fold")
        for row in clean[1:]:
            shown.add_row(*map(escape, row))
        Console().print(shown)
        return
    widths = [max(map(len, column)) for column in zip(*clean, strict=True)]
    for row in clean:
        sides = [">" if place in right else "<" for place in range(len(row))]
        cells = [f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)]
        out("  ".join(cells).rstrip())


def heading(text: str) -> str:
    """Return a line in bold where the terminal can."""
    return f"\033[1m{text}\033[0m" if is_terminal() else text


def is_terminal() -> bool:
    """Tell whether somebody looks at standard output."""
    return sys.stdout.isatty()


def width() -> int:
    """Return the columns to fill with running text."""
    return min(100, shutil.get_terminal_size().columns)


def size(count: int) -> str:
    """Return bytes for people."""
    for factor, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "KB")):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"


def ranks(numbers: Sequence[int]) -> str:
    """Return sorted ranks as `--ranks` takes them: 0,3-5."""
    runs = list[list[int]]()
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
