"""Tables as values: rows, and columns with their units and definitions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import pandas as pd


class Unit(StrEnum):
    """The unit of a column. Formats show numbers by it; a comparison adds up numbers by it."""

    TEXT = "text"
    NAME = "name"  # Name of a kernel, operator or call: shortened where space is short, never in data.
    ID = "id"  # Rank, device, stream, step: a number that is not a quantity.
    RANK = "rank"  # An ID that stands alone, where no heading says what it is: "rank 2".
    STEP = "step"
    COUNT = "count"
    NUMBER = "number"  # A quantity whose label names its unit: money, samples per second.
    NANOSECONDS = "ns"
    BYTES = "bytes"
    RATIO = "ratio"  # 0 to 1, shown as percent.
    BYTES_PER_SECOND = "bytes/s"
    FLOP = "flop"  # Floating-point operations.
    FLOP_PER_SECOND = "flop/s"
    TIME_CHANGE = "+ns"  # Changes: shown with their sign.
    RATIO_CHANGE = "+ratio"

    @property
    def is_change(self) -> bool:
        """Whether values are changes of something."""
        return self.startswith("+")

    @property
    def plain(self) -> Unit:
        """The unit of the quantity that changed; the unit itself where it is no change."""
        return Unit(self.removeprefix("+"))

    @property
    def is_id(self) -> bool:
        """Whether values are numbers that name something: nothing to add, to compare or to group by thousands."""
        return self in {Unit.ID, Unit.RANK, Unit.STEP}

    @property
    def is_text(self) -> bool:
        """Whether values are words, sorted as text and set left-aligned."""
        return self in {Unit.TEXT, Unit.NAME}


class Better(StrEnum):
    """Which way a measure should go."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a Table: a key (part of a row's identity) or a measure. `help` is the number's definition."""

    name: str
    label: str
    unit: Unit = Unit.TEXT
    help: str = ""
    is_key: bool = False
    better: Better | None = None


def key(name: str, label: str, unit: Unit = Unit.ID, help: str = "") -> Column:  # noqa: A002  the field's name
    """Return a column that is part of a row's identity."""
    return Column(name, label, unit, help, is_key=True)


@dataclass(frozen=True, slots=True)
class TableSpec:
    """The columns of a table and what they mean, for rendering, explaining and comparing it."""

    name: str
    title: str
    columns: tuple[Column, ...]
    help: str = ""
    is_detail: bool = False  # Shown on demand, for looking up single rows.
    is_data: bool = False  # Not shown, for computing: only in the JSON and the CSV.

    @property
    def keys(self) -> list[str]:
        """Names of the key columns."""
        return [column.name for column in self.columns if column.is_key]

    @property
    def measures(self) -> list[Column]:
        """The columns that are not keys."""
        return [column for column in self.columns if not column.is_key]


@dataclass(frozen=True, slots=True)
class Table:
    """A frame with its meaning: it has the spec's columns, in that order, and no two rows with the same keys.

    `note` says what is left out, if anything is.
    """

    spec: TableSpec
    frame: pd.DataFrame
    note: str = ""

    def __post_init__(self) -> None:
        names = [column.name for column in self.spec.columns]
        if missing := [name for name in names if name not in self.frame.columns]:
            raise ValueError(f"table {self.spec.name!r} lacks its columns {', '.join(missing)}")
        frame = self.frame[names].reset_index(drop=True)
        if self.spec.keys and frame.duplicated(self.spec.keys).any():
            raise ValueError(f"table {self.spec.name!r} has two rows with the same {', '.join(self.spec.keys)}")
        object.__setattr__(self, "frame", frame)
