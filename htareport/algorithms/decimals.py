"""Decimal text to integers, without passing through floating point.

A float64 holds 53 bits: time stamps since the epoch in microseconds with three decimals need 61, and even stamps that
fit are rounded twice on the way to nanoseconds. So the text itself is turned into integers, many numbers at a time.
Numbers are joined by a zero byte, which no JSON value holds: whatever stands for a number stays one.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

import numpy as np
from numpy.typing import NDArray

MISSING = np.iinfo(np.int64).min  # What no number stands for.
SEPARATOR = b"\0"
_POINT, _ZERO, _NINE = b".09"
_PLACES = 3
_UNIT = Decimal("0.001")
_MOST_DIGITS = 19  # Of a value in thousandths: 9 * 10**18 is within int64, 10**19 is not.
_SHAPE_BASE = 32  # A token's shape is its length × 32 + the digits before its point.
_SHAPES = _SHAPE_BASE * (_MOST_DIGITS + 2)  # Longer tokens are read one by one.


def thousandths(text: bytes | bytearray) -> NDArray[np.int64]:
    """Turn decimal numbers, joined by SEPARATOR, into integer thousandths (µs to ns); MISSING where there is none.

    More than three decimals are rounded half to even. Tokens may be quoted, signed or have an exponent, which only
    costs time; whatever is no finite number within 63 bits is MISSING.
    """
    data = np.frombuffer(text, np.uint8)
    limits = np.flatnonzero(data == SEPARATOR[0])
    begins = np.concatenate(([0], limits + 1))
    lengths = np.concatenate((limits, [len(data)])) - begins
    whole = _digits_before_point(data, begins, lengths)
    out = np.full(len(begins), MISSING, np.int64)
    shapes = lengths * _SHAPE_BASE + whole
    for shape in np.flatnonzero(np.bincount(np.minimum(shapes, _SHAPES))).tolist():
        rows = np.flatnonzero(shapes == shape) if shape < _SHAPES else np.flatnonzero(shapes >= _SHAPES)
        if shape < _SHAPES:
            values, fine = _of_equal_shape(data, begins[rows], *divmod(shape, _SHAPE_BASE))
            out[rows[fine]] = values[fine]
            rows = rows[~fine]
        for row in rows[lengths[rows] > 0].tolist():
            out[row] = _slowly(bytes(data[begins[row] : begins[row] + lengths[row]]))
    return out


def _digits_before_point(
    data: NDArray[np.uint8], begins: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.int64]:
    """How many characters stand before the first point of each token, or all of them."""
    points = np.flatnonzero(data == _POINT)
    if len(points) != len(begins) or (points < begins).any() or (points >= begins + lengths).any():
        points = np.append(points, len(data))
        points = points[np.searchsorted(points, begins)]
    before: NDArray[np.int64] = np.minimum(points - begins, lengths)
    return before


def _of_equal_shape(
    data: NDArray[np.uint8], begins: NDArray[np.int64], length: int, whole: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Values of tokens that have their point at the same place, and which of them are digits otherwise."""
    value, fine = np.zeros(len(begins), np.int64), np.ones(len(begins), np.bool_)
    decimals = max(length - whole - 1, 0)
    digits = whole + _PLACES
    if not whole or decimals > _PLACES or digits > _MOST_DIGITS:
        return value, ~fine
    if digits == _MOST_DIGITS:
        fine &= data[begins] < _NINE
    for position in range(length):
        if position == whole:
            continue
        digit = data[begins + position] - np.uint8(_ZERO)
        if digit.max() > 9:  # noqa: PLR2004  a decimal digit
            fine &= digit <= 9  # noqa: PLR2004
        value *= 10
        value += digit
    value *= 10 ** (_PLACES - decimals)
    return value, fine


def _slowly(token: bytes) -> int:
    try:
        value = Decimal(token.strip(b'" \t\r\n').decode("ascii")).quantize(_UNIT, ROUND_HALF_EVEN)
    except (ArithmeticError, ValueError):  # No number, or one with more digits than 63 bits have.
        return int(MISSING)
    if not value.is_finite():
        return int(MISSING)
    thousands = int(value.scaleb(_PLACES))
    return thousands if abs(thousands) < 2**63 else int(MISSING)
