"""The report model: plain values that analyses produce and every renderer reads.

Architecture invariant: this module knows nothing of traces, analyses or output formats, and a Report survives a round
trip through JSON unchanged. That JSON is the one file format that stays readable; `schema_version` says which it is.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Self, cast

import orjson
import pandas as pd

from htareport.codec import ALWAYS, DecodeError, decode, encode
from htareport.errors import ReportFileError
from htareport.findings import Finding
from htareport.saved import check_charts, check_meta, read_bytes

SCHEMA_VERSION = 1


class Unit(StrEnum):
    """What a number is. Renderers format by it; a diff knows by it which numbers add up."""

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
        """The unit of what changed; of all else the unit itself."""
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


class Status(StrEnum):
    """How an analysis ended."""

    OK = "ok"
    NOT_APPLICABLE = "not_applicable"
    FAILED = "failed"


class Mark(StrEnum):
    """How a Chart is drawn; which of its columns each mark reads stands at Chart."""

    BAR = "bar"
    STACKED_BAR = "stacked_bar"
    LINE = "line"
    AREA = "area"
    HEATMAP = "heatmap"
    HISTOGRAM = "histogram"
    BOX = "box"
    RANGE = "range"
    SCATTER = "scatter"
    TIMELINE = "timeline"


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
    """Make a column that is part of a row's identity."""
    return Column(name, label, unit, help, is_key=True)


