"""Tables as the page shows them: first rows as markup, all rows as data that the page's script sorts and searches."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain, compress
from typing import Any

import orjson

from htareport.render import empty_columns, kernel_names
from htareport.render.charts import ticks as fmt
from htareport.render.html.plotly_bundle import pack
from htareport.report import Column, Table, Unit
from htareport.report.json_codec import column_values

MAX_NAME = 8192
_MAX_MARKUP_TEXT = 16_000  # Characters of a table's rows as markup; long names lead to fewer rows,
_MIN_MARKUP_ROWS = 5  # but not to fewer than these.
_CELL_TAGS = 16  # Bytes of markup around a cell, rather too few.
_MAX_COLUMNS = 60
_MAX_CELLS = 400_000  # As data, of one table.
_FILTER_CHOICES = range(2, 21)
_MAX_CHOICE = 40
_MAX_SEARCH_LABELS = 3  # Columns that the search field names.
_MIN_LINKED_NAME = 100  # A name of so many characters is on the page once, and a link elsewhere.
_DIGITS = 7
# No text can hold a lone surrogate, no page the character zero.
_UNWRITABLE = dict.fromkeys([0, *range(0xD800, 0xE000)], "\ufffd")


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: its text, for a shortened name the full name, for a ratio its share of the bar.

    `anchor` is the target of links to this name; `link` is the anchor of the row or cell that has this name in full.
    """

    text: str
    full: str = ""
    share: str = ""
    anchor: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One row; `anchor` is the target of links to this kernel; `is_main` says that its name is the only key."""

    cells: tuple[Cell, ...]
    anchor: str = ""
    is_main: bool = False

    @property
    def min_markup_size(self) -> int:
        """A lower bound of the bytes of its markup."""
        return sum(len(cell.text) + (0 if cell.link else len(cell.full)) + _CELL_TAGS for cell in self.cells)


@dataclass(frozen=True, slots=True)
class View:
    """A table ready for the page. `packed` holds all its rows unless they are too many for the page.

    `columns` are those with values; `empty_labels` names those without.
    """

    id: str
    table: Table
    columns: tuple[Column, ...]
    empty_labels: tuple[str, ...]
    rows: tuple[Row, ...]
    filter: int  # The column to filter by, -1 for none.
    choices: tuple[str, ...]
    packed: str
    num_packed: int
    has_definitions: bool  # Whether the headings say what their columns mean.

    @property
    def num_rows(self) -> int:
        """How many rows the table has."""
        return len(self.table.frame)

    @property
    def left_out(self) -> int:
        """How many rows are not on the page."""
        return self.num_rows - max(self.num_packed, len(self.rows))

    @property
    def columns_left_out(self) -> int:
        """How many columns are not on the page."""
        return max(0, len(self.table.spec.columns) - _MAX_COLUMNS)

    @property
    def found_by(self) -> list[str]:
        """Labels of the columns that the search looks at: texts, else ids; empty where there are neither."""
        texts = [column.label for column in self.columns if column.unit.is_text]
        return (texts or [column.label for column in self.columns if column.unit.is_id])[:_MAX_SEARCH_LABELS]


def full_name(value: Any, max_length: int = MAX_NAME) -> str:
    """Return a name as the page holds it. One that is too long is cut, and a checksum keeps it distinct."""
    text = str(value).translate(_UNWRITABLE)
    if len(text) <= max_length:
        return text
    checksum = zlib.crc32(text.encode())
    note = f"[cut: {len(text):,} characters, checksum {checksum:08x}; the whole name is in the JSON]"
    return f"{text[:max_length]}… {note}"


def anchor(name: str) -> str:
    """Return the id of a kernel's row, which the page's script computes from the name as well."""
    return f"kernel-{zlib.crc32(name.encode('utf-8', 'replace')):08x}"


class Source:
    """The cells and labels of one table, read once, since the page may be rendered more than once."""

    def __init__(self, table: Table, table_id: str) -> None:
        """Read the cells. Columns without a value are left out; `empty_labels` has their labels."""
        self.table, self.id = table, table_id
        self.num_rows = len(table.frame)
        columns = table.spec.columns[:_MAX_COLUMNS]
        values = [column_values(table.frame[column.name]) for column in columns]
        self.has_content = empty_columns.has_content(columns, values)
        is_shown_mask = [not self.has_content or empty_columns.has_value(cells) for cells in values]
        self.columns = tuple(compress(columns, is_shown_mask))
        self.values = list(compress(values, is_shown_mask))
        self.empty_labels = tuple(column.label for column in columns if column not in self.columns)
        self.max_packed = min(self.num_rows, _MAX_CELLS // max(len(self.columns), 1))
        self.labels = [_labels(cells, c.unit) for cells, c in zip(self.values, self.columns, strict=True)]
        self.filter, self.choices = _filter(self.columns, self.values)
        self._packed: dict[tuple[int, int], str] = {}

    def rows(self, max_rows: int, max_name: int = MAX_NAME) -> list[Row]:
        """Return the first `max_rows` rows; fewer where their text is longer than a table's markup may be."""
        rows, size = list[Row](), 0
        for row in range(min(max_rows, self.num_rows)):
            rows.append(self._row(row, max_name))
            size += rows[-1].min_markup_size - _CELL_TAGS * len(self.columns)
            if size > _MAX_MARKUP_TEXT and len(rows) >= _MIN_MARKUP_ROWS:
                break
        return rows

    def _row(self, index: int, max_name: int) -> Row:
        cells = zip(self.values, self.columns, self.labels, strict=True)
        row_cells = tuple(_cell(values[index], column.unit, labels, max_name) for values, column, labels in cells)
        anchors = (
            anchor(full_name(values[index], max_name))
            for values, column in zip(self.values, self.columns, strict=True)
            if column.unit is Unit.NAME and column.is_key and not fmt.is_missing(values[index])
        )
        return Row(row_cells, next(anchors, ""), len(self.table.spec.keys) == 1)

    def packed(self, num_rows: int, max_name: int = MAX_NAME) -> str:
        """Return the first rows as data; a table of one row needs none, since its markup has it."""
        if self.num_rows < 2 or not num_rows:  # noqa: PLR2004
            return ""
        if (num_rows, max_name) not in self._packed:
            self._packed[num_rows, max_name] = pack(self._data(num_rows, max_name))
        return self._packed[num_rows, max_name]

    def _data(self, num_rows: int, max_name: int) -> bytes:
        """Return rows as JSON: numbers raw, texts that are shown differently as [full, shown], missing cells null."""
        by_column = zip(self.columns, self.values, self.labels, strict=True)
        json_columns = [
            [_json_cell(cell, column.unit, labels, max_name) for cell in cells[:num_rows]]
            for column, cells, labels in by_column
        ]
        return orjson.dumps(list(map(list, zip(*json_columns, strict=True))))

    def view(self, rows: list[Row], num_packed: int, max_name: int, *, has_definitions: bool) -> View:
        """Return the table with these rows as markup and the first `num_packed` as data."""
        return View(
            self.id, self.table, self.columns, self.empty_labels, tuple(rows), self.filter, self.choices,
            self.packed(num_packed, max_name), num_packed, has_definitions,
        )  # fmt: skip


