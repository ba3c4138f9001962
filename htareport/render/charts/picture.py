"""A Chart made ready to draw: clean numbers in the axis's unit, series with colours, axes with round ticks.

Both back ends (SVG and Plotly) draw this, so that they cannot show different numbers. Marks stand on a *base* axis
(categories, steps, time) and reach along a *value* axis; `horizontal` says that the base axis runs downwards.
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
MOST_POINTS = 1500  # Of one line: more than pixels.
MOST_MARKS = 3000  # Of a timeline or scatter plot.
SPREAD = 0.8  # Share of a category's room that its boxes and ranges take.
_DIGITS = 6
_LONGEST_LINE = 60
_CLOSE = 0.1


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: `low` to `high` in its scale's unit; `labels` of categories at 0, 1, 2 … (empty: numbers)."""

    title: str = ""
    unit: Unit = Unit.TEXT
    scale: Scale = field(default_factory=Scale)
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    labels: tuple[str, ...] = ()

    def ticks(self, count: int = 6) -> list[tuple[float, str]]:
        """Return about `count` round positions with their text; for categories all of them."""
        if self.labels:
            return [(float(i), label) for i, label in enumerate(self.labels)]
        if self.log:
            factor = self.scale.factor
            raw = fmt.log_ticks(self.low * factor, self.high * factor, self.unit, count)
            return [(place / factor, label) for place, label in raw]
        is_whole = self.unit.is_id or self.unit in {Unit.COUNT, Unit.BYTES, Unit.NANOSECONDS}
        whole = self.scale.factor == 1 and is_whole
        places = fmt.ticks(self.low, self.high, count, whole=whole)
        return list(zip(places, fmt.tick_labels(places), strict=True))


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

    def reordered(self, order: Sequence[int]) -> Series:
        """Return the marks of `order` only, in that order."""

        def pick(values: Sequence[Any]) -> list[Any]:
            return [values[i] for i in order]

        extra = {name: pick(values) for name, values in self.extra.items()}
        return Series(
            self.name, self.color, pick(self.base), pick(self.value), pick(self.label), pick(self.shown), extra
        )


@dataclass(frozen=True, slots=True)
class Picture:
    """What both back ends draw. `cells` are a heatmap's rows, first row on top, and `color` is their axis."""

    chart: Chart
    base: Axis
    value: Axis
    series: tuple[Series, ...] = ()
    horizontal: bool = False
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
        return any(one.name for one in self.series)

    @property
    def lanes(self) -> list[float]:
        """How far each series stands from the middle of its category: apart only where a category has several."""
        count = len(self.series)
        places = [base for series in self.series for base in set(series.base)]
        if len(places) == len(set(places)):
            return [0.0] * count
        return [(k - (count - 1) / 2) * SPREAD / count for k in range(count)]

    @property
    def has_steps(self) -> bool:
        """Whether a value holds until the next one: counts, bytes and rates over time do."""
        held = {Unit.COUNT, Unit.BYTES, Unit.BYTES_PER_SECOND}
        return self.base.unit is Unit.NANOSECONDS and self.value.unit in held

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

    def raw(self, channel: str) -> list[Any]:
        """Return one channel's cells, all None where the chart has no such column."""
        column = getattr(self.chart, channel)
        if column is None or column not in self.chart.frame.columns:
            return [None] * self.count
        if column not in self._cache:
            self._cache[column] = column_values(self.chart.frame[column])
        return self._cache[column]

    def numbers(self, channel: str) -> Numbers:
        """Return one channel as finite floats or None."""
        return [fmt.number(value) for value in self.raw(channel)]

    def has(self, channel: str) -> bool:
        """Whether the chart names a column for this channel."""
        return getattr(self.chart, channel) is not None

    def series_names(self) -> list[str]:
        """Return each row's series (one empty name where there are none)."""
        if not self.has("color"):
            return [""] * self.count
        return [
            kernel_names.visible(fmt.text(value, Unit.TEXT)).strip() or kernel_names.NO_NAME
            for value in self.raw("color")
        ]


