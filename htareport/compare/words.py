"""Writes changes as text: always with their sign, those of shares in percentage points; shortens and lists names."""

from __future__ import annotations

from collections.abc import Sequence

from htareport.algorithms.samples import Interval
from htareport.report import Unit
from htareport.report.units import MINUS, NNBSP, text

_THOUSAND = 1000


def percent(ratio: float) -> str:
    """Return new / base as a signed change in per cent."""
    change = 100 * (ratio - 1)
    shown = f"{change:+,.0f}" if abs(change) >= _THOUSAND else f"{change:+.1f}"
    return f"{'0.0' if shown in {'+0.0', '-0.0'} else shown.replace('-', MINUS)}{NNBSP}%"


def signed(value: float, unit: Unit) -> str:
    """Return a change of a number as text: that of a share in percentage points."""
    shown = text(value, unit)
    if unit is Unit.RATIO:
        shown = shown.replace("%", "points")
    return f"+{shown}" if value > 0 else shown


def changed(value: float, unit: Unit, *, is_share: bool) -> str:
    """Return a change as text; `is_share`: of the base's value, else in the number's own unit."""
    return percent(1 + value) if is_share else signed(value, unit)


def between(interval: Interval, unit: Unit, *, is_share: bool) -> str:
    """Return the interval of a change as text."""
    low, high = (changed(end, unit, is_share=is_share) for end in (interval.low, interval.high))
    return f"{low.removesuffix(f'{NNBSP}points')} to {high}"


def shortened(name: str, max_length: int) -> str:
    """Return a name no longer than that, its end left out."""
    return name if len(name) <= max_length else f"{name[: max_length - 1]}…"


def listed(names: Sequence[str], max_names: int, separator: str = ", ") -> str:
    """Return the first of some names, and how many more there are."""
    suffix = f" and {len(names) - max_names} more" if len(names) > max_names else ""
    return f"{separator.join(names[:max_names])}{suffix}"
