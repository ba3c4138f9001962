"""Splits the change of the mean step time into compute, communication, memory and idle time: the waterfall."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from htareport.compare.sides import BUSY_USES, IDLE_CAUSES, Side

LABELS = {
    "compute": "compute",
    "exposed_comm": "exposed communication",
    "exposed_memory": "exposed memory",
    "host wait": "idle: host wait",
    "kernel wait": "idle: kernel wait",
    "other": "idle: other",
    "idle": "idle",
}
REMAINDER, TOTAL = "rest", "in all"
_MAX_REMAINDER = 0.02  # Of the shorter step time.
_EXACT = 1e-3  # ns: sums of floats are no more exact.
COLUMNS = ["part", "base", "new", "delta", "from", "to"]


class Waterfall(NamedTuple):
    """Rows of the parts, and of all: COLUMNS, ns (from and to: where a part's bar lies); none where nothing is known.

    `is_slowest`: the times are those of the slowest rank in each step, not means over the ranks.
    """

    rows: pd.DataFrame
    is_slowest: bool = False


def waterfall(base: Side, new: Side) -> Waterfall:
    """Split the change of the mean step time, or without steps on both sides of the span, into that of its parts.

    The parts are means over steps, ranks and devices; the job's step time is that of the slowest rank, so what its mean
    changes by besides the parts is the rest. Where that is too much, the parts are the slowest rank's own.
    """
    both = base, new
    if not all(side.has_steps and len(side.uses_of_steps) for side in both):
        spans = [side.uses_of_span for side in both]
        if any(np.isnan(_number(side, "time")) for side in spans):
            return Waterfall(pd.DataFrame({name: [] for name in COLUMNS}))
        return Waterfall(_rows(spans, [_number(side, "time") for side in spans]))
    totals = [float(side.step_times.mean()) for side in both]
    rows = _rows([side.uses_of_steps.mean() for side in both], totals)
    remainder = abs(float(rows.loc[rows["part"] == REMAINDER, "delta"].iloc[0]))
    slowest = [side.uses_of_slowest for side in both]
    is_complete = all(len(steps) == len(side.step_times) for steps, side in zip(slowest, both, strict=True))
    if remainder > _MAX_REMAINDER * min(totals) and is_complete:
        return Waterfall(_rows([steps.mean() for steps in slowest], totals), is_slowest=True)
    return Waterfall(rows)


def _rows(sides: Sequence[pd.Series[Any]], totals: Sequence[float]) -> pd.DataFrame:
    rows = [(LABELS[use], *(_number(side, use, 0.0) for side in sides)) for use in _uses(sides)]
    frame = pd.DataFrame(rows, columns=["part", "base", "new"]).fillna(0.0)
    remainder = np.array(totals) - frame[["base", "new"]].sum().to_numpy()
    frame.loc[len(frame)] = [REMAINDER, *np.where(np.abs(remainder) > _EXACT, remainder, 0.0)]
    frame["delta"] = frame["new"] - frame["base"]
    frame["to"] = frame["delta"].cumsum()
    frame["from"] = frame["to"] - frame["delta"]
    total = totals[1] - totals[0]
    total_row = pd.DataFrame([(TOTAL, *totals, total, 0.0, total)], columns=COLUMNS)
    return pd.concat([frame[COLUMNS], total_row], ignore_index=True)


def _number(side: pd.Series[Any], name: str, default: float = float("nan")) -> float:
    return float(side.get(name, default))


def _uses(sides: Sequence[pd.Series[Any]]) -> list[str]:
    """Return the uses of time to tell apart: idle by cause only where both sides know it."""
    if all(not np.isnan(_number(side, cause)) for side in sides for cause in IDLE_CAUSES):
        return [*BUSY_USES, *IDLE_CAUSES]
    return [*BUSY_USES, "idle"]