def linked(tables: Iterable[list[Row]]) -> list[list[Row]]:
    """Return tables in which every long name is in full only once, with an anchor, and a link to that elsewhere.

    The anchor is on the first row that has this name as its only key, else on any row about it, else on its first cell.
    """
    tables = list(tables)
    row_by_anchor: dict[str, Row] = {}
    for row in sorted(chain.from_iterable(tables), key=lambda row: not row.is_main):
        if row.anchor:
            row_by_anchor.setdefault(row.anchor, row)
    anchors = set(row_by_anchor)
    return [[_linked(row, row_by_anchor, anchors) for row in rows] for rows in tables]


def _linked(row: Row, row_by_anchor: dict[str, Row], anchors: set[str]) -> Row:
    row_anchor = row.anchor if row.anchor and row_by_anchor[row.anchor] is row else ""
    cells, has_anchor_cell = list[Cell](), False
    for cell in row.cells:
        cell_anchor = anchor(cell.full) if len(cell.full) >= _MIN_LINKED_NAME else ""
        if not cell_anchor or (cell_anchor == row_anchor and not has_anchor_cell):
            has_anchor_cell = has_anchor_cell or bool(cell_anchor)
            cells.append(cell)
        elif cell_anchor in anchors:
            cells.append(replace(cell, link=cell_anchor))
        else:
            anchors.add(cell_anchor)
            cells.append(replace(cell, anchor=cell_anchor))
    return Row(tuple(cells), row_anchor)


def _labels(cells: list[Any], unit: Unit) -> dict[str, str]:
    """Return the labels of a column's names."""
    if unit is not Unit.NAME:
        return {}
    return kernel_names.labels(dict.fromkeys(str(cell) for cell in cells if not fmt.is_missing(cell)))


def _cell(value: Any, unit: Unit, labels: dict[str, str], max_name: int) -> Cell:
    if not unit.is_text or fmt.is_missing(value):
        share = fmt.number(value) if unit is Unit.RATIO else None
        bar = "" if share is None or not 0 <= share <= 1 else f"{share:.3f}"
        return Cell(full_name(fmt.text(value, unit), max_name), "", bar)
    full, shown = _texts(value, unit, labels, max_name)
    return Cell(shown, "" if shown == full or not full.strip() else full)


def _texts(value: Any, unit: Unit, labels: dict[str, str], max_name: int) -> tuple[str, str]:
    """Return a text in full, and as it is shown."""
    if unit is Unit.NAME:
        return full_name(value, max_name), labels[str(value)]
    full = full_name(fmt.text(value, Unit.TEXT), max_name)
    return full, kernel_names.visible(full)


def _filter(columns: tuple[Column, ...], values: list[list[Any]]) -> tuple[int, tuple[str, ...]]:
    """Return the index of the first text column with few distinct values, and these; -1 where there is none."""
    for index, (column, cells) in enumerate(zip(columns, values, strict=True)):
        if column.unit is not Unit.TEXT:
            continue
        texts = [fmt.text(cell, Unit.TEXT) for cell in cells if not fmt.is_missing(cell)]
        texts = [text for text in texts if text.strip()]
        choices = {full_name(text) for text in set(texts)}
        has_few = len(choices) in _FILTER_CHOICES and len(texts) > 2 * len(choices)
        if has_few and all(len(choice) <= _MAX_CHOICE and choice == kernel_names.visible(choice) for choice in choices):
            return index, tuple(sorted(choices))
    return -1, ()


def _json_cell(value: Any, unit: Unit, labels: dict[str, str], max_name: int) -> Any:
    if fmt.is_missing(value):
        return None
    number = fmt.number(value)
    if unit.is_text or number is None or type(value).__name__ in {"bool", "bool_"}:
        full, shown = _texts(value, unit if unit.is_text else Unit.TEXT, labels, max_name)
        return full if full == shown else [full, shown]
    if fmt.is_integer(value) and abs(number) < 2**53:
        return int(value)
    return float(f"{number:.{_DIGITS}g}")


def used_columns(tables: list[Table]) -> list[Column]:
    """Return every distinct column with a definition, in order."""
    columns = chain.from_iterable(table.spec.columns[:_MAX_COLUMNS] for table in tables)
    return list({(column.label, column.help): column for column in columns if column.help}.values())
