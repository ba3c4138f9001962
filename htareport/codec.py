"""Frozen dataclasses, enums, tuples and data frames as JSON data and back, led by the type hints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import Any, cast, get_args, get_origin, get_type_hints

import pandas as pd


def encode(value: Any) -> Any:
    """Return a value as JSON data: numbers, texts, lists and dicts. `decode` is the inverse."""
    if isinstance(value, pd.DataFrame):
        columns = {name: value[name] for name in value.columns}
        return {"dtypes": {name: _dtype_name(c) for name, c in columns.items()},
                "columns": {name: column_values(c) for name, c in columns.items()}}  # fmt: skip
    if is_dataclass(value):
        return {item.name: encode(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): encode(item) for name, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    return value


def column_values(column: pd.Series[Any]) -> list[Any]:
    """Return a column as plain Python values, None for what is missing."""
    values = column.to_list()
    missing = column.isna().to_numpy()
    if missing.any():
        return [None if gone else value for value, gone in zip(values, missing, strict=True)]
    return values


def _dtype_name(column: pd.Series[Any]) -> str:
    kind = column.dtype.kind
    if kind in "iub" and column.isna().any():  # A nullable column of pandas.
        return "object"
    return {"i": "int64", "u": "uint64", "f": "float64", "b": "bool"}.get(kind, "object")


def decode(hint: Any, raw: Any) -> Any:
    """Make a value of the hinted type from what `encode` returned. Fields that it does not know are left out."""
    if hint is pd.DataFrame:
        if len({len(values) for values in raw["columns"].values()}) > 1:
            raise ValueError("columns of different lengths")
        data = {n: pd.Series(v, dtype=raw["dtypes"][n]) for n, v in raw["columns"].items()}
        return pd.DataFrame(data, columns=list(raw["columns"]))
    if is_dataclass(hint):
        hints = _hints(cast("Any", hint))
        known = {name: decode(hints[name], item) for name, item in raw.items() if name in hints}
        return cast("type[Any]", hint)(**known)
    if get_origin(hint) is tuple:
        inner = get_args(hint)
        if inner[-1] is Ellipsis:
            return tuple(decode(inner[0], item) for item in raw)
        return tuple(decode(each, item) for each, item in zip(inner, raw, strict=True))
    if get_origin(hint) is UnionType:  # Only `X | None` occurs here.
        return None if raw is None else decode(get_args(hint)[0], raw)
    return hint(raw) if isinstance(hint, type) and issubclass(hint, StrEnum) else raw


@cache
def _hints(owner: Any) -> dict[str, Any]:
    return get_type_hints(owner)
