"""Profiler steps: host rows named ProfilerStep#N, and the windows between them."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.trace import classify
from htareport.trace.capture import Loaded

OUTSIDE = -1


def step_table(loaded: Loaded) -> pd.DataFrame:
    """Steps by start: number, start, end (ns), capture, next.

    A step lasts from its row's start to the start of the next step's row; the last one, and one before a gap in the
    numbers, to its own end. Of several rows of one number the one that starts first counts.
    """
    numbers = [classify.step_number(name) for name in loaded.strings]
    codes = np.array([code for code, number in enumerate(numbers) if number is not None], np.int64)
    rows = [
        (numbers[columns["name"][at]], columns["ts"][at], columns["ts"][at] + columns["dur"][at], columns["capture"][at])
        for category, columns in loaded.tables.items()
        if category not in classify.ANNOTATION_CATEGORIES and category not in loaded.device_categories and len(codes)
        for at in np.flatnonzero(np.isin(columns["name"], codes)).tolist()
    ]
    table = pd.DataFrame(rows, columns=["number", "start", "end", "capture"]).astype("int64")
    table = table.sort_values(["start", "number"], kind="stable").drop_duplicates("number")
    table = table.reset_index(drop=True)
    start, number, capture = (table[name].to_numpy() for name in ("start", "number", "capture"))
    follows = np.zeros(len(table), np.bool_)
    follows[:-1] = (capture[1:] == capture[:-1]) & (number[1:] == number[:-1] + 1)
    end = table["end"].to_numpy().copy()  # Through numpy: a shifted Series would pass through floats.
    end[:-1][follows[:-1]] = start[1:][follows[:-1]]
    return table.assign(end=end, next=follows)


def step_of(steps: pd.DataFrame, stamps: NDArray[np.int64]) -> NDArray[np.int32]:
    """Number of the step whose window holds each stamp, -1 outside of all."""
    if not len(steps):
        return np.full(len(stamps), OUTSIDE, np.int32)
    start, end, number = (steps[name].to_numpy() for name in ("start", "end", "number"))
    at = np.searchsorted(start, stamps, side="right") - 1
    inside = (at >= 0) & (stamps < end[np.maximum(at, 0)])
    return np.where(inside, number[np.maximum(at, 0)], OUTSIDE).astype(np.int32)
