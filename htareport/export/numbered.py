"""Reads events with their position in the file, for code that reads the file again."""

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
    """Gives every table the column `position`: that of each row among all events of its file, from 0."""

    def begin(self) -> None:
        """Forget the events of the file before."""
        super().begin()
        self._passed = 0
        self._positions: dict[int, int] = {}  # By id, of the events of the current chunk.

    def _store_typed(self, events: list[Any]) -> None:
        self._number(events)
        super()._store_typed(events)

    def _store_loose(self, events: Sequence[Loose]) -> None:
        self._number(events)
        super()._store_loose(events)

    def _number(self, events: Iterable[Any]) -> None:
        self._positions = {id(event): position for position, event in enumerate(events, self._passed)}
        self._passed += len(self._positions)

    def _store(self, category: str, events: Sequence[Any], args: Sequence[Any]) -> None:
        super()._store(category, events, args)
        positions = self._positions
        column = self.tables[category].columns.setdefault(POSITION, array("q"))
        column.extend([positions[id(event)] for event in events])


def load_numbered(rank: int, paths: Files, window: Window = ALL, options: ReadOptions | None = None) -> Rank:
    """Read a rank as Rank.load does; its tables have the column `position` (see NumberedReader)."""
    return Rank(rank, load_rank(paths_of(paths), options, NumberedReader()), window)


def column_of(rank: Rank, rows: pd.DataFrame, name: str) -> NDArray[np.int64]:
    """Return a column of the events table for rows of a table made from it (by `source` and `row`); -1: it has none."""
    column = np.full(len(rows), -1, np.int64)
    source, row = rows["source"].to_numpy(), rows["row"].to_numpy()
    for number, columns in enumerate(rank.loaded.tables.values()):
        if name in columns:
            is_source = source == number
            column[is_source] = columns[name][row[is_source]]
    return column


def threads_of(rank: Rank, rows: pd.DataFrame) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return process and thread ids, as in the file, of rows of a table made from the events table."""
    codes = column_of(rank, rows, "thread")
    pids, tids = (as_array([thread[index] for thread in rank.loaded.threads])[codes] for index in (0, 1))
    return pids, tids


def index_of(rank: Rank, rows: pd.DataFrame) -> NDArray[np.int64]:
    """Return the index of rows among all events of the rank's files, which identifies an event; -1 for none."""
    first_index = np.cumsum([0, *(capture.events for capture in rank.captures)])
    position = column_of(rank, rows, POSITION)
    return np.where(position >= 0, position + first_index[rows["capture"].to_numpy()], -1)
