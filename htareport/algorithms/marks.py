"""Intervals merged into marks of a picture: those shorter than a pixel that fall into the same one become one mark."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

PIXELS = 2_000


def merged(lane: Ints, start: Ints, end: Ints, most: int) -> tuple[Ints, Ints]:
    """Sort intervals by lane and start, and number the marks that they make: (order, mark of each in that order).

    An interval of a pixel or more is a mark of its own. Where that makes more marks than `most`, pixels become twice as
    large, and again, until each lane has one mark.
    """
    order = np.lexsort((end, start, lane))
    if not len(order):
        return order, order
    lane, start, end = lane[order], start[order] - start.min(), end[order] - start.min()
    pixel = max(int(end.max()) // PIXELS, 1)
    while True:
        small = end - start < pixel
        first = np.ones(len(order), np.bool_)
        first[1:] = (lane[1:] != lane[:-1]) | ~small[1:] | ~small[:-1] | (np.diff(start // pixel) != 0)
        if first.sum() <= most or pixel > end.max():
            return order, np.cumsum(first) - 1
        pixel *= 2
