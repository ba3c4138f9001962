"""Which columns of a table hold no value, and which tables hold nothing but zeros."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from htareport.render.charts import ticks as fmt
from htareport.report import Column, Table
from htareport.report.json_codec import column_values


def has_value(cells: Iterable[Any]) -> bool:
    """Whether any cell is neither missing nor blank."""
    return any(not _is_blank(cell) for cell in cells)


def has_content(columns: Sequence[Column], values: Sequence[Sequence[Any]]) -> bool:
    """Whether a table has rows, and in a column that is no key anything but blanks and zeros.

    `values` are the cells by column, None where one is missing. A table of keys only is a list: its rows suffice.
    """
    measures = [cells for column, cells in zip(columns, values, strict=True) if not column.is_key]
    if not measures:
        return any(len(cells) for cells in values)
    return any(not _is_blank(cell) and fmt.number(cell) != 0 for cells in measures for cell in cells)


def is_shown(table: Table) -> bool:
    """Whether a table has content, and is not for computing only."""
    values = (column_values(table.frame[column.name]) for column in table.spec.columns)
    return not table.spec.is_data and has_content(table.spec.columns, list(values))


def filled_columns(table: Table, max_rows: int, max_columns: int) -> list[tuple[Column, list[Any]]]:
    """Return the first columns with a value in the first rows, each with the cells of these rows."""
    columns = ((c, column_values(table.frame[c.name].head(max_rows))) for c in table.spec.columns)
    return list(islice(((column, cells) for column, cells in columns if has_value(cells)), max_columns))


def _is_blank(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())
