"""Encodes the summary of a rank as bytes and decodes it, so that it can be stored in a file and read back unchanged.

Decoding runs no code: it makes only numbers, texts, containers, arrays of numbers, and the dataclasses that the caller
names. An object that occurs several times in a value is written once, and is one object again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

import msgspec
import numpy as np

_ON_SURROGATES = "surrogatepass"  # Names may hold half a surrogate pair.
_INT64 = range(-(2**63), 2**63)  # Other integers do not fit into MessagePack.
_ARRAY_KINDS = "biuf"  # Of dtypes: bool, int, unsigned and float.
_MIN_SHARED_BYTES = 64  # Shorter bytes are written each time.
_CONTAINERS: Mapping[str, Any] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
_MAPPINGS: Mapping[str, Any] = {"dict": dict, "Counter": Counter}
_REFERENCE, _CLASS, _TEXT, _INTEGER, _ARRAY, _NUMBER = "again", "class", "text", "int", "array", "number"


def encode(value: Any, classes: Mapping[str, type]) -> bytes:
    """Return a value as bytes; `classes` are dataclasses by name. TypeError if it holds anything else."""
    return msgspec.msgpack.encode(_Writer(classes).tree(value))


def decode(data: bytes, classes: Mapping[str, type]) -> Any:
    """Return the value. Any exception may be raised if the bytes hold none."""
    return _Reader(classes).value(msgspec.msgpack.decode(data))


def classes_of(*roots: type) -> dict[str, type]:
    """Return dataclasses and all that the types of their fields name, by name. ValueError if two have the same name."""
    classes, queue, visited = dict[str, type](), list(roots), set[type]()
    while queue:
        kind = queue.pop()
        if classes.setdefault(kind.__qualname__, kind) is not kind:
            raise ValueError(f"two classes are called {kind.__qualname__}")
        if kind not in visited:
            visited.add(kind)
            hints = [hint for hint in get_type_hints(kind).values() for hint in _nested_hints(hint)]
            queue += [hint for hint in hints if isinstance(hint, type) and is_dataclass(hint)]
    return classes


def _nested_hints(hint: Any) -> Iterator[Any]:
    """A type hint and all hints within it."""
    yield hint
    for inner in get_args(hint):
        yield from _nested_hints(inner)


class _Writer:
    def __init__(self, classes: Mapping[str, type]) -> None:
        self._names = {kind: name for name, kind in classes.items()}
        # Objects written so far: bytes by value, others by id, as they live as long as the value.
        self._numbers = dict[bytes | int, int]()

    def tree(self, value: Any) -> Any:
        kind = type(value)
        if value is None or kind in (bool, float):
            return value
        if kind is int:
            return value if value in _INT64 else [_INTEGER, hex(value)]
        if kind is str:
            return value if _is_plain(value) else [_TEXT, value.encode(errors=_ON_SURROGATES)]
        if kind is bytes and len(value) < _MIN_SHARED_BYTES:
            return value
        key = value if kind is bytes else id(value)
        if (number := self._numbers.get(key)) is not None:
            return [_REFERENCE, number]
        tree = self._object(value, kind)
        self._numbers[key] = len(self._numbers)  # After what it contains, as the reader numbers them.
        return tree

    def _object(self, value: Any, kind: type) -> Any:
        if kind is bytes:
            return value
        if kind in self._names:
            return [_CLASS, self._names[kind], *(self.tree(getattr(value, field.name)) for field in fields(value))]
        if kind.__name__ in _CONTAINERS and kind is _CONTAINERS[kind.__name__]:
            return [kind.__name__, *map(self.tree, value)]
        if kind.__name__ in _MAPPINGS and kind is _MAPPINGS[kind.__name__]:
            return [kind.__name__, *(self.tree(element) for item in value.items() for element in item)]
        if kind is np.ndarray and value.dtype.kind in _ARRAY_KINDS:
            return [_ARRAY, value.dtype.str, list(value.shape), value.tobytes()]
        if isinstance(value, np.generic) and value.dtype.kind in _ARRAY_KINDS:
            return [_NUMBER, value.dtype.str, value.tobytes()]
        raise TypeError(f"a value of {kind.__module__}.{kind.__qualname__}")


class _Reader:
    def __init__(self, classes: Mapping[str, type]) -> None:
        self._classes = classes
        self._objects = list[Any]()

    def value(self, tree: Any) -> Any:
        if type(tree) is bytes and len(tree) >= _MIN_SHARED_BYTES:
            self._objects.append(tree)
        if type(tree) is not list:
            return tree
        kind, *content = tree
        if kind == _REFERENCE:
            return self._objects[content[0]]
        if kind == _INTEGER:
            return int(content[0], 16)
        if kind == _TEXT:
            return content[0].decode(errors=_ON_SURROGATES)
        value = self._object(kind, content)
        self._objects.append(value)
        return value

    def _object(self, kind: str, content: list[Any]) -> Any:
        if kind == _CLASS:
            value_class: Any = self._classes[content[0]]
            values = map(self.value, content[1:])
            return value_class(**dict(zip((field.name for field in fields(value_class)), values, strict=True)))
        if kind in _CONTAINERS:
            return _CONTAINERS[kind](map(self.value, content))
        if kind in _MAPPINGS:
            elements = [self.value(element) for element in content]
            return _MAPPINGS[kind](dict(zip(elements[::2], elements[1::2], strict=True)))
        if kind == _ARRAY:
            dtype, shape, data = content
            return np.frombuffer(data, _numeric(dtype)).reshape(shape).copy()
        if kind == _NUMBER:
            return np.frombuffer(content[1], _numeric(content[0]))[0]
        raise ValueError(f"nothing is called {kind!r}")


def _numeric(name: str) -> np.dtype[Any]:
    dtype = np.dtype(name)
    if dtype.kind not in _ARRAY_KINDS:
        raise ValueError(f"arrays of {name}")
    return dtype


def _is_plain(text: str) -> bool:
    return text.isascii() or text == text.encode(errors="replace").decode()
