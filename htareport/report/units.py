"""Formats numbers as text with their unit.

`render/charts/ticks.py` formats axes; `templates/table.js` has the same rules as this file for rows that the browser
renders, and a test compares the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, cast

import pandas as pd

from htareport.report import Unit

NNBSP = "\u202f"  # Narrow no-break space: between number and unit.
MINUS = "\u2212"
MISSING = "–"

# Unit → (used from this magnitude on, factor, symbol), largest first.
SCALES: dict[Unit, tuple[tuple[float, float, str], ...]] = {
    Unit.NANOSECONDS: ((1e9, 1e9, "s"), (1e6, 1e6, "ms"), (1e3, 1e3, "µs"), (0, 1, "ns")),
    Unit.BYTES: ((2**40, 2**40, "TiB"), (2**30, 2**30, "GiB"), (2**20, 2**20, "MiB"), (2**10, 2**10, "KiB"),
                 (0, 1, "B")),
    Unit.BYTES_PER_SECOND: ((1e8, 1e9, "GB/s"), (1e6, 1e6, "MB/s"), (1e3, 1e3, "kB/s"), (0, 1, "B/s")),
    Unit.FLOP: ((1e12, 1e12, "TFLOP"), (1e9, 1e9, "GFLOP"), (1e6, 1e6, "MFLOP"), (1e3, 1e3, "kFLOP"), (0, 1, "FLOP")),
    Unit.FLOP_PER_SECOND: ((1e11, 1e12, "TFLOP/s"), (1e8, 1e9, "GFLOP/s"), (1e6, 1e6, "MFLOP/s"), (0, 1, "FLOP/s")),
    Unit.RATIO: ((0, 0.01, "%"),),
}  # fmt: skip
_MIN_PERCENT = 0.005
_MIN_ROUNDED = 1000
_MIN_EXPONENT = 1e15  # Numbers from here on are shown with an exponent.


@dataclass(frozen=True, slots=True)
class Scale:
    """How raw values are shown on an axis: divided by `factor`, in `symbol` (empty for plain numbers)."""

    factor: float = 1.0
    symbol: str = ""


def is_missing(value: Any) -> bool:
    """Whether a cell holds no value: None, NaN, NaT or NA."""
    return value is None or (not isinstance(value, (str, list, tuple, dict)) and bool(pd.isna(value)))


def number(value: Any) -> float | None:
    """Return a cell as a finite float, or None where it is missing, infinite or no number at all."""
    if is_missing(value) or not isinstance(value, Real):
        return None
    try:
        result = float(value)
    except OverflowError:
        return None
    return result if math.isfinite(result) else None


def text(value: Any, unit: Unit) -> str:
    """Return a value as shown to people: three significant digits and its unit, or a dash where it is missing.

    Times are in ns, ratios from 0 to 1, rates in bytes per second (GB/s = 10^9), bytes become KiB, MiB, GiB. Changes
    have their sign.
    """
    if is_missing(value):
        return MISSING
    if unit.is_change:
        plain_text = text(value, unit.plain)
        return f"+{plain_text}" if isinstance(value, Real) and cast("float", value) > 0 else plain_text
    if isinstance(value, bool) or type(value).__name__ in {"bool", "bool_"}:
        return "yes" if value else "no"
    finite = number(value)
    if unit.is_text or not isinstance(value, Real):
        return str(value)
    if finite is None:
        return ("∞" if value > 0 else f"{MINUS}∞") if isinstance(value, float) else str(value)
    return _quantity(finite, value, unit).replace("-", MINUS)


def counted(count: float, word: str, plural: str = "") -> str:
    """Return a count with its noun: 1 call, 2.5 calls, 1,204 calls."""
    count_text = text(count, Unit.COUNT)
    return f"{count_text} {word if count_text == '1' else plural or f'{word}s'}"


def _quantity(finite: float, value: Any, unit: Unit) -> str:
    if unit.is_id:
        name = f"{int(value)}" if finite.is_integer() else f"{finite:g}"
        return name if unit is Unit.ID else f"{unit} {name}"
    if unit is Unit.COUNT:
        is_countable = finite.is_integer() and abs(finite) < _MIN_EXPONENT
        return f"{int(value):,}" if is_countable else _digits(finite, is_trimmed=True)
    if unit is Unit.NUMBER:
        return _digits(finite, is_trimmed=False)
    if unit is Unit.RATIO:
        return f"{_percent(100 * finite)}{NNBSP}%"
    scale = scale_of(max(abs(finite), abs(float(f"{finite:.3g}"))), SCALES[unit])  # 2**30 is 1.07e9, and a GiB.
    return f"{_digits(finite / scale.factor, is_trimmed=scale.factor == 1)}{NNBSP}{scale.symbol}"


def _percent(value: float) -> str:
    """Return three significant digits, but no more than two decimals."""
    if value and abs(value) < _MIN_PERCENT:
        return "<0.01" if value > 0 else "<-0.01"
    value = _rounded(value)
    if abs(value) >= _MIN_EXPONENT:
        return f"{value:.3g}"
    decimals = 0 if abs(value) >= 100 or not value else 1 if abs(value) >= 10 else 2  # noqa: PLR2004  digits
    return f"{value:,.{decimals}f}"


def _rounded(value: float) -> float:
    """Return a number with three significant digits, from 1000 on a whole one, halves rounded up as in the browser."""
    return float(math.floor(value + 0.5)) if abs(value) >= _MIN_ROUNDED else float(f"{value:.3g}")


def _digits(value: float, *, is_trimmed: bool) -> str:
    """Return three significant digits; `is_trimmed` leaves out zeros at the end (for numbers that are integers)."""
    value = _rounded(value)
    size = abs(value)
    if size >= _MIN_EXPONENT:
        return f"{value:.3g}"
    if size >= 100:  # noqa: PLR2004  three digits before the point
        return f"{value:,.0f}"
    if is_trimmed or size < 1:
        return f"{value:.3g}" if not size or size >= 1e-4 else f"{value:.1e}"  # noqa: PLR2004  no long row of zeros
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}"  # noqa: PLR2004


def scale_of(size: float, scales: tuple[tuple[float, float, str], ...]) -> Scale:
    """Return the first scale whose threshold the magnitude reaches."""
    size = abs(size)
    return next(Scale(factor, symbol) for threshold, factor, symbol in scales if size >= threshold)