@dataclass(frozen=True, slots=True)
class TableSpec:
    """What a table's columns mean: all that rendering, explaining and diffing need to know of it."""

    name: str
    title: str
    columns: tuple[Column, ...]
    help: str = ""
    is_detail: bool = False  # Shown on demand: what one looks up, not what one reads.
    is_data: bool = False  # Not shown, for those who compute with it: in the JSON and the CSV only.

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


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture as data: a mark and the columns of `frame` that feed it, one row per thing drawn.

    Series (values of `color`) and categories keep the order in which they first appear in the frame.

    | mark | x | y | color | further |
    | --- | --- | --- | --- | --- |
    | bar | value | category (one row each, top first) | class of the bar, or None | low: start, else 0 |
    | stacked_bar | category or number | value | series, stacked in order | |
    | line | number | number | series or None | low, high: band |
    | area | number | number | series, stacked in order | |
    | heatmap | column label | row label | value of the cell | |
    | histogram | left edge | count | series or None | x2: right edge |
    | box | category | median | series or None | low, q1, q3, high |
    | range | value | category | series or None | low, high: whiskers |
    | scatter | number | number | series or None | |
    | timeline | start | lane | class of the mark | x2: end; text: label |
    """

    name: str
    title: str
    mark: Mark
    frame: pd.DataFrame
    x: str
    y: str
    color: str | None = None
    low: str | None = None
    high: str | None = None
    q1: str | None = None
    q3: str | None = None
    x2: str | None = None
    text: str | None = None
    x_label: str = ""
    y_label: str = ""
    x_unit: Unit = Unit.ID
    y_unit: Unit = Unit.NANOSECONDS
    color_unit: Unit = Unit.NANOSECONDS  # Of a heatmap's cells.
    log_x: bool = False
    lines: tuple[tuple[float, str], ...] = ()  # Reference lines: value on the axis of values, label.
    caption: str = ""  # One sentence: what to see and how it was made.


@dataclass(frozen=True, slots=True)
class Fact:
    """One key number of the overview, with its definition as `help` and what qualifies it as `detail`."""

    name: str
    label: str
    value: float | None
    unit: Unit
    detail: str = ""
    help: str = ""
    better: Better | None = None
    order: int = 50  # Place in the overview, low first.

    def __post_init__(self) -> None:
        if self.value is not None:  # Often a numpy scalar, which JSON does not know.
            object.__setattr__(self, "value", None if self.value != self.value else float(self.value))


@dataclass(frozen=True, slots=True)
class Section:
    """What one analysis has to say. `help` has Markdown headings of level two; `notes` say how to read this run."""

    name: str
    title: str
    group: str
    help: str = ""
    status: Status = field(default=Status.OK, metadata=ALWAYS)
    reason: str = ""
    notes: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = field(default=(), metadata=ALWAYS)
    findings: tuple[Finding, ...] = field(default=(), metadata=ALWAYS)
    charts: tuple[Chart, ...] = field(default=(), metadata=ALWAYS)
    tables: tuple[Table, ...] = field(default=(), metadata=ALWAYS)

    def table(self, name: str | None = None) -> pd.DataFrame:
        """Return the frame of one table, of the first by default. KeyError names the tables there are."""
        for table in self.tables:
            if name in (None, table.spec.name):
                return table.frame
        raise KeyError(f"no table {name or ''!r} in section {self.name}: {[t.spec.name for t in self.tables]}")

    def fact(self, name: str) -> Fact | None:
        """Return one key number, or None where this run does not give it."""
        return next((fact for fact in self.facts if fact.name == name), None)

    def _repr_html_(self) -> str:
        return str(importlib.import_module("htareport.render").section_html(self))


@dataclass(frozen=True, slots=True)
class Report:
    """All sections of one run. `report["comm_overlap"].table()` is a DataFrame with times in integer ns."""

    title: str
    verdict: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any], metadata=ALWAYS)
    warnings: tuple[str, ...] = field(default=(), metadata=ALWAYS)
    sections: tuple[Section, ...] = field(default=(), metadata=ALWAYS)

    def __getitem__(self, name: str) -> Section:
        for section in self.sections:
            if section.name == name:
                return section
        raise KeyError(f"no section {name!r}; there are {[section.name for section in self.sections]}")

    def __contains__(self, name: object) -> bool:
        return any(section.name == name for section in self.sections)

    def to_json(self) -> bytes:
        """Return the whole report as strict JSON on one line: equal reports give equal bytes."""
        return orjson.dumps({"schema_version": SCHEMA_VERSION, **encode(self)}, option=orjson.OPT_APPEND_NEWLINE)

    @classmethod
    def from_json(cls, data: bytes | str, source: str = "report.json") -> Self:
        """Read what `to_json` wrote. ReportFileError (naming `source`) if it is something else."""
        try:
            raw = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise ReportFileError(f"{source}: not JSON: {error}") from error
        if not isinstance(raw, dict) or "schema_version" not in raw:
            raise ReportFileError(f"{source}: not a report of htareport (no schema_version)")
        version = raw.pop("schema_version")
        if type(version) is not int or version < 1:
            written = orjson.dumps(version).decode()
            raise ReportFileError(
                f"{source}: damaged report: schema_version: {written:.40} is not a whole number from 1"
            )
        if version > SCHEMA_VERSION:
            raise ReportFileError(f"{source}: schema_version {version} is newer than this htareport reads")
        try:
            report = cast("Self", decode(cls, raw))
            check_meta(report.meta)
            check_charts(report.sections)
        except DecodeError as error:
            raise ReportFileError(f"{source}: damaged report: {error}") from error
        return report

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a .json or .json.gz that `write` made. ReportFileError (naming `path`) if it is something else."""
        try:
            data = read_bytes(path)
        except DecodeError as error:
            raise ReportFileError(f"{path}: {error}") from error
        return cls.from_json(data, str(path))

    def write(self, path: str | Path, **options: Any) -> Path:
        """Write to a file whose suffix picks the format (see render.SUFFIXES); returns its path."""
        # The one look upward of this layer, by name, so that a report can write itself.
        return cast("Path", importlib.import_module("htareport.render").write(self, path, **options))

    def _repr_html_(self) -> str:
        return str(importlib.import_module("htareport.render").notebook_html(self))


def concat(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Stack frames of equal columns; an empty one keeps its columns and gives its dtypes to nobody."""
    full = [frame for frame in frames if len(frame)]
    return pd.concat(full, ignore_index=True) if full else frames[0].reset_index(drop=True)
