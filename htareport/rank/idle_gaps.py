"""Gaps of devices and streams: their causes, sums and statistics."""

from __future__ import annotations

from typing import Any

import pandas as pd

CAUSES = ("host wait", "kernel wait", "other")
ROUNDING = 1  # ns: so long is the gap between events that follow each other directly, where stamps are rounded to ns.


def with_neighbours(gaps: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    """Gaps with what ran before and after, and the step in which the next event is launched."""
    names, step = events["name"].astype(object).to_numpy(), events["step"].to_numpy()[gaps["event"]]
    return pd.DataFrame(
        {
            "device": gaps["device"],
            "start": gaps["begin"],
            "duration": gaps["gap"],
            "category": gaps["category"].astype(str),
            "step": pd.Series([number if number >= 0 else None for number in step.tolist()], gaps.index, object),
            "before": names[gaps["previous"]],
            "after": names[gaps["event"]],
        }
    )


def sums(gaps: pd.DataFrame, there: pd.DataFrame) -> pd.DataFrame:
    """Idle time and gaps of each device or stream that is there by cause, zero where a cause does not occur."""
    keys = list(there.columns)
    every = there.merge(pd.DataFrame({"category": list(CAUSES)}), how="cross")
    counted = gaps.assign(category=gaps["category"].astype(str), one=gaps["gap"] > 0)
    sums = (
        counted.groupby([*keys, "category"], dropna=False).agg(idle=("gap", "sum"), count=("one", "sum")).reset_index()
    )
    every = every.merge(sums, how="left", on=[*keys, "category"]).fillna({"idle": 0, "count": 0})
    every = every.astype({"idle": "int64", "count": "int64"})
    whole = every.groupby(keys, dropna=False)["idle"].transform("sum")
    return every.assign(ratio=every["idle"] / whole.where(whole > 0).astype("float64"))


def statistics(gaps: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Statistics of the gaps above zero, in ns."""
    positive = gaps[gaps["gap"] > 0]
    groups = positive.assign(category=positive["category"].astype(str)).groupby([*keys, "category"])["gap"]
    table = groups.agg(["count", "mean", "std", "min", "max"]).fillna({"std": 0.0})
    for name, share in (("p25", 0.25), ("p50", 0.5), ("p75", 0.75)):
        table[name] = groups.quantile(share)
    return table.reset_index()


def in_order(frame: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """Rows in order of columns that may hold numbers and names: numbers by size, then names."""

    def places(column: pd.Series[Any]) -> pd.Series[Any]:
        values = sorted(set(column), key=lambda value: (isinstance(value, str), value))
        return column.map({value: place for place, value in enumerate(values)})

    return frame.sort_values(list(columns), key=places, kind="stable", ignore_index=True)
