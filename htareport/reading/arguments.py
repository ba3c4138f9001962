"""Arguments of events by name, for those who want more of them than the columns of the loader."""

from __future__ import annotations

from array import array
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from htareport.reading.text.decode import Buffer
from htareport.reading.text.sink import Sink
from htareport.rows.options import ReadOptions

_MOST_SHARED = 100_000  # Distinct texts and lists of which one object is kept.


class Values(NamedTuple):
    """Values of one argument, and the place of the event of each among all of its file."""

    places: NDArray[np.int64]
    given: list[Any]


def read_arguments(
    path: Path, wanted: Collection[str] | None = None, options: ReadOptions | None = None
) -> dict[str, Values]:
    """Read some arguments (all for None) of the complete events of a trace file, by their name in the file.

    `options` are those that it was loaded with.
    """
    sink = _Arguments(wanted)
    sink.read(path, options)
    return {name: Values(np.frombuffer(places, np.int64), given) for name, (places, given) in sink.found.items()}


class _Arguments(Sink):
    """Takes chunks of events; equal texts and lists share one object."""

    def __init__(self, wanted: Collection[str] | None) -> None:
        super().__init__()
        self.found: dict[str, tuple[array[int], list[Any]]] = {}
        self._wanted = None if wanted is None else frozenset(wanted)
        self._shared: dict[bytes | str, Any] = {}

    def take(self, chunk: Buffer, values: list[Any]) -> None:
        """Collect the arguments of some events."""
        del chunk
        for place, event in enumerate((value for value in values if isinstance(value, dict)), self.passed):
            args = event.get("args")
            if isinstance(args, dict) and event.get("ph") == "X":
                for name in args if self._wanted is None else args.keys() & self._wanted:
                    places, given = self.found.setdefault(name, (array("q"), []))
                    places.append(place)
                    value = args[name]
                    given.append(self._one(value) if isinstance(value, (str, list, dict)) else value)

    def _one(self, value: Any) -> Any:
        key = value if isinstance(value, str) else orjson.dumps(value)
        if len(self._shared) < _MOST_SHARED:
            return self._shared.setdefault(key, value)
        return self._shared.get(key, value)
