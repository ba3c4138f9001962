"""Columns that grow: the events of one category as flat arrays, without an object per event."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.decimals import MISSING, SEPARATOR, thousandths

NONE = -1  # What stands for a missing integer.
NO_TEXT = msgspec.Raw(b"")
_MOST_WRITTEN = 1 << 14  # Texts of which the codes are kept at hand.
_FLUSH = 1 << 18  # Bytes of time stamps that are turned into integers together.

Columns: TypeAlias = dict[str, NDArray[Any]]  # By name, all of one length.
Kind: TypeAlias = Literal["int", "float", "text", "json"]


class Arg(NamedTuple):
    """One argument of events that becomes a column: `text` and `json` ones hold codes of Strings.

    `only` is a pattern for the names of the events of which a `json` one is kept: it may differ from call to call, and
    most of it nobody reads.
    """

    column: str
    key: str
    kind: Kind
    only: str = ""


class Codes(dict[Any, int]):
    """Gives each distinct value a number, in the order of first sight: `codes[value]`."""

    def __missing__(self, value: Any) -> int:
        self[value] = number = len(self)
        return number


class Threads(dict[Any, "_OfProcess"]):
    """Gives each pair of a process and a thread a number: `threads[pid][tid]`. `pairs` has them in that order."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Any, Any]] = []

    def __missing__(self, pid: Any) -> _OfProcess:
        self[pid] = missing = _OfProcess(pid, self.pairs)
        return missing


class _OfProcess(dict[Any, int]):
    def __init__(self, pid: Any, pairs: list[tuple[Any, Any]]) -> None:
        self._pid, self._pairs = pid, pairs

    def __missing__(self, tid: Any) -> int:
        self[tid] = number = len(self._pairs)
        self._pairs.append((self._pid, tid))
        return number


class Times:
    """Decimal microseconds as text, turned into integer nanoseconds many at a time."""

    __slots__ = ("_text", "values")

    def __init__(self) -> None:
        self._text = bytearray()
        self.values = array("q")

    def extend(self, tokens: Sequence[Any]) -> None:
        """Append JSON number texts (msgspec.Raw)."""
        if self._text:
            self._text += SEPARATOR
        self._text += SEPARATOR.join(tokens)
        if not self._text:  # A single token without text would look like nothing pending.
            self.values.append(MISSING)
        elif len(self._text) > _FLUSH:
            self.flush()

    def flush(self) -> None:
        """Turn what is pending into integers."""
        if self._text:
            text, self._text = self._text, bytearray()  # Who samples our frames may hold on to a view of the old one.
            self.values.frombytes(thousandths(text).tobytes())


def _getter(column: str) -> Callable[[Iterable[Any]], list[Any]]:
    """Return a function for [a.<column> for a in args]: a written-out attribute is twice as fast as getattr."""
    space: dict[str, Any] = {}
    exec(f"def get(args): return [a.{column} for a in args]", space)  # noqa: S102  `column` is from our own table
    return space["get"]  # type: ignore[no-any-return]


class _Matches(dict[str, bool]):
    """Whether a pattern is found in a name, looked for once in each: names come again and again."""

    def __init__(self, pattern: str) -> None:
        self._search = re.compile(pattern).search

    def __missing__(self, name: str) -> bool:
        missing = self[name] = self._search(name) is not None
        return missing


class _Written(dict[bytes, int]):
    """The codes of JSON as it is written; texts that come again and again are decoded once."""

    def __init__(self, strings: Codes) -> None:
        self.strings = strings
        self[b""] = NONE

    def __missing__(self, written: bytes) -> int:
        if len(self) >= _MOST_WRITTEN:
            self.clear()
            self[b""] = NONE
        code = self[written] = self.strings[written.decode("utf-8", "replace")]
        return code


class Table:
    """The complete events of one category, in file order.

    Columns: `ts`, `dur` (int64 ns), `name` (int32 code), `thread` (int32 code of (pid, tid)), for device rows `lane`
    (int32 code), then one per Arg.
    """

    def __init__(self, args: Sequence[Arg], *, on_device: bool) -> None:
        self.args, self.on_device = args, on_device
        self.ts, self.dur = Times(), Times()
        self.name, self.thread, self.lane = array("i"), array("i"), array("i")
        self.columns = {arg.column: array(_TYPECODES[arg.kind]) for arg in args}
        self._matches = {arg.only: _Matches(arg.only) for arg in args if arg.only}
        self._written: _Written | None = None

    def __len__(self) -> int:
        return len(self.name)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the columns as writable numpy arrays over the same memory."""
        self.ts.flush()
        self.dur.flush()
        columns = {"ts": self.ts.values, "dur": self.dur.values, "name": self.name, "thread": self.thread}
        if self.on_device:
            columns["lane"] = self.lane
        columns |= self.columns
        return {name: np.frombuffer(values, _DTYPES[values.typecode]) for name, values in columns.items()}

    def extend_args(self, args: Sequence[Any], names: Sequence[str], strings: Codes) -> None:
        """Append one row of arguments per event; `args` have an attribute per column, `names` are of the events."""
        if self._written is None or self._written.strings is not strings:
            self._written = _Written(strings)
        written = self._written
        for arg in self.args:
            column, values = self.columns[arg.column], GETTERS[arg.column](args)
            if arg.only:
                matches = self._matches[arg.only]
                values = [value if matches[name] else NO_TEXT for value, name in zip(values, names, strict=True)]
            if arg.kind == "text":
                column.fromlist([strings[value] if isinstance(value, str) else NONE for value in values])
            elif arg.kind == "json":
                column.fromlist(list(map(written.__getitem__, map(bytes, values))))
            else:
                extend_numbers(column, values)


_TYPECODES: dict[Kind, str] = {"int": "q", "float": "d", "text": "i", "json": "i"}
_DTYPES = {"q": np.int64, "d": np.float64, "i": np.int32}  # By name: numpy's own for "q" is another type of that size.
GETTERS: dict[str, Callable[[Iterable[Any]], list[Any]]] = {}


def declare(args: Iterable[Arg]) -> None:
    """Make the getters of these columns."""
    for arg in args:
        GETTERS.setdefault(arg.column, _getter(arg.column))


def extend_numbers(column: array[Any], values: list[Any]) -> None:
    """Append numbers; what is none (text, null, a fraction among integers, out of range) becomes -1 or nan."""
    length = len(column)
    try:
        column.fromlist(values)
    except (TypeError, OverflowError):
        del column[length:]
        as_number = _as_int if column.typecode == "q" else _as_float
        column.fromlist([as_number(value) for value in values])


def _as_int(value: Any) -> int:
    try:
        number = int(value)
    except ValueError:
        number = _from_base(value)
    except (TypeError, OverflowError):
        return NONE
    if isinstance(value, float) and number != value:
        return NONE
    return number if -(2**63) <= number < 2**63 else NONE


def _from_base(value: Any) -> int:
    """An integer written as 0x1f, -1 for anything else."""
    try:
        return int(value, 0)
    except (TypeError, ValueError):
        return NONE


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")
