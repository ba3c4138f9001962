"""Tables as the page shows them: some rows at once, all of them as data that the page's script sorts and searches."""

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

LONGEST_NAME = 8192
_STATIC_TEXT = 16_000  # Characters of a table's rows as markup; long names leave room for fewer rows,
_FEWEST_STATIC = 5  # but not for fewer than these.
_TAGS = 16  # Bytes of markup that a cell takes at least.
_MOST_COLUMNS = 60
_MOST_CELLS = 400_000  # As data, of one table.
_FILTER_VALUES = range(2, 21)
_FILTER_LENGTH = 40
_FOUND_BY = 3  # Columns that the search field names.
_LINKED = 100  # From so many characters on, a name that stands on the page already is a link to there.
_DIGITS = 7
# No text can hold a lone surrogate, no page the character zero.
_UNWRITABLE = dict.fromkeys([0, *range(0xD800, 0xE000)], "\ufffd")


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: its text, for a shortened name the whole of it, for a ratio its share of the bar.

    `anchor` is where links to this name lead; `link` is the anchor of the place that has this name in full.
    """

    text: str
    full: str = ""
    share: str = ""
    anchor: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One row; `anchor` is where links to this kernel lead; `is_main` says that the row has no other key."""

    cells: tuple[Cell, ...]
    anchor: str = ""
    is_main: bool = False

    @property
    def weight(self) -> int:
        """How many bytes its markup has at least."""
        return sum(len(cell.text) + (0 if cell.link else len(cell.full)) + _TAGS for cell in self.cells)


@dataclass(frozen=True, slots=True)
class View:
    """A table ready for the page. `packed` holds all its rows unless there are too many for the page.

    `columns` are those with values; `blank` names the others.
    """

    id: str
    table: Table
    columns: tuple[Column, ...]
    blank: tuple[str, ...]
    rows: tuple[Row, ...]
    filter: int  # The column to filter by, -1 for none.
    choices: tuple[str, ...]
    packed: str
    num_packed: int
    told: bool  # Whether the headings say what their columns mean.

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
        return max(0, len(self.table.spec.columns) - _MOST_COLUMNS)

    @property
    def found_by(self) -> list[str]:
        """What the search finds rows by: the texts in them, else the ids; empty where there is neither."""
        texts = [column.label for column in self.columns if column.unit.is_text]
        return (texts or [column.label for column in self.columns if column.unit.is_id])[:_FOUND_BY]


def full_name(value: Any, longest: int = LONGEST_NAME) -> str:
    """Return a name as the page holds it: one that is too long is cut, and says so; no two names become one."""
    text = str(value).translate(_UNWRITABLE)
    if len(text) <= longest:
        return text
    sum_ = zlib.crc32(text.encode())
    return f"{text[:longest]}… [cut: {len(text):,} characters, checksum {sum_:08x}; the whole name is in the JSON]"


def anchor(name: str) -> str:
    """Return the id of a kernel's row. The page's script computes the same from the name."""
    return f"kernel-{zlib.crc32(name.encode('utf-8', 'replace')):08x}"


