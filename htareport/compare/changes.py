"""Splits the change of each kernel, operator, collective or copy: more or slower calls, new, gone or swapped.

A change of time is split into that of the number of calls and that of their mean by the logarithmic mean divisia index
(Ang, Energy Policy 32, 2004): the two add up exactly, and swapping the runs turns every sign.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from htareport.compare.matching import Matched, plain
from htareport.compare.words import listed

EFFECTS = ("by_calls", "by_duration", "by_swap", "by_new", "by_gone")
SIDES = ("base_count", "new_count", "base_time", "new_time")
MEASURES = (*SIDES, *EFFECTS)
ARROW, NONE = " → ", "(none)"
UNCHANGED = "unchanged"
_LABELS = {
    "by_calls": ("more calls", "fewer calls"),
    "by_duration": ("slower calls", "faster calls"),
    "by_swap": ("swapped, slower", "swapped, faster"),
    "by_new": ("new", "new"),
    "by_gone": ("gone", "gone"),
}
_MAX_LISTED = 3  # Operators or shapes of one group.
_SAME = 1e-9  # Of a sum of floats, relative to the time.


class Amount(NamedTuple):
    """Calls and their time (ns), per step and rank."""

    calls: float
    time: float


NOTHING = Amount(0.0, 0.0)
Amounts = dict[str, Amount]  # By kernel.


def of_kernels(matched: Matched) -> pd.DataFrame:
    """Return a row per kernel, or swap, of each group: path, operator, shapes, kind, kernel, level, MEASURES."""
    kernels = [set(side["kernel"]) for side in matched]
    groups = [_by_group(side) for side in matched]
    rows = [
        _labels_of(groups, group) | row
        for group in sorted(groups[0].keys() | groups[1].keys())
        for row in _changes_of([_amounts(side.get(group, [])) for side in groups], kernels)
    ]
    return pd.DataFrame(rows, columns=["path", "operator", "shapes", "kind", "kernel", "level", *MEASURES])


def _by_group(side: pd.DataFrame) -> dict[int, list[Any]]:
    by_group = dict[int, list[Any]]()
    for group, row in zip(side["group"].tolist(), side.itertuples(index=False), strict=True):
        by_group.setdefault(group, []).append(row)
    return by_group


def _amounts(rows: Sequence[Any]) -> Amounts:
    amounts = Amounts()
    for row in rows:
        amounts[row.kernel] = _sum([amounts.get(row.kernel, NOTHING), Amount(row.count, row.time)])
    return amounts


def _sum(amounts: Iterable[Amount]) -> Amount:
    calls, times = zip(*amounts, strict=True)
    return Amount(sum(calls), sum(times))


def _labels_of(groups: Sequence[dict[int, list[Any]]], group: int) -> dict[str, str]:
    """Return what a group is: as on the one side that has it, or on both; where that differs, base → new."""
    sides = [side[group] for side in groups if group in side]
    labels = {}
    for name in ("path", "operator", "shapes"):
        texts = [listed(sorted({getattr(row, name) for row in side}), _MAX_LISTED, "; ") for side in sides]
        labels[name] = texts[0] if texts[0] == texts[-1] else ARROW.join(text or NONE for text in texts)
    return labels | {"kind": sides[0][0].kind, "level": sides[0][0].level}


def _changes_of(sides: Sequence[Amounts], kernels: Sequence[set[str]]) -> Iterator[dict[str, Any]]:
    """Yield the changes of a group's kernels; `kernels` are those of each run in all groups."""
    base, new = sides
    for kernel in [name for name in base if name in new]:
        yield {"kernel": kernel} | split(base.pop(kernel), new.pop(kernel))
    for old, fresh in _renamed(base, new):
        yield {"kernel": f"{old}{ARROW}{fresh}"} | split(base.pop(old), new.pop(fresh))
    if base and new:
        row = split(_sum(base.values()), _sum(new.values()))
        change = {"by_calls": 0.0, "by_duration": 0.0, "by_swap": row["new_time"] - row["base_time"]}
        yield {"kernel": ARROW.join(" + ".join(sorted(side)) for side in sides)} | row | change
        return
    for kernel, amount in base.items():
        yield {"kernel": kernel} | split(amount, NOTHING, lone="by_calls" if kernel in kernels[1] else "by_gone")
    for kernel, amount in new.items():
        yield {"kernel": kernel} | split(NOTHING, amount, lone="by_calls" if kernel in kernels[0] else "by_new")


