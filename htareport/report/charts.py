"""Charts as values: a mark, the rows that it draws, and the column of each axis."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pandas as pd

from htareport.report.tables import TableSpec, Unit


class Mark(StrEnum):
    """How a Chart is drawn; Chart lists the columns that each mark reads."""

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
class Chart:
    """A chart as data: a mark and the columns of `frame` that it reads, one row per mark drawn.

    Series (values of `color`) and categories keep the order in which they first appear in the frame.

    | mark | x | y | color | other columns |
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
    lines: tuple[tuple[int | float, str], ...] = ()  # Reference lines: value on the axis of values, label.
    caption: str = ""  # One sentence: what the chart shows and how it was computed.


def stacked_rows(frame: pd.DataFrame, category: str, series: dict[str, str]) -> pd.DataFrame:
    """Return a row per category and column of `series`, for stacked bars: category, `value` and `part`, its label."""
    return frame.melt(category, list(series), var_name="part", value_name="value").replace({"part": series})


def chart_of(  # noqa: PLR0913, PLR0917  what a chart is made of
    spec: TableSpec, name: str, title: str, mark: Mark, frame: pd.DataFrame, x: str, y: str, color: str | None = None,
    **fields: Any,
) -> Chart:  # fmt: skip
    """Return a chart whose axes have the labels and units of a table's columns, except those that `fields` give.

    A vertical axis of names has no label.
    """
    columns = {column.name: column for column in spec.columns}
    for axis, column in (("x", columns.get(x)), ("y", columns.get(y))):
        if column:
            has_label = axis == "x" or not column.unit.is_text
            label = column.label[0].lower() + column.label[1:] if has_label else ""
            fields = {f"{axis}_label": label, f"{axis}_unit": column.unit, **fields}
    return Chart(name, title, mark, frame, x, y, color, **fields)
