"""Lines and grids of the result, and how they are printed and written as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """What was measured, what came out, and what it may be; `ok` is None where nothing is asked."""

    what: str
    value: str
    limit: str = ""
    ok: bool | None = None


@dataclass(frozen=True, slots=True)
class Grid:
    """Figures with more than one column."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def at_most(what: str, value: float, limit: float, unit: str = "", note: str = "") -> Line:
    """Make a line of a number that must not exceed its limit."""
    text = f"{value:.2f}{unit}" + (f" · {note}" if note else "")
    return Line(what, text, f"≤ {limit:.2f}{unit}", value <= limit)


def at_least(what: str, value: float, limit: float, unit: str = "", note: str = "") -> Line:
    """Make a line of a number that must reach its limit."""
    text = f"{value:.2f}{unit}" + (f" · {note}" if note else "")
    return Line(what, text, f"≥ {limit:.2f}{unit}", value >= limit)


def show(title: str, parts: Iterable[Line | Grid]) -> tuple[bool, str]:
    """Print the parts under a title; return whether all limits are kept, and the grids as Markdown."""
    parts = list(parts)
    print(f"\n{title}")
    lines = [part for part in parts if isinstance(part, Line)]
    for row, line in zip(_aligned([(each.what, each.value, each.limit) for each in lines]), lines, strict=True):
        print(f"  {row}  { {None: '', True: 'ok', False: 'OVER'}[line.ok] }".rstrip(), flush=True)
    grids = [part for part in parts if isinstance(part, Grid)]
    for grid in grids:
        print(f"\n  {grid.title}")
        for row in _aligned([grid.head, *grid.rows]):
            print(f"    {row}".rstrip(), flush=True)
    return all(line.ok is not False for line in lines), "\n".join(map(_markdown, grids))


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows]


def _markdown(grid: Grid) -> str:
    rows = [grid.head, ("---", *["---:"] * (len(grid.head) - 1)), *grid.rows]
    return f"{grid.title}:\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)