class Source:
    """One table's cells and labels, read once, since the page may be made more than once."""

    def __init__(self, table: Table, table_id: str) -> None:
        """Read the cells. Columns without any value are left out, and named in `blank`."""
        self.table, self.id = table, table_id
        self.num_rows = len(table.frame)
        every = table.spec.columns[:_MOST_COLUMNS]
        values = [column_values(table.frame[column.name]) for column in every]
        self.is_telling = empty_columns.is_telling(every, values)
        kept = [not self.is_telling or empty_columns.has_value(cells) for cells in values]
        self.columns = tuple(compress(every, kept))
        self.values = list(compress(values, kept))
        self.blank = tuple(column.label for column, is_kept in zip(every, kept, strict=True) if not is_kept)
        self.most_packed = min(self.num_rows, _MOST_CELLS // max(len(self.columns), 1))
        self.labels = [_labels(cells, c.unit) for cells, c in zip(self.values, self.columns, strict=True)]
        self.filter, self.choices = _filter(self.columns, self.values)
        self._packed: dict[tuple[int, int], str] = {}

    def rows(self, most: int, longest: int = LONGEST_NAME) -> list[Row]:
        """Return the first rows: at most so many, and no more text than a table may have as markup."""
        rows, size = list[Row](), 0
        for i in range(min(most, self.num_rows)):
            rows.append(self._row(i, longest))
            size += rows[-1].weight - _TAGS * len(self.columns)
            if size > _STATIC_TEXT and len(rows) >= _FEWEST_STATIC:
                break
        return rows

    def _row(self, i: int, longest: int) -> Row:
        cells = zip(self.values, self.columns, self.labels, strict=True)
        row = tuple(_cell(values[i], column.unit, labels, longest) for values, column, labels in cells)
        named = (
            anchor(full_name(values[i], longest))
            for values, column in zip(self.values, self.columns, strict=True)
            if column.unit is Unit.NAME and column.is_key and not fmt.is_missing(values[i])
        )
        return Row(row, next(named, ""), len(self.table.spec.keys) == 1)

    def packed(self, rows: int, longest: int = LONGEST_NAME) -> str:
        """Return the first `rows` rows as data; a table of one row needs none, since all of it is shown."""
        if self.num_rows < 2 or not rows:  # noqa: PLR2004
            return ""
        if (rows, longest) not in self._packed:
            self._packed[rows, longest] = pack(self._data(rows, longest))
        return self._packed[rows, longest]

    def _data(self, rows: int, longest: int) -> bytes:
        """Return rows as JSON: numbers raw, what is shown otherwise as [full, shown], None for what is missing."""
        by_column = zip(self.columns, self.values, self.labels, strict=True)
        ready = [[_datum(v, column.unit, labels, longest) for v in cells[:rows]] for column, cells, labels in by_column]
        return orjson.dumps(list(map(list, zip(*ready, strict=True))))

    def view(self, rows: list[Row], kept: int, longest: int, *, told: bool) -> View:
        """Return the table with these rows as markup and the first `kept` as data."""
        return View(
            self.id, self.table, self.columns, self.blank, tuple(rows), self.filter, self.choices,
            self.packed(kept, longest), kept, told,
        )  # fmt: skip


def linked(tables: Iterable[list[Row]]) -> list[list[Row]]:
    """Give every name one place on the page that has it in full, with an anchor, and link its other places to there.

    The place is the first row that is about this name alone, then any row about it, then its first cell.
    """
    tables = list(tables)
    owner: dict[str, Row] = {}
    for row in sorted(chain.from_iterable(tables), key=lambda row: not row.is_main):
        if row.anchor:
            owner.setdefault(row.anchor, row)
    seen = set(owner)
    return [[_linked(row, owner, seen) for row in rows] for rows in tables]


def _linked(row: Row, owner: dict[str, Row], seen: set[str]) -> Row:
    mine = row.anchor if row.anchor and owner[row.anchor] is row else ""
    cells, told = list[Cell](), False
    for cell in row.cells:
        name = anchor(cell.full) if len(cell.full) >= _LINKED else ""
        if not name or (name == mine and not told):
            told = told or bool(name)
            cells.append(cell)
        elif name in seen:
            cells.append(replace(cell, link=name))
        else:
            seen.add(name)
            cells.append(replace(cell, anchor=name))
    return Row(tuple(cells), mine)


def _labels(cells: list[Any], unit: Unit) -> dict[str, str]:
    """Return what is shown of each of a column's names."""
    if unit is not Unit.NAME:
        return {}
    return kernel_names.labels(dict.fromkeys(str(cell) for cell in cells if not fmt.is_missing(cell)))


def _cell(value: Any, unit: Unit, labels: dict[str, str], longest: int) -> Cell:
    if not unit.is_text or fmt.is_missing(value):
        share = fmt.number(value) if unit is Unit.RATIO else None
        bar = "" if share is None or not 0 <= share <= 1 else f"{share:.3f}"
        return Cell(full_name(fmt.text(value, unit), longest), "", bar)
    full, shown = _texts(value, unit, labels, longest)
    return Cell(shown, "" if shown == full or not full.strip() else full)


def _texts(value: Any, unit: Unit, labels: dict[str, str], longest: int) -> tuple[str, str]:
    """Return a text as it is, and as it is shown."""
    if unit is Unit.NAME:
        return full_name(value, longest), labels[str(value)]
    full = full_name(fmt.text(value, Unit.TEXT), longest)
    return full, kernel_names.visible(full)


def _filter(columns: tuple[Column, ...], values: list[list[Any]]) -> tuple[int, tuple[str, ...]]:
    """Return the first text column of few values, and these; cells without any are found among all."""
    for i, (column, cells) in enumerate(zip(columns, values, strict=True)):
        if column.unit is not Unit.TEXT:
            continue
        texts = [fmt.text(cell, Unit.TEXT) for cell in cells if not fmt.is_missing(cell)]
        texts = [text for text in texts if text.strip()]
        choices = {full_name(text) for text in set(texts)}
        few = len(choices) in _FILTER_VALUES and len(texts) > 2 * len(choices)
        if few and all(len(choice) <= _FILTER_LENGTH and choice == kernel_names.visible(choice) for choice in choices):
            return i, tuple(sorted(choices))
    return -1, ()


def _datum(value: Any, unit: Unit, labels: dict[str, str], longest: int) -> Any:
    if fmt.is_missing(value):
        return None
    number = fmt.number(value)
    if unit.is_text or number is None or type(value).__name__ in {"bool", "bool_"}:
        full, shown = _texts(value, unit if unit.is_text else Unit.TEXT, labels, longest)
        return full if full == shown else [full, shown]
    if fmt.is_integer(value) and abs(number) < 2**53:
        return int(value)
    return float(f"{number:.{_DIGITS}g}")


def used_columns(tables: list[Table]) -> list[Column]:
    """Return every distinct column with a definition, in order."""
    every = chain.from_iterable(table.spec.columns[:_MOST_COLUMNS] for table in tables)
    return list({(c.label, c.help): c for c in every if c.help}.values())
