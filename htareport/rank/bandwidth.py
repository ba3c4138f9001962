"""How much memory copies move at each point in time."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htareport.algorithms import series

_PER_GB = 10**9


def bandwidth_levels(copies: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, float, int]:
    """Stamps (ns) and summed bandwidth (bytes/s) at each change, its sum over time, and the busy time (ns).

    Levels are summed as integers, so that they return to 0 exactly.
    """
    fine = copies[np.isfinite(copies["bandwidth"]) & (copies["dur"] > 0)]
    rate = np.rint(fine["bandwidth"].to_numpy() * _PER_GB).astype(np.int64)
    stamps = np.concatenate((fine["ts"].to_numpy(), fine["end"].to_numpy()))
    stamps, level = series.levels(stamps, np.concatenate((rate, -rate)))
    lasting = np.diff(stamps)
    busy = level[:-1] > 0
    return stamps, level, float((level[:-1] * lasting.astype(np.float64))[busy].sum()), int(lasting[busy].sum())
