"""Which launch started which device event: equal correlation ids within one process."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

UNLINKED = -1


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
    found = np.full(len(correlations), UNLINKED, np.int64)
    for capture in np.unique(captures).tolist():
        mine = np.flatnonzero(captures == capture)
        there = rows[launched_in[rows] == capture]
        ids = launched[there]
        at = np.minimum(np.searchsorted(ids, correlations[mine]), max(len(ids) - 1, 0))
        if len(ids):
            hit = (ids[at] == correlations[mine]) & (correlations[mine] > 0)
            found[mine[hit]] = there[at[hit]]
    return found
