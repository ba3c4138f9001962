"""Frames of one rank as few bytes, and those of all ranks put together again.

A worker sends its frames packed, and the parent keeps them so until everything of one analysis is joined: that is what
keeps ten thousand ranks in a gigabyte. Numbers take the bytes that their values need, texts stand once in a list of
their own, in order: ranks that run the same program have the same list, which is then kept and read once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias, cast

import msgspec
import numpy as np
import pandas as pd
import zstandard
from numpy.typing import NDArray

from htareport.report import concat

Frames: TypeAlias = dict[str, pd.DataFrame]

_LEVEL = 3  # Of zstd: a higher one takes longer and saves a few per cent.
_ERRORS = "surrogatepass"  # Names may hold half a surrogate pair.
_PLAIN = (str, int, float, bool, type(None))


class _Column(msgspec.Struct, array_like=True, frozen=True):
    """A column: its dtype, and its values as numbers of the type `stored`, as places in the texts, or as they are."""

    name: str
    dtype: str
    stored: str = ""
    data: bytes = b""
    plain: list[Any] | None = None

    @property
    def is_text(self) -> bool:
        return self.dtype in {"object", "str"} and self.plain is None

    def values(self, texts: NDArray[Any]) -> NDArray[Any]:
        if self.plain is not None:
            return _objects(self.plain)
        stored = np.frombuffer(self.data, self.stored)
        return texts[stored] if self.is_text else stored.astype(self.dtype, copy=False)


class _Frame(msgspec.Struct, array_like=True, frozen=True):
    name: str
    rows: int
    columns: list[_Column]

    @property
    def shape(self) -> list[str]:
        return [column.name for column in self.columns]

    def frame(self, texts: NDArray[Any]) -> pd.DataFrame:
        made = {each.name: _series(each.values(texts), each.dtype) for each in self.columns}
        return pd.DataFrame(made, index=range(self.rows))


_frames = msgspec.msgpack.Decoder(list[_Frame])
_texts = msgspec.msgpack.Decoder(list[bytes])


@dataclass(frozen=True)
class Packed:
    """Some frames of one rank. `odd` are those with columns of other types than numbers and texts, as they are."""

    data: bytes
    texts: bytes
    odd: Frames = field(default_factory=dict[str, pd.DataFrame])

    @property
    def size(self) -> int:
        """Bytes that it takes, the odd ones left out."""
        return len(self.data) + len(self.texts)

    def frames(self) -> Frames:
        """Return the frames."""
        texts = _read(self.texts)
        return {each.name: each.frame(texts) for each in _decoded(self.data)} | self.odd


def pack(frames: Frames) -> Packed:
    """Pack frames; their indexes are left out."""
    distinct = dict[str, int]()
    columns = {name: _packable(frame) for name, frame in frames.items()}
    for each in columns.values():
        for values in (each or {}).values():
            if isinstance(values, list):
                distinct.update(dict.fromkeys(values))
    texts = sorted(distinct)
    places = {text: place for place, text in enumerate(texts)}
    packed = [
        _Frame(
            name, len(frames[name]), [_column(str(c), frames[name][c], values, places) for c, values in each.items()]
        )
        for name, each in columns.items()
        if each is not None
    ]
    written = msgspec.msgpack.encode([text.encode(errors=_ERRORS) for text in texts])
    odd = {name: frames[name].reset_index(drop=True) for name, each in columns.items() if each is None}
    return Packed(_compressed(msgspec.msgpack.encode(packed)), _compressed(written), odd)


def join(parts: Iterable[tuple[int, Packed]]) -> Frames:
    """Put the frames of all ranks together, one rank after the other, with the rank in a column.

    Which frames there are the first rank says.
    """
    ranks, pieces, texts = list[int](), list[dict[str, _Frame | pd.DataFrame]](), list[NDArray[Any]]()
    known, read = dict[str, str](), dict[bytes, NDArray[Any]]()
    for rank, packed in parts:
        ranks.append(rank)
        pieces.append({each.name: each for each in _decoded(packed.data)} | packed.odd)
        if packed.texts not in read:
            read[packed.texts] = _read(packed.texts, known)
        texts.append(read[packed.texts])
    return {name: _joined(ranks, [piece.pop(name) for piece in pieces], texts) for name in list(pieces[0])}


def _packable(frame: pd.DataFrame) -> dict[Any, Any] | None:
    """What each column is made of: an array of numbers, a list of texts, or a tuple of plain values.

    None if a column is anything else.
    """
    made = dict[Any, Any]()
    for name, column in frame.items():
        if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf":
            made[name] = column.to_numpy()
        elif str(column.dtype) in {"object", "str"}:
            values = column.to_numpy(object).tolist()
            made[name] = values if all(type(value) is str for value in values) else tuple(map(_plain, values))
            if isinstance(made[name], tuple) and not all(isinstance(value, _PLAIN) for value in made[name]):
                return None
        else:
            return None
    return made if frame.columns.is_unique else None


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _column(name: str, column: pd.Series[Any], values: Any, places: dict[str, int]) -> _Column:
    dtype = str(column.dtype)
    if isinstance(values, tuple):
        return _Column(name, dtype, plain=list(values))
    if isinstance(values, list):
        values = np.fromiter((places[value] for value in values), np.int64, len(values))
    stored = _narrow(values)
    return _Column(name, dtype, stored.dtype.str, stored.tobytes())


def _narrow(values: NDArray[Any]) -> NDArray[Any]:
    """The same numbers in the smallest type of integers that holds them; floats as they are."""
    if values.dtype.kind not in "iu" or not len(values):
        return values
    least, most = (np.min_scalar_type(int(value)) for value in (values.min(), values.max()))
    return values.astype(np.promote_types(least, most), copy=False)


def _joined(ranks: list[int], pieces: Sequence[_Frame | pd.DataFrame], texts: Sequence[NDArray[Any]]) -> pd.DataFrame:
    packed = [each for each in pieces if isinstance(each, _Frame)]
    full = [place for place, each in enumerate(packed) if each.rows]
    if len(packed) < len(pieces) or not full or any(packed[at].shape != packed[full[0]].shape for at in full):
        return concat(
            [
                (each.frame(own) if isinstance(each, _Frame) else each).assign(rank=rank)
                for rank, each, own in zip(ranks, pieces, texts, strict=True)
            ]
        )
    some, own = [packed[at] for at in full], [texts[at] for at in full]
    columns = {
        name: _column_of([each.columns[number] for each in some], own) for number, name in enumerate(some[0].shape)
    }
    rank = np.repeat(np.array([ranks[at] for at in full], np.int64), [each.rows for each in some])
    return pd.DataFrame(columns | {"rank": pd.Series(rank)}, copy=False)


def _column_of(columns: Sequence[_Column], texts: Sequence[NDArray[Any]]) -> pd.Series[Any]:
    """One column of all ranks."""
    parts = [column.values(own) for column, own in zip(columns, texts, strict=True)]
    if len(dtypes := {column.dtype for column in columns}) == 1:
        return _series(np.concatenate(parts), dtypes.pop())
    series = [_series(part, column.dtype) for column, part in zip(columns, parts, strict=True)]
    return cast("pd.Series[Any]", pd.concat(series, ignore_index=True))


def _series(values: NDArray[Any], dtype: str) -> pd.Series[Any]:
    return pd.Series(values, dtype=cast("Any", dtype))


def _read(texts: bytes, known: dict[str, str] | None = None) -> NDArray[Any]:
    """The texts; with `known`, equal ones of several lists are one object."""
    read = [text.decode(errors=_ERRORS) for text in _texts.decode(zstandard.decompress(texts))]
    return _objects(read if known is None else [known.setdefault(text, text) for text in read])


def _objects(values: Sequence[Any]) -> NDArray[Any]:
    made = np.empty(len(values), object)
    made[:] = values
    return made


def _decoded(data: bytes) -> list[_Frame]:
    return _frames.decode(zstandard.decompress(data))


@lru_cache(1)
def _compressor() -> zstandard.ZstdCompressor:
    return zstandard.ZstdCompressor(level=_LEVEL)


def _compressed(data: bytes) -> bytes:
    return _compressor().compress(data)
