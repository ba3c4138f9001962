"""Arguments of events by name, for those who want more of them than the columns of the loader."""

from __future__ import annotations

from array import array
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import orjson
from numpy.typing import NDArray

from htareport.trace.decode import Buffer
from htareport.trace.sink import Sink

_MOST_KEPT = 100_000  # Distinct texts whose values are shared.


class Values(NamedTuple):
    """Values of one argument, and the place of the event of each among all of its file."""

    places: NDArray[np.int64]
    given: list[Any]


def read_arguments(path: Path, wanted: Collection[str] | None = None) -> dict[str, Values]:
    """Read some arguments (all for None) of the complete events of a trace file, by their name in the file."""
    sink = _Arguments(wanted)
    sink.read(path)
    return {
        name: Values(np.frombuffer(places, np.int64), values)
        for name, (places, values) in sink.found.items()
        if len(places)
    }


class _Event(msgspec.Struct, gc=False):
    ph: Any = ""
    args: dict[str, msgspec.Raw] | None = None


class _Loose(msgspec.Struct, gc=False):
    ph: Any = ""
    args: msgspec.Raw = msgspec.Raw(b"")


_DECODE = msgspec.json.Decoder(list[_Event]).decode
_DECODE_RAW = msgspec.json.Decoder(list[msgspec.Raw]).decode
_DECODE_LOOSE = msgspec.json.Decoder(_Loose).decode
_DECODE_ARGS = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class _Arguments(Sink):
    """Takes chunks of events; equal values share one object."""

    def __init__(self, wanted: Collection[str] | None) -> None:
        self.found: dict[str, tuple[array[int], list[Any]]] = {}
        self._wanted = None if wanted is None else frozenset(wanted)
        self._shared: dict[bytes, Any] = {}
        self._passed = 0

    def feed(self, chunk: Buffer) -> bool:
        """Take a JSON array of events."""
        try:
            orjson.loads(chunk)  # Valid in every part, so that what is taken from it below is too.
            events = self._events(chunk)
        except (orjson.JSONDecodeError, msgspec.DecodeError) as error:
            self.fault = str(error)
            return False
        for place, event in enumerate(events, self._passed):
            if event.args and event.ph == "X":
                for name in event.args if self._wanted is None else event.args.keys() & self._wanted:
                    places, values = self.found.setdefault(name, (array("q"), []))
                    places.append(place)
                    values.append(self._value(bytes(event.args[name])))
        self._passed += len(events)
        return True

    def _events(self, chunk: Buffer) -> list[_Event]:
        try:
            return _DECODE(chunk)
        except msgspec.ValidationError:  # Arguments that are no object, or things that are no event.
            objects = (each for each in _DECODE_RAW(chunk) if bytes(each).lstrip().startswith(b"{"))
            loose = [_DECODE_LOOSE(each) for each in objects]
            is_object = [bytes(each.args).lstrip().startswith(b"{") for each in loose]
            return [
                _Event(each.ph, _DECODE_ARGS(each.args) if fine else None)
                for each, fine in zip(loose, is_object, strict=True)
            ]

    def _value(self, text: bytes) -> Any:
        if text not in self._shared:
            value = msgspec.json.decode(text)
            if len(self._shared) >= _MOST_KEPT:
                return value
            self._shared[text] = value
        return self._shared[text]
