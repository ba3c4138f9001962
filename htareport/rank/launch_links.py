"""Which launch started which device event: equal correlation ids within one process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms.distinct import unique_sorted
from htareport.report import Unit
from htareport.report.units import counted, text

UNLINKED = -1
_FEW_LOST = 0.05  # Share of launches without device work that says nothing yet: fills of no bytes have none.


def launches_of(
    correlations: NDArray[np.int64], captures: NDArray[Any], launched: NDArray[np.int64], launched_in: NDArray[Any]
) -> NDArray[np.int64]:
    """Row of the launch of each device event, -1 for none; one launch may have many device events.

    `correlations` and `captures` are those of the device events, `launched` and `launched_in` those of the launches,
    which must be in order of start: of several launches of one id the earliest counts. Ids of 0 and below are none.
    """
    rows = np.flatnonzero(launched > 0)
    if not len(rows) or not len(correlations):
        return np.full(len(correlations), UNLINKED, np.int64)
    order = np.lexsort((rows, launched[rows], launched_in[rows]))
    rows = rows[order]
    first = np.ones(len(rows), np.bool_)
    first[1:] = (launched[rows][1:] != launched[rows][:-1]) | (launched_in[rows][1:] != launched_in[rows][:-1])
    rows = rows[first]
    launches = np.full(len(correlations), UNLINKED, np.int64)
    for capture in unique_sorted(captures).tolist():
        mine = np.flatnonzero(captures == capture)
        there = rows[launched_in[rows] == capture]
        ids = launched[there]
        at = np.minimum(np.searchsorted(ids, correlations[mine]), max(len(ids) - 1, 0))
        if len(ids):
            hit = (ids[at] == correlations[mine]) & (correlations[mine] > 0)
            launches[mine[hit]] = there[at[hit]]
    return launches


def link_warnings(events: pd.DataFrame, launches: pd.DataFrame, calls: int, lost: int) -> Iterator[str]:
    """What is odd about the launches of device events: of `calls` that start such work, `lost` have none."""
    if lost and not len(events):
        told = counted(lost, "launch has", "launches have")
        yield f"GPU activity is missing: {told} no device event (the profiler probably lost its records)"
    elif lost > _FEW_LOST * calls:
        yield f"{lost} of {calls} launches have no device event in the trace"
    launch, starts = events["launch"].to_numpy(), launches["ts"].to_numpy()
    linked = launch != UNLINKED
    early = starts[launch[linked]] - events["ts"].to_numpy()[linked]
    if len(early) and early.max() > 0:
        number, most = int((early > 0).sum()), text(int(early.max()), Unit.NANOSECONDS)
        told = counted(number, "kernel starts before its launch", "kernels start before their launch")
        yield f"{told} (by up to {most}); the launch delay counts as 0 there"
