"""A picture: a chart made ready to draw, with numbers in the axis's unit, coloured series and axes with round ticks.

Both back ends (SVG and Plotly) draw this, so that they cannot show different numbers. Marks stand on a *base* axis
(categories, steps, time) and reach along a *value* axis; `is_horizontal` says that the base axis runs downwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from htareport.render import kernel_names
from htareport.render.charts import palette
from htareport.render.charts import ticks as fmt
from htareport.render.charts.palette import Color
from htareport.render.charts.ticks import Scale
from htareport.report import Chart, Mark, Unit
from htareport.report.json_codec import column_values

Numbers = list[float | None]
SPREAD_SHARE = 0.8  # Share of a category's slot that its boxes and ranges take.
_DIGITS = 6
_MAX_LINE_LABEL = 60
_MIN_RELATIVE_RANGE = 0.1  # Of values whose axis starts at zero anyway.


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: `low` to `high` in its scale's unit; `labels` of categories at 0, 1, 2 … (empty: numbers)."""

    title: str = ""
    unit: Unit = Unit.TEXT
    scale: Scale = field(default_factory=Scale)
    low: float = 0.0
    high: float = 1.0
    is_log: bool = False
    labels: tuple[str, ...] = ()

    def ticks(self, count: int = 6) -> list[tuple[float, str]]:
        """Return about `count` round positions with their text; for categories all of them."""
        if self.labels:
            return [(float(i), label) for i, label in enumerate(self.labels)]
        if self.is_log:
            factor = self.scale.factor
            raw = fmt.log_ticks(self.low * factor, self.high * factor, self.unit, count)
            return [(position / factor, label) for position, label in raw]
        is_integral = self.unit.is_id or self.unit in {Unit.COUNT, Unit.BYTES, Unit.NANOSECONDS}
        only_integers = self.scale.factor == 1 and is_integral
        positions = fmt.ticks(self.low, self.high, count, only_integers=only_integers)
        return list(zip(positions, fmt.tick_labels(positions), strict=True))


@dataclass(slots=True)
class Series:
    """Marks of one colour. All lists have one entry per mark; None is a gap. `shown` is the value as text."""

    name: str
    color: Color
    base: Numbers = field(default_factory=Numbers)
    value: Numbers = field(default_factory=Numbers)
    label: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    extra: dict[str, Numbers] = field(default_factory=dict)  # low, high, q1, q3, end (right edge or end time).

    def reordered(self, indices: Sequence[int]) -> Series:
        """Return the marks of `order` only, in that order."""

        def pick(values: Sequence[Any]) -> list[Any]:
            return [values[i] for i in indices]

        extra = {name: pick(values) for name, values in self.extra.items()}
        return Series(
            self.name, self.color, pick(self.base), pick(self.value), pick(self.label), pick(self.shown), extra
        )


@dataclass(frozen=True, slots=True)
class Picture:
    """What both back ends draw. `cells` are a heatmap's rows, the first on top, and `color` is their axis."""

    chart: Chart
    base: Axis
    value: Axis
    series: tuple[Series, ...] = ()
    is_horizontal: bool = False
    cells: tuple[Numbers, ...] = ()
    color: Axis = field(default_factory=Axis)
    lines: tuple[tuple[float, str], ...] = ()  # Reference lines in the unit of their axis.

    @property
    def num_marks(self) -> int:
        """How many marks have a value."""
        cells = sum(value is not None for row in self.cells for value in row)
        return cells + sum(value is not None for series in self.series for value in series.value)

    @property
    def has_legend(self) -> bool:
        """Whether series need naming: even one does, since its colour means something."""
        return any(series.name for series in self.series)

    @property
    def lanes(self) -> list[float]:
        """How far each series stands from the middle of its category: apart only where a category has several."""
        count = len(self.series)
        positions = [base for series in self.series for base in set(series.base)]
        if len(positions) == len(set(positions)):
            return [0.0] * count
        return [(i - (count - 1) / 2) * SPREAD_SHARE / count for i in range(count)]

    @property
    def has_steps(self) -> bool:
        """Whether a value holds until the next one: counts, bytes and rates over time do."""
        step_units = {Unit.COUNT, Unit.BYTES, Unit.BYTES_PER_SECOND}
        return self.base.unit is Unit.NANOSECONDS and self.value.unit in step_units

    @property
    def x_axis(self) -> Axis:
        """The axis that runs from left to right."""
        return self.value if self.is_horizontal else self.base

    @property
    def y_axis(self) -> Axis:
        """The axis that runs upwards or downwards."""
        return self.base if self.is_horizontal else self.value

    def color_text(self, value: float) -> str:
        """Return a heatmap cell's value with its unit."""
        return fmt.text(value * self.color.scale.factor, self.color.unit)

    @property
    def lines_on_base(self) -> bool:
        """Whether reference lines belong to the base axis: a histogram's values lie along it."""
        return self.chart.mark is Mark.HISTOGRAM


