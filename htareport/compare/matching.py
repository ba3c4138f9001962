"""Matches the work of two runs, though kernels change their names with the device and the library.

Work is matched by the operators around its launch and by their input shapes, where those are equal on both sides; what
is left by less and less: operator and shapes, path, operator, name of the kernel, its name without numbers.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

SEPARATOR = " > "  # Between the operators of a path.
LEVELS = {
    "path and shapes": ("path", "shapes"),
    "operator and shapes": ("operator", "shapes"),
    "path": ("path",),
    "operator": ("operator",),
    "kernel": ("kernel",),
    "similar kernel": ("plain",),
}
SAME_SHAPES = ("path and shapes", "operator and shapes")  # The same operator on inputs of the same shapes.
_NUM_OPERATOR_LEVELS = 4  # The first of LEVELS are for work that has an operator.
_HASH = re.compile(r"(?<![A-Za-z0-9])(?=[A-Za-z0-9]*\d)(?=[A-Za-z0-9]*[A-Za-z])[A-Za-z0-9]{16,}(?![A-Za-z0-9])")
_NUMBER = re.compile(r"\d+")


class Matched(NamedTuple):
    """The rows of both sides with two further columns: group (equal for what belongs together), and level.

    `level` is one of LEVELS, empty for what has nothing on the other side; such rows have a group each.
    """

    base: pd.DataFrame
    new: pd.DataFrame


@lru_cache(maxsize=1 << 13)
def plain(name: str) -> str:
    """Return a name without hashes and numbers, which change with version, tile sizes and architecture."""
    return _NUMBER.sub("#", _HASH.sub("*", name))


def match(base: pd.DataFrame, new: pd.DataFrame) -> Matched:
    """Match rows of work (path, shapes, kernel, kind) of two runs."""
    sides = [_keyed(side) for side in (base, new)]
    used = 0
    for level_index, (level, columns) in enumerate(LEVELS.items()):
        keys = [_keys(side, columns, needs_operator=level_index < _NUM_OPERATOR_LEVELS) for side in sides]
        common = sorted(set(keys[0].dropna()) & set(keys[1].dropna()))
        numbers = {key: used + number for number, key in enumerate(common)}
        for side, key in zip(sides, keys, strict=True):
            groups = key.map(numbers)
            is_matched = groups.notna()
            side.loc[is_matched, "group"] = groups[is_matched].astype("int64")
            side.loc[is_matched, "level"] = level
        used += len(common)
    for side in sides:
        is_alone = (side["group"] < 0).to_numpy()
        side.loc[is_alone, "group"] = used + np.arange(is_alone.sum())
        used += int(is_alone.sum())
    return Matched(*sides)


def _keyed(side: pd.DataFrame) -> pd.DataFrame:
    paths = [plain(path) for path in side["path"]]
    return side.assign(
        operator=[path.rpartition(SEPARATOR)[2] for path in side["path"]],
        path=paths,
        plain=[plain(kernel) for kernel in side["kernel"]],
        group=-1,
        level="",
    )


def _keys(side: pd.DataFrame, columns: tuple[str, ...], *, needs_operator: bool) -> pd.Series[Any]:
    """Return the key of each row that is not matched yet, nothing for the others."""
    is_free = (side["group"] < 0) & ((side["operator"] != "") | (not needs_operator))
    rows = side.loc[is_free, [*columns, "kind"]].itertuples(index=False, name=None)
    return pd.Series(list(rows), side.index[is_free], dtype=object).reindex(side.index)
