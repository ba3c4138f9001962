"""Values as bytes and back, to the type and bit: what a worker says of its rank, so that it can be kept in a file.

Nothing of it is code: what is read can make numbers, texts, containers, arrays of numbers, and those classes that are
named by whoever reads. What stands twice in a value is written once, and is one object again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

import msgspec
import numpy as np

_ERRORS = "surrogatepass"  # Names may hold half a surrogate pair.
_WORDS = range(-(2**63), 2**63)  # Integers that MessagePack holds, whatever their sign.
_ARRAYS = "biuf"  # Kinds of dtypes.
_FEW = 64  # Bytes that are as well written twice.
_CONTAINERS: Mapping[str, Any] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
_MAPPINGS: Mapping[str, Any] = {"dict": dict, "Counter": Counter}
_AGAIN, _CLASS, _TEXT, _WHOLE, _ARRAY, _NUMBER = "again", "class", "text", "int", "array", "number"


def encode(value: Any, classes: Mapping[str, type]) -> bytes:
    """Return a value as bytes. TypeError where it holds what is none of the above; classes are dataclasses, by name."""
    return msgspec.msgpack.encode(_Writer(classes).tree(value))


def decode(data: bytes, classes: Mapping[str, type]) -> Any:
    """Return the value. What is raised where the bytes do not hold one may be anything."""
    return _Reader(classes).value(msgspec.msgpack.decode(data))


def classes_of(*roots: type) -> dict[str, type]:
    """Return these dataclasses and all that their fields' types name, by name. ValueError if two have the same."""
    classes, left, done = dict[str, type](), list(roots), set[type]()
    while left:
        kind = left.pop()
        if classes.setdefault(kind.__qualname__, kind) is not kind:
            raise ValueError(f"two classes are called {kind.__qualname__}")
        if kind not in done:
            done.add(kind)
            hints = [hint for hint in get_type_hints(kind).values() for hint in _parts(hint)]
            left += [hint for hint in hints if isinstance(hint, type) and is_dataclass(hint)]
    return classes


def _parts(hint: Any) -> Iterator[Any]:
    """A type, and those that it is made of."""
    yield hint
    for inner in get_args(hint):
        yield from _parts(inner)


class _Writer:
    def __init__(self, classes: Mapping[str, type]) -> None:
        self._names = {each: name for name, each in classes.items()}
        # Of what may stand again: of bytes by value, of others by id, as they are alive as long as the value.
        self._places = dict[bytes | int, int]()

    def tree(self, value: Any) -> Any:
        kind = type(value)
        if value is None or kind in (bool, float):
            return value
        if kind is int:
            return value if value in _WORDS else [_WHOLE, hex(value)]
        if kind is str:
            return value if _is_plain(value) else [_TEXT, value.encode(errors=_ERRORS)]
        if kind is bytes and len(value) < _FEW:
            return value
        known = value if kind is bytes else id(value)
        if (place := self._places.get(known)) is not None:
            return [_AGAIN, place]
        tree = self._object(value, kind)
        self._places[known] = len(self._places)  # Behind what it holds, as it is read.
        return tree

    def _object(self, value: Any, kind: type) -> Any:
        if kind is bytes:
            return value
        if kind in self._names:
            return [_CLASS, self._names[kind], *(self.tree(getattr(value, field.name)) for field in fields(value))]
        if kind.__name__ in _CONTAINERS and kind is _CONTAINERS[kind.__name__]:
            return [kind.__name__, *map(self.tree, value)]
        if kind.__name__ in _MAPPINGS and kind is _MAPPINGS[kind.__name__]:
            return [kind.__name__, *(self.tree(part) for item in value.items() for part in item)]
        if kind is np.ndarray and value.dtype.kind in _ARRAYS:
            return [_ARRAY, value.dtype.str, list(value.shape), value.tobytes()]
        if isinstance(value, np.generic) and value.dtype.kind in _ARRAYS:
            return [_NUMBER, value.dtype.str, value.tobytes()]
        raise TypeError(f"a value of {kind.__module__}.{kind.__qualname__}")


class _Reader:
    def __init__(self, classes: Mapping[str, type]) -> None:
        self._classes = classes
        self._known = list[Any]()

    def value(self, tree: Any) -> Any:
        if type(tree) is bytes and len(tree) >= _FEW:
            self._known.append(tree)
        if type(tree) is not list:
            return tree
        kind, *rest = tree
        if kind == _AGAIN:
            return self._known[rest[0]]
        if kind == _WHOLE:
            return int(rest[0], 16)
        if kind == _TEXT:
            return rest[0].decode(errors=_ERRORS)
        value = self._object(kind, rest)
        self._known.append(value)
        return value

    def _object(self, kind: str, rest: list[Any]) -> Any:
        if kind == _CLASS:
            made: Any = self._classes[rest[0]]
            values = map(self.value, rest[1:])
            return made(**dict(zip((item.name for item in fields(made)), values, strict=True)))
        if kind in _CONTAINERS:
            return _CONTAINERS[kind](map(self.value, rest))
        if kind in _MAPPINGS:
            parts = [self.value(part) for part in rest]
            return _MAPPINGS[kind](dict(zip(parts[::2], parts[1::2], strict=True)))
        if kind == _ARRAY:
            dtype, shape, data = rest
            return np.frombuffer(data, _numeric(dtype)).reshape(shape).copy()
        if kind == _NUMBER:
            return np.frombuffer(rest[1], _numeric(rest[0]))[0]
        raise ValueError(f"nothing is called {kind!r}")


def _numeric(name: str) -> np.dtype[Any]:
    dtype = np.dtype(name)
    if dtype.kind not in _ARRAYS:
        raise ValueError(f"arrays of {name}")
    return dtype


def _is_plain(text: str) -> bool:
    return text.isascii() or text == text.encode(errors="replace").decode()
