"""Numbers on axes: one unit and round ticks. `htareport.report.units` formats single values."""

from __future__ import annotations

import math
from itertools import pairwise
from numbers import Integral
from typing import Any

from htareport.report import Unit
from htareport.report.units import MINUS, MISSING, NNBSP, SCALES, Scale, is_missing, number, scale_of, text

__all__ = [
    "MINUS", "MISSING", "NNBSP", "Scale", "axis_scale", "axis_title", "csv_label", "is_integer", "is_missing",
    "log_ticks", "number", "text", "tick_labels", "ticks",
]  # fmt: skip

_MIN_POWERS = 2
_COUNT_SCALES = ((1e9, 1e9, "billion"), (1e6, 1e6, "million"), (1e5, 1e3, "thousand"), (0, 1, ""))


def axis_scale(low: float, high: float, unit: Unit) -> Scale:
    """Return the one scale of an axis that spans raw values from `low` to `high`."""
    size = max(abs(low), abs(high))
    if unit in {Unit.COUNT, Unit.NUMBER}:
        return scale_of(size, _COUNT_SCALES)
    return scale_of(size, SCALES[unit.plain]) if unit.plain in SCALES else Scale()


def axis_title(label: str, scale: Scale) -> str:
    """Return an axis title with the unit in brackets, as `step time (ms)`."""
    if not scale.symbol:
        return label
    return f"{label} ({scale.symbol})" if label else scale.symbol


def csv_label(label: str, unit: Unit) -> str:
    """Return a column heading that says the unit of its raw numbers."""
    symbol_by_unit = {Unit.NANOSECONDS: "ns", Unit.BYTES: "bytes", Unit.RATIO: "ratio",
                      Unit.BYTES_PER_SECOND: "bytes/s", Unit.FLOP: "FLOP", Unit.FLOP_PER_SECOND: "FLOP/s"}  # fmt: skip
    return f"{label} ({symbol_by_unit[unit.plain]})" if unit.plain in symbol_by_unit else label


def ticks(low: float, high: float, count: int = 5, *, only_integers: bool = False) -> list[float]:
    """Return about `count` round positions within [low, high], on request only integers."""
    if not high > low:
        high = low + (abs(low) or 1.0)
    min_step = (high - low) / max(count, 1)
    magnitude = 10.0 ** math.floor(math.log10(min_step))
    step = next(k * magnitude for k in (1, 2, 2.5, 5, 10) if k * magnitude >= min_step * (1 - 1e-9))
    if only_integers:
        step = max(1.0, step if float(step).is_integer() else math.ceil(step))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def tick_labels(positions: list[float]) -> list[str]:
    """Return positions as text with the same number of decimals each."""
    steps = [after - before for before, after in pairwise(positions)]
    step = min(steps, default=abs(positions[0]) if positions else 1.0) or 1.0
    if max(map(abs, positions), default=0.0) >= 1e7:  # noqa: PLR2004  too long for an axis
        return [f"{position:.3g}".replace("-", MINUS) for position in positions]
    decimals = next((digits for digits in range(7) if abs(round(step, digits) - step) < 1e-6 * step), 6)
    return [f"{position:,.{decimals}f}".replace("-", MINUS) if position else "0" for position in positions]


def log_ticks(low: float, high: float, unit: Unit, count: int = 8) -> list[tuple[float, str]]:
    """Return raw positions on a logarithmic axis with their text, each with its own unit (1 µs, 10 µs, … 1 ms).

    Bytes go by powers of two, everything else by powers of ten, with 2 and 5 times these where they are few.
    """
    base = 2 if unit is Unit.BYTES else 10
    first = math.ceil(math.log(low, base) - 1e-9)
    last = math.floor(math.log(high, base) + 1e-9)
    stride = max(1, math.ceil((last - first + 1) / count))
    powers = range(-(-first // stride) * stride, last + 1, stride)
    if last - first < _MIN_POWERS:
        steps = (1,) if unit is Unit.BYTES else (1, 2, 5)
        candidates = (step * float(base) ** power for power in range(first - 1, last + 2) for step in steps)
        positions = [position for position in candidates if low * 0.999 <= position <= high * 1.001]
        positions = positions if len(positions) > 1 else [position for position in ticks(low, high, 4) if position > 0]
        return [(position, _power_text(position, unit)) for position in positions]
    return [(float(base) ** power, _power_text(float(base) ** power, unit)) for power in powers]


def _power_text(value: float, unit: Unit) -> str:
    """Return a power as text, without zeros after the point."""
    if unit in {Unit.COUNT, Unit.NUMBER} or unit.is_id or unit.is_text:
        return f"{value:,.0f}" if 1 <= value < 1e9 else f"{value:g}"  # noqa: PLR2004
    scale = scale_of(value, SCALES[unit])
    return f"{value / scale.factor:,.6g}{NNBSP}{scale.symbol}"


def is_integer(value: Any) -> bool:
    """Whether a cell is an integer (and not a truth value)."""
    return isinstance(value, Integral) and not isinstance(value, bool)