def _renamed(base: Amounts, new: Amounts) -> list[tuple[str, str]]:
    """Return old and new names of kernels that differ by numbers only, where one of that kind is on each side."""
    if not base or not new:
        return []
    sides = [_only_of_kind(base), _only_of_kind(new)]
    return [(kernel, sides[1][kind]) for kind, kernel in sides[0].items() if kind in sides[1]]


def _only_of_kind(amounts: Amounts) -> dict[str, str]:
    kinds = Counter(map(plain, amounts))
    return {plain(kernel): kernel for kernel in amounts if kinds[plain(kernel)] == 1}


def split(base: Amount, new: Amount, lone: str = "") -> dict[str, float]:
    """Return MEASURES of a change; `lone` names the one of EFFECTS for work that is on one side only."""
    delta = new.time - base.time
    effects = dict.fromkeys(EFFECTS, 0.0)
    if lone:
        effects[lone] = delta
    elif min(base) > 0 and min(new) > 0:
        effects["by_calls"] = _log_mean(base.time, new.time) * math.log(new.calls / base.calls)
        effects["by_duration"] = delta - effects["by_calls"]
    else:  # Calls of no time.
        effects["by_duration"] = delta
    return dict(zip(SIDES, (base.calls, new.calls, base.time, new.time), strict=True)) | effects


def _log_mean(base: float, new: float) -> float:
    delta = new - base
    if abs(delta) > min(base, new):
        return delta / math.log(new / base)
    return delta / (2 * math.atanh(delta / (base + new))) if delta else base  # log(new / base) to the last digit.


def by_name(base: pd.DataFrame, new: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Return the changes of rows that are matched by equal keys: keys, MEASURES, and what labelled() adds."""
    sides = [_amounts_by(side, keys) for side in (base, new)]
    rows = []
    for name in dict.fromkeys((*sides[0], *sides[1])):
        lone = "by_gone" if name not in sides[1] else "by_new" if name not in sides[0] else ""
        row = split(sides[0].get(name, NOTHING), sides[1].get(name, NOTHING), lone)
        rows.append(dict(zip(keys, name, strict=True)) | row)
    return labelled(pd.DataFrame(rows, columns=[*keys, *MEASURES]))


def _amounts_by(side: pd.DataFrame, keys: Sequence[str]) -> dict[tuple[Any, ...], Amount]:
    amounts = dict[tuple[Any, ...], Amount]()
    for *key, count, time in side[[*keys, "count", "time"]].itertuples(index=False, name=None):
        amounts[tuple(key)] = _sum([amounts.get(tuple(key), NOTHING), Amount(count, time)])
    return amounts


def summed(rows: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Add up rows of equal keys."""
    return labelled(rows.groupby(list(keys), sort=False)[list(MEASURES)].sum().reset_index())


def labelled(rows: pd.DataFrame) -> pd.DataFrame:
    """Add what follows from MEASURES: delta, means per call, and in a word what happened. Largest change first.

    What happened is the largest effect among those in the direction of the change: what is now longer is not "gone".
    """
    effects = rows[list(EFFECTS)].to_numpy(np.float64).reshape(-1, len(EFFECTS))
    delta = (rows["new_time"] - rows["base_time"]).to_numpy(np.float64)
    time = (rows["base_time"] + rows["new_time"]).to_numpy(np.float64)
    direction = np.where(np.abs(delta) > _SAME * time, np.sign(delta), 0)[:, None]
    largest = np.where(direction, effects * direction, np.abs(effects)).argmax(axis=1)
    is_same = np.abs(effects).sum(axis=1) <= _SAME * time
    is_negative = effects[np.arange(len(rows)), largest] < 0
    changed = [
        UNCHANGED if same else _LABELS[EFFECTS[effect]][int(negative)]
        for same, effect, negative in zip(is_same.tolist(), largest.tolist(), is_negative.tolist(), strict=True)
    ]
    rows = rows.assign(delta=delta, change=pd.Series(changed, rows.index, dtype=object))
    for side in ("base", "new"):
        count = rows[f"{side}_count"]
        rows[f"{side}_mean"] = (rows[f"{side}_time"] / count.where(count > 0)).astype("float64")
    order = np.lexsort((-rows["new_time"].to_numpy(np.float64), -np.abs(delta)))
    return rows.iloc[order].reset_index(drop=True)
