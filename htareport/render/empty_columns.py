"""What of a table says nothing: columns without a value, and whole tables of zeros."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from htareport.render.charts import ticks as fmt
from htareport.report import Column, Table
from htareport.report.json_codec import column_values


def has_value(cells: Iterable[Any]) -> bool:
    """Whether any cell is neither missing nor blank."""
    return any(not _is_blank(cell) for cell in cells)


def is_telling(columns: Sequence[Column], values: Sequence[Sequence[Any]]) -> bool:
    """Whether a table has rows, and in a column that is no key anything but blanks and zeros.

    `values` are the cells by column, None for what is missing. A table of keys only is a list, which tells by itself.
    """
    measures = [cells for column, cells in zip(columns, values, strict=True) if not column.is_key]
    if not measures:
        return any(len(cells) for cells in values)
    return any(not _is_blank(cell) and fmt.number(cell) != 0 for cells in measures for cell in cells)


def tells(table: Table) -> bool:
    """Whether a table is made to be shown and is telling; see `is_telling`."""
    values = (column_values(table.frame[column.name]) for column in table.spec.columns)
    return not table.spec.is_data and is_telling(table.spec.columns, list(values))


def _is_blank(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())
