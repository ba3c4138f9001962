"""Profiler steps: host rows named ProfilerStep#N, and the windows between them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms.chunks import chunks
from htareport.algorithms.distinct import unique_sorted
from htareport.report import Unit
from htareport.report.units import counted, text
from htareport.rows import classify
from htareport.rows.capture import Loaded

OUTSIDE = -1


def step_table(loaded: Loaded) -> pd.DataFrame:
    """Steps by start: number, start, end (ns), capture, next, written (the number in the file), shared (with the next).

    A step lasts from its row's start to the start of the next step's row; the last one, and one before a gap in the
    numbers, to its own end. Of several rows of one number in a capture the one that starts first counts. Where a later
    capture does not go on with the numbers of those before it (a new profiler begins at 0), they are counted on.
    """
    numbers = np.array([_number(name) for name in loaded.strings], np.int64)
    parts = [np.zeros((4, 0), np.int64)]
    for category, columns in loaded.tables.items():
        if category in classify.ANNOTATION_CATEGORIES or category in loaded.device_categories:
            continue
        number = numbers[columns["name"]]
        rows = np.flatnonzero(number != OUTSIDE)
        ts = columns["ts"][rows]
        parts.append(np.stack([number[rows], ts, ts + columns["dur"][rows], columns["capture"][rows]]))
    number, start, end, capture = np.concatenate(parts, axis=1)
    order = np.lexsort((number, start))
    _, first = np.unique(np.stack([capture[order], number[order]]), axis=1, return_index=True)
    order = order[np.sort(first)]
    number, start, end, capture = number[order], start[order], end[order], capture[order]
    follows = np.zeros(len(order), np.bool_)
    follows[:-1] = (capture[1:] == capture[:-1]) & (number[1:] == number[:-1] + 1)
    shared = np.zeros(len(order), np.int64)
    shared[:-1] = np.where(capture[1:] == capture[:-1], np.maximum(end[:-1] - start[1:], 0), 0)
    end[:-1] = np.where(follows[:-1], start[1:], end[:-1])
    counted = _counted_on(number, capture)
    columns = {"number": counted, "start": start, "end": end, "capture": capture, "next": follows, "written": number}
    return pd.DataFrame(columns | {"shared": shared})


def _counted_on(number: NDArray[np.int64], capture: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers that occur once in all captures: those of a capture that starts again go on behind those before."""
    counted, highest = number.copy(), OUTSIDE
    for each in unique_sorted(capture).tolist():
        mine = capture == each
        if counted[mine].min() <= highest:
            counted[mine] += highest + 1 - counted[mine].min()
        highest = int(counted[mine].max())
    return counted


def step_warnings(steps: pd.DataFrame) -> Iterator[str]:
    """Say where steps overlap, and where their numbers are not those of the files."""
    if overlaps := int((steps["shared"] > 0).sum()):
        longest = text(int(steps["shared"].max()), Unit.NANOSECONDS)
        told = counted(overlaps, "step goes on", "steps go on")
        yield f"{told} when the next begins (by up to {longest}); that time counts for the next"
    moved = steps[steps["number"] != steps["written"]]
    if len(moved):
        first = moved.iloc[0]
        yield (
            f"the step numbers start again in later captures, so they are counted on (step {first['written']} there is "
            f"step {first['number']} here, and so on)"
        )


def _number(name: str) -> int:
    number = classify.step_number(name)
    return OUTSIDE if number is None else number


def step_of(steps: pd.DataFrame, stamps: NDArray[np.int64]) -> NDArray[np.int32]:
    """Number of the step whose window holds each stamp, -1 outside of all."""
    if not len(steps):
        return np.full(len(stamps), OUTSIDE, np.int32)
    start, end, number = (steps[name].to_numpy() for name in ("start", "end", "number"))
    step = np.full(len(stamps), OUTSIDE, np.int32)
    for chunk in chunks(len(stamps)):
        at = np.searchsorted(start, stamps[chunk], side="right") - 1
        inside = (at >= 0) & (stamps[chunk] < end[np.maximum(at, 0)])
        step[chunk] = np.where(inside, number[np.maximum(at, 0)], OUTSIDE)
    return step
