"""Tables as the page shows them: some rows at once, all of them as data that the page's script sorts and searches."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from itertools import chain
from typing import Any

import orjson

from htareport.codec import column_values
from htareport.render import format as fmt
from htareport.render import names
from htareport.render.bundle import pack
from htareport.render.svg_parts import clean
from htareport.report import Column, Table, Unit

LONGEST_NAME = 8192
STATIC_ROWS = 50
_STATIC_TEXT = 16_000  # Characters of a table's rows as markup; long names leave room for fewer rows,
_FEWEST_STATIC = 5  # but not for fewer than these.
_FILTER_VALUES = range(2, 21)
_FILTER_LENGTH = 40
_DIGITS = 7


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: its text, for a shortened name the whole of it, for a ratio its share of the bar."""

    text: str
    full: str = ""
    share: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One row; `anchor` is where links to this kernel lead."""

    cells: tuple[Cell, ...]
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """A table ready for the page. `packed` holds all its rows unless there are too many for the page."""

    id: str
    table: Table
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    filter: int  # The column to filter by, -1 for none.
    choices: tuple[str, ...]
    packed: str
    num_packed: int
    left_out: int

    @property
    def num_rows(self) -> int:
        """How many rows the table has."""
        return len(self.table.frame)


def full_name(value: Any) -> str:
    """Return a name as the page holds it: above 8 KB it is cut, and says so."""
    text = clean(str(value))
    if len(text) <= LONGEST_NAME:
        return text
    return f"{text[:LONGEST_NAME]}… [cut: {len(text):,} characters; the whole name is in the JSON]"


def anchor(name: str) -> str:
    """Return the id of a kernel's row. The page's script computes the same from the name."""
    return f"kernel-{zlib.crc32(name.encode('utf-8', 'replace')):08x}"


class Packer:
    """Packs tables' rows and remembers the result, since the page may be rendered more than once."""

    def __init__(self) -> None:
        """Start with nothing packed."""
        self._packed: dict[tuple[str, int], str] = {}

    def __call__(self, table_id: str, table: Table, values: list[list[Any]], rows: int) -> str:
        """Return the first `rows` rows of a table in gzip and base64."""
        if (table_id, rows) not in self._packed:
            self._packed[table_id, rows] = pack(_data(table.spec.columns, values, rows)) if rows else ""
        return self._packed[table_id, rows]


def view(  # noqa: PLR0913  what the page knows of a table
    table: Table, table_id: str, seen: set[str], packer: Packer, *, static: int = STATIC_ROWS, most: int | None = None
) -> View:
    """Make a table ready: `static` rows as markup, at most `most` rows as data. `seen` are the anchors used so far."""
    columns = table.spec.columns
    values = [column_values(table.frame[column.name]) for column in columns]
    shown = _static_rows(values, columns, seen, min(static, len(table.frame)))
    kept = len(table.frame) if most is None else min(most, len(table.frame))
    where, choices = _filter(columns, values)
    packed = packer(table_id, table, values, kept)
    left_out = len(table.frame) - max(kept, len(shown))
    return View(table_id, table, columns, tuple(shown), where, choices, packed, kept, left_out)


def _static_rows(values: list[list[Any]], columns: tuple[Column, ...], seen: set[str], most: int) -> list[Row]:
    """The first rows as markup: at most so many, and no more text than a table may have."""
    rows, size = list[Row](), 0
    for i in range(most):
        rows.append(_row([column[i] for column in values], columns, seen))
        size += sum(len(cell.text) + len(cell.full) for cell in rows[-1].cells)
        if size > _STATIC_TEXT and len(rows) >= _FEWEST_STATIC:
            break
    return rows


def plain_rows(table: Table, most: int) -> list[Row]:
    """Return the first rows of a table without anchors."""
    values = [column_values(table.frame[column.name]) for column in table.spec.columns]
    return [
        _row([column[i] for column in values], table.spec.columns, None) for i in range(min(most, len(table.frame)))
    ]


def _row(values: list[Any], columns: tuple[Column, ...], seen: set[str] | None) -> Row:
    cells, link = list[Cell](), ""
    for value, column in zip(values, columns, strict=True):
        cells.append(_cell(value, column.unit))
        if column.unit is Unit.NAME and column.is_key and not link and not fmt.is_missing(value) and seen is not None:
            link = anchor(full_name(value))
            link = "" if link in seen else link
            seen.add(link)
    return Row(tuple(cells), link)


def _cell(value: Any, unit: Unit) -> Cell:
    if unit is Unit.NAME and not fmt.is_missing(value):
        full = full_name(value)
        short = names.short(full)
        return Cell(short, "" if short == full else full)
    if unit.is_text and not fmt.is_missing(value):
        return Cell(full_name(fmt.text(value, unit)))
    share = fmt.number(value) if unit is Unit.RATIO else None
    return Cell(fmt.text(value, unit), "", "" if share is None or not 0 <= share <= 1 else f"{share:.3f}")


def _filter(columns: tuple[Column, ...], values: list[list[Any]]) -> tuple[int, tuple[str, ...]]:
    """Return the first text column of few values, and these."""
    for i, (column, cells) in enumerate(zip(columns, values, strict=True)):
        if column.unit is not Unit.TEXT:
            continue
        choices = {full_name(fmt.text(cell, Unit.TEXT)) for cell in cells if not fmt.is_missing(cell)}
        few = len(choices) in _FILTER_VALUES and len(cells) > 2 * len(choices)
        if few and max(map(len, choices)) <= _FILTER_LENGTH:
            return i, tuple(sorted(choices))
    return -1, ()


def _data(columns: tuple[Column, ...], values: list[list[Any]], kept: int) -> bytes:
    """Return rows as JSON: numbers raw, a name that is shown short as [full, short], None for what is missing."""
    by_column = zip(columns, values, strict=True)
    ready = [[_datum(value, column.unit) for value in cells[:kept]] for column, cells in by_column]
    return orjson.dumps(list(map(list, zip(*ready, strict=True))))


def _datum(value: Any, unit: Unit) -> Any:
    if fmt.is_missing(value):
        return None
    if unit is Unit.NAME:
        full = full_name(value)
        short = names.short(full)
        return full if short == full else [full, short]
    number = fmt.number(value)
    if unit.is_text or number is None or type(value).__name__ in {"bool", "bool_"}:
        return full_name(fmt.text(value, Unit.TEXT))
    if fmt.is_whole(value) and abs(number) < 2**53:
        return int(value)
    return float(f"{number:.{_DIGITS}g}")


def used_columns(tables: list[Table]) -> list[Column]:
    """Return every distinct column with a definition, in order."""
    every = chain.from_iterable(table.spec.columns for table in tables)
    return list({(c.label, c.help): c for c in every if c.help}.values())
