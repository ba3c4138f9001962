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

_MAX_SHARED = 100_000  # Distinct texts and lists of which one object is kept.


class Values(NamedTuple):
    """Values of one argument, and the place of the event of each among all of its file."""

    positions: NDArray[np.int64]
    items: list[Any]


def read_arguments(
    path: Path, names: Collection[str] | None = None, options: ReadOptions | None = None
) -> dict[str, Values]:
    """Read some arguments (all for None) of the complete events of a trace file, by their name in the file.

    `options` are those that it was loaded with.
    """
    sink = _Arguments(names)
    sink.read(path, options)
    return {
        name: Values(np.frombuffer(positions, np.int64), values)
        for name, (positions, values) in sink.values_by_name.items()
    }


class _Arguments(Sink):
    """Takes chunks of events; equal texts and lists share one object."""

    def __init__(self, names: Collection[str] | None) -> None:
        super().__init__()
        self.values_by_name: dict[str, tuple[array[int], list[Any]]] = {}
        self._names = None if names is None else frozenset(names)
        self._shared: dict[bytes | str, Any] = {}

    def take(self, chunk: Buffer, values: list[Any]) -> None:
        """Collect the arguments of some events."""
        del chunk
        for position, event in enumerate((value for value in values if isinstance(value, dict)), self.passed):
            args = event.get("args")
            if isinstance(args, dict) and event.get("ph") == "X":
                for name in args if self._names is None else args.keys() & self._names:
                    positions, argument_values = self.values_by_name.setdefault(name, (array("q"), []))
                    positions.append(position)
                    value = args[name]
                    argument_values.append(self._one(value) if isinstance(value, (str, list, dict)) else value)

    def _one(self, value: Any) -> Any:
        key = value if isinstance(value, str) else orjson.dumps(value)
        if len(self._shared) < _MAX_SHARED:
            return self._shared.setdefault(key, value)
        return self._shared.get(key, value)