class Rows:
    """A chart's frame as plain lists, by the chart's own column names (`x`, `y`, `color`, …)."""

    def __init__(self, chart: Chart) -> None:
        """Read the columns that the chart names."""
        self.chart = chart
        self.count = len(chart.frame)
        self._cache: dict[str, list[Any]] = {}

    def cells(self, channel: str) -> list[Any]:
        """Return one channel's cells, all None where the chart has no such column."""
        column = getattr(self.chart, channel)
        if column is None or column not in self.chart.frame.columns:
            return [None] * self.count
        if column not in self._cache:
            self._cache[column] = column_values(self.chart.frame[column])
        return self._cache[column]

    def numbers(self, channel: str) -> Numbers:
        """Return one channel as finite floats or None."""
        return [fmt.number(value) for value in self.cells(channel)]

    def has(self, channel: str) -> bool:
        """Whether the chart names a column for this channel."""
        return getattr(self.chart, channel) is not None

    def series_names(self) -> list[str]:
        """Return each row's series (one empty name where there are none)."""
        if not self.has("color"):
            return [""] * self.count
        return [
            kernel_names.visible(fmt.text(value, Unit.TEXT)).strip() or kernel_names.NO_NAME
            for value in self.cells("color")
        ]


def scaled(values: Iterable[float | None], scale: Scale, digits: int = _DIGITS) -> Numbers:
    """Return raw values in an axis's unit, rounded: pictures need no more, and files get smaller."""
    return [None if value is None else float(f"{value / scale.factor:.{digits}g}") for value in values]


def value_range(*columns: Iterable[float | None]) -> tuple[float, float]:
    """Return the smallest and the largest number in all columns, (0, 0) without any."""
    present = [value for column in columns for value in column if value is not None]
    return (min(present), max(present)) if present else (0.0, 0.0)


def value_axis(  # noqa: PLR0913  what an axis is made of
    label: str, unit: Unit, low: float, high: float, lines: Sequence[tuple[float, str]], *, from_zero: bool = True
) -> Axis:
    """Return an axis for raw values from `low` to `high`. It starts at zero, or its title says that it does not.

    Without `from_zero` (for marks whose length means nothing) it starts near the smallest value where all lie within a
    tenth of the largest.
    """
    line_values = [value for value, _ in lines if fmt.number(value) is not None]
    low, high = min([low, *line_values]), max([high, *line_values])
    scale = fmt.axis_scale(low, high, unit)
    low, high = low / scale.factor, high / scale.factor
    margin = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    bottom = 0.0 if low >= 0 and (from_zero or high - low >= _MIN_RELATIVE_RANGE * high) else low - margin
    if from_zero and high <= 0:
        return Axis(fmt.axis_title(label, scale), unit, scale, bottom if low < 0 else 0.0, 0.0 if low < 0 else 1.0)
    title = fmt.axis_title(label, scale)
    if low >= 0 and bottom:
        title = f"{title[:-1]}; not from 0)" if title.endswith(")") else f"{title} (not from 0)".strip()
    return Axis(title, unit, scale, bottom, high + (high - bottom) * 0.05)


def category_axis(label: str, unit: Unit, values: Sequence[Any]) -> tuple[Axis, list[str]]:
    """Return an axis of categories, and their full texts."""
    full_texts = [fmt.text(value, unit) for value in values]
    label_by_text = (
        kernel_names.labels(full_texts) if unit is Unit.NAME else {text: _visible_text(text) for text in full_texts}
    )
    labels = tuple(label_by_text[text] for text in full_texts)
    axis = Axis(label, unit, Scale(), -0.5, max(len(values), 1) - 0.5, labels=labels or ("",))
    return axis, [text if text.strip() else label_by_text[text] for text in full_texts]


def _visible_text(text: str) -> str:
    return kernel_names.cut(kernel_names.visible(text), kernel_names.MAX_HOVER).strip() or kernel_names.NO_NAME


def series_by_name(rows: Rows, values: Numbers, unit: Unit, labels: Sequence[str]) -> dict[str, Series]:
    """Return rows as series by name, in order of appearance; the caller fills in `base`."""
    names = rows.series_names()
    colors = palette.assign(names)
    series = {name: Series(name, color) for name, color in colors.items()}
    for row, name in enumerate(names):
        series[name].value.append(values[row])
        series[name].label.append(labels[row])
        series[name].shown.append(fmt.text(values[row], unit))
    return series


def split_by_series(rows: Rows, column: Sequence[float | None]) -> dict[str, Numbers]:
    """Return one column's numbers by series."""
    numbers_by_series: dict[str, Numbers] = {}
    for name, value in zip(rows.series_names(), column, strict=True):
        numbers_by_series.setdefault(name, []).append(value)
    return numbers_by_series


def reference_lines(chart: Chart, axis: Axis) -> tuple[tuple[float, str], ...]:
    """Return the chart's reference lines in the unit of `axis`, without those that are no number."""
    numbers = (
        (value, kernel_names.visible(str(label))) for value, label in chart.lines if fmt.number(value) is not None
    )
    return tuple((value / axis.scale.factor, kernel_names.cut(label, _MAX_LINE_LABEL)) for value, label in numbers)


def with_log(axis: Axis, low: float, high: float) -> Axis:
    """Return a logarithmic axis over positive values from `low` to `high`, in the unit of its scale."""
    if low == high:
        low, high = low / 2, high * 2
    return replace(axis, low=low, high=high, is_log=True)
