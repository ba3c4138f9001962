"""Lines of the result and how they are printed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """What was measured, what came out, and what it may be; `ok` is None where nothing is asked."""

    what: str
    value: str
    limit: str = ""
    ok: bool | None = None


def at_most(what: str, value: float, limit: float, unit: str = "", note: str = "") -> Line:
    """Make a line of a number that must not exceed its limit."""
    text = f"{value:.2f}{unit}" + (f" · {note}" if note else "")
    return Line(what, text, f"≤ {limit:.2f}{unit}", value <= limit)


def at_least(what: str, value: float, limit: float, unit: str = "", note: str = "") -> Line:
    """Make a line of a number that must reach its limit."""
    text = f"{value:.2f}{unit}" + (f" · {note}" if note else "")
    return Line(what, text, f"≥ {limit:.2f}{unit}", value >= limit)


def show(title: str, lines: Iterable[Line]) -> bool:
    """Print the lines under a title; return whether all limits are kept."""
    lines = list(lines)
    print(f"\n{title}")
    width, value_width = (max(len(getattr(line, name)) for line in lines) for name in ("what", "value"))
    for line in lines:
        verdict = {None: "", True: "ok", False: "OVER"}[line.ok]
        print(f"  {line.what:{width}}  {line.value:{value_width}}  {line.limit:12}  {verdict}".rstrip(), flush=True)
    return all(line.ok is not False for line in lines)
