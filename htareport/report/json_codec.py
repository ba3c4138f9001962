"""Frozen dataclasses, enums, tuples and data frames as JSON data and back, led by the type hints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

import msgspec
import pandas as pd

Decoded = TypeVar("Decoded")

_CELLS: dict[str, Any] = {  # Which JSON values a column of each type may hold.
    "int64": list[int], "uint64": list[int], "bool": list[bool], "float64": list[int | float | None],
    "object": list[str | int | float | bool | None],
}  # fmt: skip
_AT = " - at `$"  # What stands in msgspec's messages before the place.


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


class DecodeError(ValueError):
    """JSON data that are not what was written; the text begins with the place: `sections[3].charts[0].mark: …`."""


def decode(kind: type[Decoded], raw: Any, prefix: str = "") -> Decoded:
    """Return a value of type `kind` from what `encode` returned. DecodeError, naming the place, if it is not one.

    `prefix` stands before the place in the message.
    Fields that the type does not know are left out, and a field with a default may be missing: versions differ by such
    fields.
    """
    try:
        return msgspec.convert(raw, kind, dec_hook=_frame)
    except msgspec.ValidationError as error:
        text = str(error) if _AT in str(error) else f"{error}{_AT}`"  # At the top no place is named.
        reason, _, path = text.rpartition(_AT)
        where = (prefix + path.removesuffix("`")).lstrip(".")
        raise DecodeError(f"{where}: {reason}" if where else reason) from error


@dataclass(frozen=True, slots=True)
class _FrameData:
    """A data frame as it is written."""

    columns: dict[str, list[Any]]
    dtypes: dict[str, str]


def _frame(kind: type, raw: Any) -> pd.DataFrame:
    if kind is not pd.DataFrame:
        raise NotImplementedError
    data, series, length = decode(_FrameData, raw), dict[str, Any](), None
    for name, values in data.columns.items():
        if length not in (None, len(values)):
            raise DecodeError(f"columns.{name}: {len(values)} values, but {length} in the columns before")
        series[name], length = _column(values, data.dtypes.get(name, ""), f"columns.{name}"), len(values)
    return pd.DataFrame(series, columns=list(series))


def _column(values: list[Any], dtype: str, prefix: str) -> pd.Series[Any]:
    if dtype not in _CELLS:
        raise DecodeError(f"{prefix}: its type {dtype!r} is none of {', '.join(_CELLS)}")
    decode(_CELLS[dtype], values, prefix)
    try:
        return pd.Series(values, dtype=dtype)
    except (ArithmeticError, ValueError) as error:
        raise DecodeError(f"{prefix}: a number that is no {dtype}") from error
