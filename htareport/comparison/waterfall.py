"""From the mean step time of one run to that of the other: which part of the step grew or shrank by how much."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from htareport.comparison.sides import CAUSES, PARTS, Side

LABELS = {
    "compute": "compute",
    "exposed_comm": "exposed communication",
    "exposed_memory": "exposed memory",
    "host wait": "idle: host wait",
    "kernel wait": "idle: kernel wait",
    "other": "idle: other",
    "idle": "idle",
}
REST, TOTAL = "rest", "in all"
_EXACT = 1e-3  # ns: sums of floats are no more exact.
COLUMNS = ["part", "base", "new", "delta", "from", "to"]


def waterfall(base: Side, new: Side) -> pd.DataFrame:
    """Rows of the parts, and of all: part, base, new, delta, from and to (where its bar lies), in ns; else empty.

    The parts are means over steps, ranks and devices; the job's step time is that of the slowest rank, so what its mean
    changes by besides the parts is the rest. Without steps on both sides: everything recorded, mean over devices.
    """
    by_step = all(len(side.step_times) > 0 and len(side.parts_of_steps) > 0 for side in (base, new))
    sides = [side.parts_of_steps.mean() if by_step else side.parts_of_span for side in (base, new)]
    if any(np.isnan(_number(side, "time")) for side in sides):
        return pd.DataFrame({name: [] for name in COLUMNS})
    totals = [float(side.step_times.mean()) if by_step else float(values["time"])
              for side, values in zip((base, new), sides, strict=True)]  # fmt: skip
    rows = [(LABELS[name], _number(sides[0], name, 0.0), _number(sides[1], name, 0.0)) for name in _parts(sides)]
    frame = pd.DataFrame(rows, columns=["part", "base", "new"]).fillna(0.0)
    rest = np.array(totals) - frame[["base", "new"]].sum().to_numpy()
    frame.loc[len(frame)] = [REST, *np.where(np.abs(rest) > _EXACT, rest, 0.0)]
    frame["delta"] = frame["new"] - frame["base"]
    frame["to"] = frame["delta"].cumsum()
    frame["from"] = frame["to"] - frame["delta"]
    total = totals[1] - totals[0]
    whole = pd.DataFrame([(TOTAL, *totals, total, 0.0, total)], columns=COLUMNS)
    return pd.concat([frame[COLUMNS], whole], ignore_index=True)


def _number(side: pd.Series[Any], name: str, default: float = float("nan")) -> float:
    return float(side.get(name, default))


def _parts(sides: Sequence[pd.Series[Any]]) -> list[str]:
    """The parts to tell apart: idle by cause only where both sides know it."""
    if all(not np.isnan(_number(side, cause)) for side in sides for cause in CAUSES):
        return [*PARTS, *CAUSES]
    return [*PARTS, "idle"]
