"""Frames of one rank as few bytes, and those of all ranks put together again.

A worker sends its frames packed, and the parent keeps them so until everything of one analysis is joined: that is what
keeps ten thousand ranks in a gigabyte. Numbers take the bytes that their values need, in long columns those that their
differences need; these stand by themselves, since several analyses have the same ones, which are then kept and sent
once. Texts stand once in a list of their own, in order: ranks that run the same program have the same list, which is
then kept and read once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np
import pandas as pd
import zstandard
from numpy.typing import NDArray

from htareport.algorithms.frames import Frames, concat
from htareport.algorithms.integers import Integers, coded

_LONG = 128  # Rows from which on a column is worth coding: short ones are put together in one step.
_LEVEL = 3  # Of zstd: a higher one takes longer and saves a few per cent.
_ERRORS = "surrogatepass"  # Names may hold half a surrogate pair.
_TEXTS = {"object", "str"}
_PLAIN = (str, int, float, bool, type(None))


class _Column(msgspec.Struct, array_like=True, frozen=True):
    """A column: its dtype, and its values as numbers of the type `stored`, coded ones, or as they are.

    Those of texts are places in the list of them.
    """

    name: str
    dtype: str
    stored: str = ""
    data: bytes = b""
    plain: list[Any] | None = None
    coded: Integers | None = None  # Without its bytes, which are
    place: int = -1  # the one of this place among those of long columns.

    @property
    def is_text(self) -> bool:
        return self.dtype in _TEXTS and self.plain is None

    def numbers(self) -> NDArray[Any]:
        return np.frombuffer(self.data, self.stored) if self.coded is None else self.coded.values()

    def values(self, texts: NDArray[Any]) -> NDArray[Any]:
        if self.plain is not None:
            return _objects(self.plain)
        stored = self.numbers()
        return texts[stored] if self.is_text else stored.astype(self.dtype, copy=False)


class _Frame(msgspec.Struct, array_like=True, frozen=True):
    name: str
    rows: int
    columns: list[_Column]

    def __len__(self) -> int:
        return self.rows

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def is_like(self, other: _Frame | pd.DataFrame) -> bool:
        return isinstance(other, _Frame) and [column.name for column in other.columns] == self.names

    def frame(self, texts: NDArray[Any]) -> pd.DataFrame:
        frame = {column.name: _series(column.values(texts), column.dtype) for column in self.columns}
        return pd.DataFrame(frame, index=range(self.rows))


_frames = msgspec.msgpack.Decoder(list[_Frame])
_texts = msgspec.msgpack.Decoder(list[bytes])


@dataclass(frozen=True)
class Packed:
    """Some frames of one rank.

    `long` has the bytes of long columns, equal ones as one object; `odd` are the frames with columns of other types
    than numbers and texts, as they are.
    """

    data: bytes
    texts: bytes
    long: tuple[bytes, ...] = ()
    odd: Frames = field(default_factory=dict[str, pd.DataFrame])

    @property
    def size(self) -> int:
        """Bytes that it takes, the odd ones left out."""
        return len(self.data) + len(self.texts) + sum(map(len, self.long))

    def frames(self) -> Frames:
        """Return the frames."""
        texts = _read(self.texts)
        return {each.name: each.frame(texts) for each in _decoded(self)} | self.odd


def pack(frames: Frames) -> Packed:
    """Pack frames; their indexes are left out."""
    taken = {name: _taken(frame) for name, frame in frames.items()}
    lists = [values for each in taken.values() for _, _, values in each or () if isinstance(values, list)]
    texts = sorted(set(chain.from_iterable(lists)))
    places = {text: place for place, text in enumerate(texts)}
    long = list[bytes]()
    packed = [
        _Frame(
            name, len(frames[name]), [_column(column, dtype, values, places, long) for column, dtype, values in each]
        )
        for name, each in taken.items()
        if each is not None
    ]
    written = msgspec.msgpack.encode([text.encode(errors=_ERRORS) for text in texts])
    odd = {name: frames[name].reset_index(drop=True) for name, each in taken.items() if each is None}
    return Packed(_compressed(msgspec.msgpack.encode(packed)), _compressed_once(written), tuple(long), odd)


def join(parts: Iterable[tuple[int, Packed]]) -> Frames:
    """Put the frames of all ranks together, one rank after the other, with the rank in a column.

    Which frames there are the first rank says.
    """
    made, known, read = dict[str, list[_Part]](), dict[str, str](), dict[bytes, NDArray[Any]]()
    for count, (rank, packed) in enumerate(parts):
        if packed.texts not in read:
            read[packed.texts] = _read(packed.texts, known)
        texts, frames = read[packed.texts], {each.name: each for each in _decoded(packed)} | packed.odd
        for name in made if count else frames:
            made.setdefault(name, []).append(_Part(rank, frames[name], texts))
    return {name: _joined(made.pop(name)) for name in list(made)}


class _Part(NamedTuple):
    """A frame of one rank, and the texts that it refers to."""

    rank: int
    packed: _Frame | pd.DataFrame
    texts: NDArray[Any]

    @property
    def frame(self) -> pd.DataFrame:
        frame = self.packed.frame(self.texts) if isinstance(self.packed, _Frame) else self.packed
        return frame.assign(rank=self.rank)


def _joined(parts: Sequence[_Part]) -> pd.DataFrame:
    full = [part for part in parts if len(part.packed)]
    if not full:
        return parts[0].frame
    first, texts = full[0].packed, [part.texts for part in full]
    if not isinstance(first, _Frame) or not all(first.is_like(part.packed) for part in full):
        return concat([part.frame for part in parts])
    columns: dict[str, pd.Series[Any]] = {}
    for name, each in zip(first.names, zip(*(part.packed.columns for part in full), strict=True), strict=True):
        columns[name] = _column_of(each, texts)
    rank = np.repeat(np.array([part.rank for part in full], np.int64), [len(part.packed) for part in full])
    return pd.DataFrame(columns | {"rank": pd.Series(rank)}, copy=False)


def _column_of(columns: Sequence[_Column], texts: Sequence[NDArray[Any]]) -> pd.Series[Any]:
    """One column of all ranks. Most ranks have it in the same form, which takes a single step."""
    if len({column.dtype for column in columns}) > 1:
        series = [_series(each.values(own), each.dtype) for each, own in zip(columns, texts, strict=True)]
        return pd.concat(series, ignore_index=True)
    first = columns[0]
    if any(column.is_text or column.plain is not None for column in columns):
        values = np.concatenate([each.values(own) for each, own in zip(columns, texts, strict=True)])
    elif first.stored and len({column.stored for column in columns}) == 1:
        values = np.frombuffer(b"".join([column.data for column in columns]), first.stored)
    else:
        values = np.concatenate([column.numbers() for column in columns])
    return _series(values, first.dtype)


def _series(values: NDArray[Any], dtype: str) -> pd.Series[Any]:
    series: pd.Series[Any] = pd.Series(values, dtype=cast("Any", dtype))
    return series


def _taken(frame: pd.DataFrame) -> list[tuple[str, str, Any]] | None:
    """Name and dtype of each column, and what it is made of: an array of numbers, a list of texts, a tuple of others.

    None if a column is anything else.
    """
    taken = list[tuple[str, str, Any]]()
    for name, column in frame.items():
        dtype = column.dtype
        if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
            taken.append((str(name), dtype.str, column.to_numpy()))
            continue
        if str(dtype) not in _TEXTS:
            return None
        values: Any = column.to_numpy(object).tolist()
        if not set(map(type, values)) <= {str}:
            values = tuple(map(_plain, values))
            if not all(isinstance(value, _PLAIN) for value in values):
                return None
        taken.append((str(name), str(dtype), values))
    return taken if frame.columns.is_unique else None


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _column(name: str, dtype: str, values: Any, places: dict[str, int], long: list[bytes]) -> _Column:
    if isinstance(values, tuple):
        return _Column(name, dtype, plain=list(values))
    if isinstance(values, list):
        values = np.array([places[value] for value in values], np.int64)
    if len(values) >= _LONG and values.dtype.kind == "i":
        column = coded(values)
        long.append(_compressed_once(column.data))
        return _Column(name, dtype, coded=column._replace(data=b""), place=len(long) - 1)
    stored = _narrow(values)
    return _Column(name, dtype, stored.dtype.str, stored.tobytes())


def _narrow(values: NDArray[Any]) -> NDArray[Any]:
    """The same numbers in the smallest type of integers that holds them; floats as they are."""
    if values.dtype.kind != "i" or not len(values):
        return values
    least, most = int(values.min()), int(values.max())
    narrow = next(
        (bits for bits in (np.int8, np.int16, np.int32) if np.iinfo(bits).min <= least <= most <= np.iinfo(bits).max),
        None,
    )
    return values if narrow is None else values.astype(narrow)


def _read(texts: bytes, known: dict[str, str] | None = None) -> NDArray[Any]:
    """The texts; with `known`, equal ones of several lists are one object."""
    read = [text.decode(errors=_ERRORS) for text in _texts.decode(zstandard.decompress(texts))]
    return _objects(read if known is None else [known.setdefault(text, text) for text in read])


def _objects(values: Sequence[Any]) -> NDArray[Any]:
    objects = np.empty(len(values), object)
    objects[:] = values
    return objects


def _decoded(packed: Packed) -> list[_Frame]:
    frames = _frames.decode(zstandard.decompress(packed.data))
    for frame in frames if packed.long else ():
        for at, column in enumerate(frame.columns):
            if column.coded is not None:
                data = zstandard.decompress(packed.long[column.place])
                frame.columns[at] = msgspec.structs.replace(column, coded=column.coded._replace(data=data))
    return frames


class _Own(threading.local):
    """The compressor of a thread: one that two share at a time ends the process."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=_LEVEL)


_own = _Own()


@lru_cache(256)
def _compressed_once(data: bytes) -> bytes:
    """The same object for the same bytes, which is then pickled once."""
    return _compressed(data)


def _compressed(data: bytes) -> bytes:
    return _own.compressor.compress(data)
