"""Reads events with their place in the file, for those who look at the file again."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.files.locations import Files, paths_of
from htareport.rank.events import as_array
from htareport.rank.rank import Rank
from htareport.rank.window import ALL, Window
from htareport.reading.cache import load_rank
from htareport.reading.text.decode import Loose, Reader
from htareport.rows.options import ReadOptions
from htareport.rows.schema import POSITION


class NumberedReader(Reader):
    """Gives every table the column `position`: place of each row among all events of its file, from 0."""

    def begin(self) -> None:
        """Forget the events of the file before."""
        super().begin()
        self._passed = 0
        self._place: dict[int, int] = {}  # By id, of the events of the chunk at hand.

    def _store_typed(self, events: list[Any]) -> None:
        self._number(events)
        super()._store_typed(events)

    def _store_loose(self, events: Sequence[Loose]) -> None:
        self._number(events)
        super()._store_loose(events)

    def _number(self, events: Iterable[Any]) -> None:
        self._place = {id(event): place for place, event in enumerate(events, self._passed)}
        self._passed += len(self._place)

    def _store(self, category: str, events: Sequence[Any], args: Sequence[Any]) -> None:
        super()._store(category, events, args)
        place = self._place
        column = self.tables[category].columns.setdefault(POSITION, array("q"))
        column.extend([place[id(event)] for event in events])


def load_numbered(rank: int, paths: Files, window: Window = ALL, options: ReadOptions | None = None) -> Rank:
    """Read a rank as Rank.load does; its tables have the column `position` (see NumberedReader)."""
    return Rank(rank, load_rank(paths_of(paths), options, NumberedReader()), window)


def column_of(trace: Rank, rows: pd.DataFrame, name: str) -> NDArray[np.int64]:
    """A column of the events table for rows of a table made from it (by `source` and `row`), -1 where it has none."""
    out = np.full(len(rows), -1, np.int64)
    source, row = rows["source"].to_numpy(), rows["row"].to_numpy()
    for number, columns in enumerate(trace.loaded.tables.values()):
        if name in columns:
            mine = source == number
            out[mine] = columns[name][row[mine]]
    return out


def threads_of(trace: Rank, rows: pd.DataFrame) -> tuple[NDArray[Any], NDArray[Any]]:
    """Process and thread ids, as they stand in the file, of rows of a table made from the events table."""
    codes = column_of(trace, rows, "thread")
    pids, tids = (as_array([thread[i] for thread in trace.loaded.threads])[codes] for i in (0, 1))
    return pids, tids


def index_of(trace: Rank, rows: pd.DataFrame) -> NDArray[np.int64]:
    """Place of rows among all events of the rank's files, in order of time: what identifies an event; -1 for none."""
    before = np.cumsum([0, *(capture.events for capture in trace.captures)])
    place = column_of(trace, rows, POSITION)
    return np.where(place >= 0, place + before[rows["capture"].to_numpy()], -1)
