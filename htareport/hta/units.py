"""Converts between HTA's times, in µs, and those of this package, in ns; and HTA's labels of durations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

PER_US = 1000.0
DURATION_LABELS = {"sum": "sum (us)", "max": "max (us)", "min": "min (us)", "std": "stddev", "mean": "mean (us)"}
PERCENTILE_LABELS = {"p50": "p50 (us)", "p95": "p95 (us)"}


def nanoseconds(column: pd.Series[Any]) -> NDArray[np.int64]:
    """Return times in µs as whole ns."""
    return np.rint(column.to_numpy(np.float64) * PER_US).astype(np.int64)
