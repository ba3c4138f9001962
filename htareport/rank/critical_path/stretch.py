"""Which stretch of a rank's time is looked at closely: shown as a timeline, or walked along for its critical path."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htareport.rank.critical_path.activity import Span
from htareport.rank.rank import Rank
from htareport.rows.classify import step_number


def step_span(trace: Rank, number: int) -> Span | None:
    """The window of a step, seen from the thread that has its row; None if the rank has no such step."""
    steps = trace.steps
    found = steps[steps["number"] == number]
    if not len(found):
        return None
    start, end, capture = (int(found[name].iloc[0]) for name in ("start", "end", "capture"))
    host = trace.host
    at = np.flatnonzero((host["ts"] == start) & (host["capture"] == capture))
    rows = at[[step_number(str(name)) == number for name in host.names(at)]]
    return Span(start, end, capture, int(host.at("thread", rows[:1])[0]) if len(rows) else None)


def median_step(trace: Rank) -> int | None:
    """The complete step of median length, the last of equals, of two the shorter; None without steps.

    Steps that no other follows, or whose device work is cut off, count only if there are no others; steps without
    device work only if none has any.
    """
    steps = trace.steps
    if not len(steps):
        return None
    at_work = steps["number"].isin(trace.device_events["step"].unique())
    steps = steps[at_work] if at_work.any() else steps
    whole = steps["next"].to_numpy() & ~steps["number"].isin(trace.cut_steps).to_numpy()
    numbers = steps["number"].to_numpy()
    length = (steps["end"] - steps["start"]).to_numpy()
    if whole.any():
        numbers, length = numbers[whole], length[whole]
    median = np.sort(length)[(len(length) - 1) // 2]
    return int(numbers[np.flatnonzero(length == median)[-1]])


def annotation_rows(trace: Rank, annotation: str) -> pd.DataFrame:
    """Host rows whose name contains a text, by start: annotations, or operators where no annotation does."""
    host = trace.host
    codes, inverse = np.unique(host["name"], return_inverse=True)
    has = np.array([annotation in trace.loaded.strings[code] for code in codes.tolist()], np.bool_)
    rows = host.frame(has[inverse])
    annotated = rows[rows["level"] == "annotation"]
    return (annotated if len(annotated) else rows).sort_values("ts", kind="stable")


def whole_span(trace: Rank, most: int | None = None) -> Span | None:
    """Everything recorded, of several captures the longest; None without events.

    With more than `most` host rows and device events, the stretch from the start that holds so many.
    """
    lengths = [(c.last_ns - c.first_ns, -number) for number, c in enumerate(trace.captures)
               if c.first_ns is not None and c.last_ns is not None]  # fmt: skip
    if not lengths:
        return None
    capture = -max(lengths)[1]
    first, last = trace.captures[capture].first_ns, trace.captures[capture].last_ns
    assert first is not None  # noqa: S101  chosen above
    assert last is not None  # noqa: S101
    end = last + 1
    if most is not None:
        tables = (trace.host, trace.device_events)
        starts = np.concatenate([np.asarray(table["ts"])[np.asarray(table["capture"]) == capture] for table in tables])
        if len(starts) > most:
            end = int(np.partition(starts, most)[most])
    return Span(first, end, capture, is_whole=True)
