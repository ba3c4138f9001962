"""The one place where numbers become text: values with their unit, and axes with one unit and round ticks.

`templates/table.js` holds the same rules for rows that are made in the browser; a test compares the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral, Real
from typing import Any

import pandas as pd

from htareport.report import Unit

NNBSP = "\u202f"  # Narrow no-break space: between number and unit.
MINUS = "\u2212"
MISSING = "–"

# Unit → (used from this magnitude on, factor, symbol), largest first.
_SCALES: dict[Unit, tuple[tuple[float, float, str], ...]] = {
    Unit.NANOSECONDS: ((1e9, 1e9, "s"), (1e6, 1e6, "ms"), (1e3, 1e3, "µs"), (0, 1, "ns")),
    Unit.BYTES: ((2**40, 2**40, "TiB"), (2**30, 2**30, "GiB"), (2**20, 2**20, "MiB"), (2**10, 2**10, "KiB"),
                 (0, 1, "B")),
    Unit.BYTES_PER_SECOND: ((1e8, 1e9, "GB/s"), (1e6, 1e6, "MB/s"), (1e3, 1e3, "kB/s"), (0, 1, "B/s")),
    Unit.RATIO: ((0, 0.01, "%"),),
}  # fmt: skip
_COUNT_AXIS = ((1e9, 1e9, "billion"), (1e6, 1e6, "million"), (1e5, 1e3, "thousand"), (0, 1, ""))
_SMALLEST_PERCENT = 0.005
_THOUSAND = 1000
_TOO_LONG = 1e15  # To write out.


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

    Times are in ns, ratios from 0 to 1, rates in bytes per second (GB/s = 10^9), bytes become KiB, MiB, GiB.
    """
    if is_missing(value):
        return MISSING
    if isinstance(value, bool) or type(value).__name__ in {"bool", "bool_"}:
        return "yes" if value else "no"
    finite = number(value)
    if unit.is_text or not isinstance(value, Real):
        return str(value)
    if finite is None:
        return ("∞" if value > 0 else f"{MINUS}∞") if isinstance(value, float) else str(value)
    return _quantity(finite, value, unit).replace("-", MINUS)


def _quantity(finite: float, value: Any, unit: Unit) -> str:
    if unit is Unit.ID:
        return f"{int(value)}" if finite.is_integer() else f"{finite:g}"
    if unit is Unit.COUNT:
        is_countable = finite.is_integer() and abs(finite) < _TOO_LONG
        return f"{int(value):,}" if is_countable else _digits(finite, plain=True)
    if unit is Unit.RATIO:
        return f"{_percent(100 * finite)}{NNBSP}%"
    scale = _scale(float(f"{finite:.3g}"), _SCALES[unit])
    return f"{_digits(finite / scale.factor, plain=scale.factor == 1)}{NNBSP}{scale.symbol}"


def _percent(value: float) -> str:
    """Three significant digits, but no more than two decimals."""
    if value and abs(value) < _SMALLEST_PERCENT:
        return "<0.01" if value > 0 else "<-0.01"
    value = _rounded(value)
    decimals = 0 if abs(value) >= 100 or not value else 1 if abs(value) >= 10 else 2  # noqa: PLR2004  digits
    return f"{value:,.{decimals}f}"


def _rounded(value: float) -> float:
    """To three significant digits, numbers above 1000 to whole ones."""
    return float(round(value)) if abs(value) >= _THOUSAND else float(f"{value:.3g}")


def _digits(value: float, *, plain: bool) -> str:
    """Three significant digits; `plain` leaves out zeros at the end (for numbers that are whole by nature)."""
    value = _rounded(value)
    size = abs(value)
    if size >= _TOO_LONG:
        return f"{value:.3g}"
    if size >= 100:  # noqa: PLR2004  three digits before the point
        return f"{value:,.0f}"
    if plain or size < 1:
        return f"{value:.3g}" if not size or size >= 1e-4 else f"{value:.1e}"  # noqa: PLR2004  no long row of zeros
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}"  # noqa: PLR2004


def _scale(size: float, scales: tuple[tuple[float, float, str], ...]) -> Scale:
    size = abs(size)
    return next(Scale(factor, symbol) for threshold, factor, symbol in scales if size >= threshold)


def axis_scale(low: float, high: float, unit: Unit) -> Scale:
    """Return the one scale of an axis that spans raw values from `low` to `high`."""
    size = max(abs(low), abs(high))
    if unit is Unit.COUNT:
        return _scale(size, _COUNT_AXIS)
    return _scale(size, _SCALES[unit]) if unit in _SCALES else Scale()


def axis_title(label: str, scale: Scale) -> str:
    """Return an axis title with the unit in brackets, as `step time (ms)`."""
    if not scale.symbol:
        return label
    return f"{label} ({scale.symbol})" if label else scale.symbol


def csv_label(label: str, unit: Unit) -> str:
    """Return a column heading that says the unit of its raw numbers."""
    shown = {Unit.NANOSECONDS: "ns", Unit.BYTES: "bytes", Unit.RATIO: "ratio", Unit.BYTES_PER_SECOND: "bytes/s"}
    return f"{label} ({shown[unit]})" if unit in shown else label


def ticks(low: float, high: float, count: int = 5, *, whole: bool = False) -> list[float]:
    """Return about `count` round positions within [low, high]; `whole` allows whole numbers only."""
    if not high > low:
        high = low + (abs(low) or 1.0)
    raw = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(k * power for k in (1, 2, 2.5, 5, 10) if k * power >= raw * (1 - 1e-9))
    if whole:
        step = max(1.0, step if float(step).is_integer() else math.ceil(step))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def tick_labels(positions: list[float]) -> list[str]:
    """Return positions as text with the same number of decimals each."""
    steps = [b - a for a, b in pairwise(positions)]
    step = min(steps, default=abs(positions[0]) if positions else 1.0) or 1.0
    if max(map(abs, positions), default=0.0) >= 1e7:  # noqa: PLR2004  too long for an axis
        return [f"{position:.3g}".replace("-", MINUS) for position in positions]
    decimals = next((d for d in range(7) if abs(round(step, d) - step) < 1e-6 * step), 6)
    return [f"{position:,.{decimals}f}".replace("-", MINUS) if position else "0" for position in positions]


def log_ticks(low: float, high: float, unit: Unit, count: int = 8) -> list[tuple[float, str]]:
    """Return raw positions on a logarithmic axis with their text, each with its own unit (1 µs, 10 µs, … 1 ms).

    Bytes go by powers of two, everything else by powers of ten.
    """
    base = 2 if unit is Unit.BYTES else 10
    first = math.ceil(math.log(low, base) - 1e-9)
    last = math.floor(math.log(high, base) + 1e-9)
    every = max(1, math.ceil((last - first + 1) / count))
    powers = range(-(-first // every) * every, last + 1, every)
    return [(float(base) ** power, _round_text(float(base) ** power, unit)) for power in powers]


def _round_text(value: float, unit: Unit) -> str:
    """A power as text, without zeros after the point."""
    if unit in {Unit.COUNT, Unit.ID} or unit.is_text:
        return f"{value:,.0f}" if 1 <= value < 1e9 else f"{value:g}"  # noqa: PLR2004
    scale = _scale(value, _SCALES[unit])
    return f"{value / scale.factor:,.6g}{NNBSP}{scale.symbol}"


def is_whole(value: Any) -> bool:
    """Whether a cell is an integer (and not a truth value)."""
    return isinstance(value, Integral) and not isinstance(value, bool)
