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

    def keep(self, category: str, chosen: NDArray[np.bool_]) -> None:
        """Keep some rows of a category, and of its collectives."""
        self.tables[category] = _chosen(self.tables[category], chosen)
        if category in self.collectives:
            self.collectives[category] = _collectives_of(self.collectives[category], chosen)

    def move(self, category: str, chosen: NDArray[np.bool_], target: str) -> str:
        """Move some rows to a new category; return its name, which gets a mark where the file has one of that name."""
        while target in self.tables:
            target += "'"
        if not chosen.any():
            return target
        self.tables[target] = _chosen(self.tables[category], chosen)
        if category in self.collectives:
            self.collectives[target] = _collectives_of(self.collectives[category], chosen)
        self.keep(category, ~chosen)
        return target


def _chosen(columns: Columns, chosen: NDArray[np.bool_]) -> Columns:
    return {key: values[chosen] for key, values in columns.items()}


def _collectives_of(columns: Columns, chosen: NDArray[np.bool_]) -> Columns:
    kept = chosen[columns["row"]]
    position = np.cumsum(chosen) - 1
    return _chosen(columns, kept) | {"row": position[columns["row"][kept]]}
