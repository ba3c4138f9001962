"""Compute kernels that do equal work, as far as the trace tells: same name, grid, operator and shapes."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.rank import kernel_launches
from htareport.rank.cached import cached_until_release
from htareport.rank.compute_time import in_steps, operators, sole
from htareport.rank.kernel_grids import grid_codes
from htareport.rank.operator_groups import short
from htareport.rank.operator_work import NONE
from htareport.rank.rank import Rank


@cached_until_release
def equal_kernels(rank: Rank) -> pd.DataFrame:
    """Compute kernels of the steps, in order of start.

    Columns: event (row of device events), key (equal for equal work on a device), name, grid, operator and shapes
    (codes, -1 none), step, dur (ns), alone (whether no other event of the device covers any of it).
    """
    events = rank.device_events
    event_rows = np.flatnonzero(in_steps(rank) & (events["kind"] == "compute").to_numpy())
    host_rows = operators(rank)[event_rows]
    has_operator = host_rows != NONE
    operator, shapes = (np.full(len(event_rows), NONE, np.int32) for _ in range(2))
    operator[has_operator] = kernel_launches.names_of(rank, host_rows[has_operator])
    shapes[has_operator] = kernel_launches.codes_of(rank, host_rows[has_operator], "shapes")
    name, grid = events["name"].cat.codes.to_numpy()[event_rows], grid_codes(rank)[event_rows]
    device = pd.factorize(events["device"])[0][event_rows]
    columns = {"name": name, "grid": grid, "operator": operator, "shapes": shapes}
    overlapped = events["dur"].to_numpy().copy()
    for intervals in sole(rank).values():
        np.subtract.at(overlapped, intervals.event, intervals.end - intervals.start)
    return pd.DataFrame(
        {
            "event": event_rows.astype(np.int32),
            "key": kernel_launches.distinct(*columns.values(), device)[1].astype(np.int32),
            **{name: codes.astype(np.int32) for name, codes in columns.items()},
            "step": events["step"].to_numpy()[event_rows].astype(np.int32),
            "dur": events["dur"].to_numpy()[event_rows],
            "alone": overlapped[event_rows] == 0,
        },
        copy=False,
    )


def largest_excess(rank: Rank, events: pd.DataFrame, excess: NDArray[np.float64]) -> list[tuple[str, float]]:
    """Names of up to three kernels with most excess time, each with that time in ns per step; none with no time."""
    sums = defaultdict[str, float](float)
    for code, time in zip(events["name"].tolist(), excess.tolist(), strict=True):
        sums[short(rank.loaded.strings[code])] += time / rank.num_steps
    largest = sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:3]
    return [(name, time) for name, time in largest if round(time)]
