"""Compute kernels that do equal work, as far as the trace tells: same name, grid, operator and shapes."""

from __future__ import annotations

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
def alike(rank: Rank) -> pd.DataFrame:
    """Compute kernels of the steps, in order of start.

    Columns: event (place among device events), key (equal for equal work on a device), name, grid, operator and shapes
    (codes, -1 none), step, dur (ns), alone (whether no other event of the device covers any of it).
    """
    return _alike(rank)


def _alike(rank: Rank) -> pd.DataFrame:
    trace, events = rank, rank.device_events
    mine = np.flatnonzero(in_steps(rank) & (events["kind"] == "compute").to_numpy())
    rows = operators(rank)[mine]
    there = rows != NONE
    operator, shapes = np.full(len(mine), NONE, np.int32), np.full(len(mine), NONE, np.int32)
    operator[there] = kernel_launches.names_of(trace, rows[there])
    shapes[there] = kernel_launches.codes_of(trace, rows[there], "shapes")
    name, grid = events["name"].cat.codes.to_numpy()[mine], grid_codes(rank)[mine]
    device = pd.factorize(events["device"])[0][mine]
    columns = {"name": name, "grid": grid, "operator": operator, "shapes": shapes}
    left = events["dur"].to_numpy().copy()
    for pieces in sole(rank).values():
        np.subtract.at(left, pieces.event, pieces.end - pieces.start)
    return pd.DataFrame(
        {
            "event": mine.astype(np.int32),
            "key": kernel_launches.distinct(*columns.values(), device)[1].astype(np.int32),
            **{name: values.astype(np.int32) for name, values in columns.items()},
            "step": events["step"].to_numpy()[mine].astype(np.int32),
            "dur": events["dur"].to_numpy()[mine],
            "alone": left[mine] == 0,
        },
        copy=False,
    )


def most(rank: Rank, events: pd.DataFrame, excess: NDArray[np.float64], count: int = 3) -> list[tuple[str, float]]:
    """Names of the kernels of most excess, with that per step in ns; those without any are left out."""
    sums = dict[str, float]()
    for code, time in zip(events["name"].tolist(), excess.tolist(), strict=True):
        name = short(rank.loaded.strings[code])
        sums[name] = sums.get(name, 0.0) + time / rank.num_steps
    return [pair for pair in sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:count] if round(pair[1])]
