"""The rows of one file: columns by category, and beside them the arguments of collectives."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from htareport.reading.text.decode import Reader
from htareport.rows.columns import Columns


class Rows:
    """Columns by category; collectives by category too, `row` telling which row of it they belong to."""

    def __init__(self, reader: Reader) -> None:
        self.tables: dict[str, Columns] = {category: table.arrays() for category, table in reader.tables.items()}
        self.collectives: dict[str, Columns] = {}
        for category, (rows, table) in reader.collectives.items():
            arrays = table.arrays()
            self.collectives[category] = {"row": np.array(rows, np.int64)} | {key: arrays[key] for key in table.columns}

    def select(self, category: str, is_selected: NDArray[np.bool_]) -> None:
        """Keep some rows of a category, and of its collectives."""
        self.tables[category] = _selected(self.tables[category], is_selected)
        if category in self.collectives:
            self.collectives[category] = _collectives_of(self.collectives[category], is_selected)

    def move(self, category: str, is_selected: NDArray[np.bool_], target: str) -> str:
        """Move some rows to a new category; return its name, which gets a mark where the file has one of that name."""
        while target in self.tables:
            target += "'"
        if not is_selected.any():
            return target
        self.tables[target] = _selected(self.tables[category], is_selected)
        if category in self.collectives:
            self.collectives[target] = _collectives_of(self.collectives[category], is_selected)
        self.select(category, ~is_selected)
        return target


def _selected(columns: Columns, is_selected: NDArray[np.bool_]) -> Columns:
    return {key: values[is_selected] for key, values in columns.items()}


def _collectives_of(columns: Columns, is_selected: NDArray[np.bool_]) -> Columns:
    is_kept = is_selected[columns["row"]]
    position = np.cumsum(is_selected) - 1
    return _selected(columns, is_kept) | {"row": position[columns["row"][is_kept]]}