def scaled(values: Iterable[float | None], scale: Scale, digits: int = _DIGITS) -> Numbers:
    """Return raw values in an axis's unit, rounded: pictures need no more, and files get smaller."""
    return [None if value is None else float(f"{value / scale.factor:.{digits}g}") for value in values]


def span(*columns: Iterable[float | None]) -> tuple[float, float]:
    """Return the least and the greatest number in all columns, (0, 0) without any."""
    present = [value for column in columns for value in column if value is not None]
    return (min(present), max(present)) if present else (0.0, 0.0)


def value_axis(  # noqa: PLR0913  what an axis is made of
    label: str, unit: Unit, low: float, high: float, lines: Sequence[tuple[float, str]], *, zero: bool = True
) -> Axis:
    """Make an axis for raw values from `low` to `high`. It starts at zero, or says in its title that it does not.

    Without `zero` (marks whose length does not count, and that are to be told apart) it starts near the least value
    where all lie within a tenth of the greatest.
    """
    reach = [value for value, _ in lines if fmt.number(value) is not None]
    low, high = min([low, *reach]), max([high, *reach])
    scale = fmt.axis_scale(low, high, unit)
    low, high = low / scale.factor, high / scale.factor
    pad = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    bottom = 0.0 if low >= 0 and (zero or high - low >= _CLOSE * high) else low - pad
    if zero and high <= 0:
        return Axis(fmt.axis_title(label, scale), unit, scale, bottom if low < 0 else 0.0, 0.0 if low < 0 else 1.0)
    title = fmt.axis_title(label, scale)
    if low >= 0 and bottom:
        title = f"{title[:-1]}; not from 0)" if title.endswith(")") else f"{title} (not from 0)".strip()
    return Axis(title, unit, scale, bottom, high + (high - bottom) * 0.05)


def category_axis(label: str, unit: Unit, values: Sequence[Any]) -> tuple[Axis, list[str]]:
    """Make an axis of categories and return it with their full texts."""
    full = [fmt.text(value, unit) for value in values]
    short = kernel_names.labels(full) if unit is Unit.NAME else {text: _worded(text) for text in full}
    shown = tuple(short[text] for text in full)
    axis = Axis(label, unit, Scale(), -0.5, max(len(values), 1) - 0.5, labels=shown or ("",))
    return axis, [text if text.strip() else short[text] for text in full]


def _worded(text: str) -> str:
    return kernel_names.cut(kernel_names.visible(text), kernel_names.HOVER).strip() or kernel_names.NO_NAME


def grouped(rows: Rows, values: Numbers, unit: Unit, labels: Sequence[str]) -> dict[str, Series]:
    """Split rows into series in order of appearance; `base` is filled by the caller through `reordered` order."""
    of_row = rows.series_names()
    colors = palette.assign(of_row)
    series = {name: Series(name, color) for name, color in colors.items()}
    for i, name in enumerate(of_row):
        series[name].value.append(values[i])
        series[name].label.append(labels[i])
        series[name].shown.append(fmt.text(values[i], unit))
    return series


def split(rows: Rows, column: Numbers) -> dict[str, Numbers]:
    """Return one column's numbers by series."""
    result: dict[str, Numbers] = {}
    for name, value in zip(rows.series_names(), column, strict=True):
        result.setdefault(name, []).append(value)
    return result


def reference_lines(chart: Chart, axis: Axis) -> tuple[tuple[float, str], ...]:
    """Return the chart's reference lines in the unit of `axis`, without those that are no number."""
    numbers = ((v, kernel_names.visible(str(label))) for v, label in chart.lines if fmt.number(v) is not None)
    return tuple((v / axis.scale.factor, kernel_names.cut(label, _LONGEST_LINE)) for v, label in numbers)


def with_log(axis: Axis, low: float, high: float) -> Axis:
    """Return the axis made logarithmic over positive values from `low` to `high`, in the unit of its scale."""
    if low == high:
        low, high = low / 2, high * 2
    return replace(axis, low=low, high=high, log=True)
