"""Frozen dataclasses, enums, tuples and data frames as JSON data and back, led by the type hints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Self, get_args, get_origin, get_type_hints

import orjson
import pandas as pd

_MOST_SHOWN = 60  # Characters of a wrong value in a message.


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

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason, self.place = reason, ""

    def within(self, part: str) -> Self:
        """Return this error with the place one level up: a `.field` or `[number]`."""
        self.place = part + self.place
        return self

    def __str__(self) -> str:
        return f"{self.place.lstrip('.')}: {self.reason}" if self.place else self.reason


def decode(hint: Any, raw: Any) -> Any:  # noqa: PLR0911  one for each kind of hint
    """Make a value of the hinted type from what `encode` returned. DecodeError, with the place, if it is not that.

    Fields that the type does not know are left out, and a field with a default may be missing: versions differ by such
    fields. One without which nothing can be said is marked by the metadata of ALWAYS.
    """
    if hint is Any:
        return raw
    if hint is pd.DataFrame:
        return _frame(raw)
    if is_dataclass(hint):
        return _value(hint, raw)
    origin, inner = get_origin(hint), get_args(hint)
    if origin is UnionType:  # Only `X | None` occurs here.
        return None if raw is None else decode(inner[0], raw)
    if origin is tuple:
        return _items(inner, raw)
    if origin in (dict, Mapping):
        _expect(dict, raw)
        return raw if inner[1] is Any else {name: _part(inner[1], item, f".{name}") for name, item in raw.items()}
    if issubclass(hint, StrEnum):
        return _choice(hint, raw)
    if hint is float and type(raw) is int:
        return raw
    _expect(hint, raw)
    return raw


ALWAYS = {"always": True}  # Metadata of a dataclass field that may not be missing, though it has a default.
_KINDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", dict: "an object",
          list: "a list", NoneType: "null"}  # fmt: skip
_CELLS: dict[str, set[type]] = {  # Which JSON values a column of each type may hold.
    "int64": {int}, "uint64": {int}, "bool": {bool}, "float64": {int, float, NoneType},
    "object": {str, int, float, bool, NoneType},
}  # fmt: skip


def _expect(kind: type, raw: Any) -> None:
    if type(raw) is not kind:  # No isinstance: for Python, true is a number.
        raise DecodeError(f"{_shown(raw)} is not {_KINDS[kind]}")


def _shown(raw: Any) -> str:
    if isinstance(raw, (dict, list)):
        return _KINDS[type(raw)]
    text = orjson.dumps(raw).decode()
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def _part(hint: Any, raw: Any, place: str) -> Any:
    try:
        return decode(hint, raw)
    except DecodeError as error:
        raise error.within(place) from None


def _value(kind: Any, raw: Any) -> Any:
    _expect(dict, raw)
    hints = _hints(kind)
    for item in fields(kind):
        required = (item.default is MISSING and item.default_factory is MISSING) or item.metadata.get("always")
        if required and item.name not in raw:
            raise DecodeError("is missing").within(f".{item.name}")
    known = {name: _part(hints[name], item, f".{name}") for name, item in raw.items() if name in hints}
    try:
        return kind(**known)
    except ValueError as error:  # What the type itself refuses.
        raise DecodeError(str(error)) from error


def _items(inner: tuple[Any, ...], raw: Any) -> tuple[Any, ...]:
    _expect(list, raw)
    if inner[-1] is Ellipsis:
        inner = (inner[0],) * len(raw)
    if len(inner) != len(raw):
        raise DecodeError(f"a list of {len(raw)}, not of {len(inner)}")
    return tuple(_part(hint, item, f"[{at}]") for at, (hint, item) in enumerate(zip(inner, raw, strict=True)))


def _choice(kind: type[StrEnum], raw: Any) -> StrEnum:
    _expect(str, raw)
    try:
        return kind(raw)
    except ValueError:
        raise DecodeError(f"{_shown(raw)} is none of {', '.join(kind)}") from None


def _frame(raw: Any) -> pd.DataFrame:
    _expect(dict, raw)
    for name in ("columns", "dtypes"):
        if name not in raw:
            raise DecodeError("is missing").within(f".{name}")
    columns, dtypes = (_part(dict[str, Any], raw[name], f".{name}") for name in ("columns", "dtypes"))
    data, length = dict[str, Any](), None
    for name, values in columns.items():
        try:
            data[name] = _column(values, dtypes.get(name), length)
        except DecodeError as error:
            raise error.within(f".columns.{name}") from None
        length = len(values)
    return pd.DataFrame(data, columns=list(columns))


def _column(values: Any, dtype: Any, length: int | None) -> pd.Series[Any]:
    _expect(list, values)
    if length not in (None, len(values)):
        raise DecodeError(f"{len(values)} values, but {length} in the columns before")
    if not isinstance(dtype, str) or dtype not in _CELLS:
        raise DecodeError(f"its type {_shown(dtype)} is none of {', '.join(_CELLS)}")
    if odd := set(map(type, values)) - _CELLS[dtype]:
        place = next(at for at, value in enumerate(values) if type(value) in odd)
        raise DecodeError(f"{_shown(values[place])} is no {dtype}").within(f"[{place}]")
    try:
        return pd.Series(values, dtype=dtype)
    except (ArithmeticError, ValueError) as error:
        raise DecodeError(f"a number that is no {dtype}") from error


@cache
def _hints(owner: Any) -> dict[str, Any]:
    return get_type_hints(owner)
