"""How each mark of a chart reads its columns; `report.Chart` has the table of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from htareport.render.charts import ticks as fmt
from htareport.render.charts.picture import (
    Axis,
    Numbers,
    Picture,
    Rows,
    Series,
    category_axis,
    reference_lines,
    scaled,
    series_by_name,
    split_by_series,
    value_axis,
    value_range,
    with_log,
)
from htareport.render.kernel_names import NO_NAME
from htareport.report import Chart, Mark, Unit

_MAX_POINTS = 1500  # Of one line: more than pixels.
_MAX_MARKS = 3000  # Of a timeline or scatter plot.
_MAX_LYING_STACKS = 3  # Up to so many stacked bars lie on their side: wide columns say nothing.
_MAX_UPRIGHT_LABEL = 9
_MIN_LOG_RATIO = 100  # Of the largest to the smallest value.
_MAX_START_SHARE = 0.05  # A timeline that starts so close to zero starts there.
_MAX_ROWS, _MAX_COLUMNS = 128, 256
_SPREAD_CHANNELS = ("low", "q1", "q3", "high")


def bar(chart: Chart, rows: Rows) -> Picture:
    """Return one lying bar per row, the first on top."""
    base, labels = category_axis(chart.y_label, chart.y_unit, rows.cells("y"))
    values = rows.numbers("x")
    extra = {"low": rows.numbers("low")} if rows.has("low") else {}
    axis = value_axis(chart.x_label, chart.x_unit, *value_range(values, *extra.values()), chart.lines)
    series = series_by_name(rows, values, chart.x_unit, labels)
    for name, starts in split_by_series(rows, extra["low"]).items() if extra else ():
        lengths = _lengths(starts, series[name].value)
        series[name].shown = ["+" * ((length or 0) > 0) + fmt.text(length, chart.x_unit) for length in lengths]
    positions = [float(row) for row in range(rows.count)]
    return _picture(rows, base, axis, series, positions, is_horizontal=True, extra=extra)


def stacked_bar(chart: Chart, rows: Rows) -> Picture:
    """Return series stacked over categories: columns, or lying bars where these are few or their names are long."""
    categories, codes = _categories(rows.cells("x"))
    base, labels = category_axis(chart.x_label, chart.x_unit, categories)
    values = rows.numbers("y")
    totals = {is_positive: [0.0] * max(len(categories), 1) for is_positive in (True, False)}
    for code, value in zip(codes, values, strict=True):
        totals[(value or 0) >= 0][code] += value or 0.0
    axis = value_axis(chart.y_label, chart.y_unit, *value_range(*totals.values()), chart.lines)
    series = series_by_name(rows, values, chart.y_unit, [labels[code] for code in codes])
    is_lying = len(categories) <= _MAX_LYING_STACKS or any(len(label) > _MAX_UPRIGHT_LABEL for label in base.labels)
    return _picture(rows, base, axis, series, list(map(float, codes)), is_horizontal=is_lying)


def spread(chart: Chart, rows: Rows) -> Picture:
    """Return boxes and ranges: a middle with whiskers per category, lying so that names can be read."""
    x, y = (chart.x_label, chart.x_unit, "x"), (chart.y_label, chart.y_unit, "y")
    (label, unit, channel), (value_label, value_unit, value_channel) = (x, y) if chart.mark is Mark.BOX else (y, x)
    categories, codes = _categories(rows.cells(channel))
    base, labels = category_axis(label, unit, categories)
    values = rows.numbers(value_channel)
    extra = {name: rows.numbers(name) for name in _SPREAD_CHANNELS if rows.has(name)}
    axis = _spread_axis(chart, value_label, value_unit, [values, *extra.values()])
    series = series_by_name(rows, values, value_unit, [labels[code] for code in codes])
    return _picture(rows, base, axis, series, list(map(float, codes)), is_horizontal=True, extra=extra)


def _spread_axis(chart: Chart, label: str, unit: Unit, columns: list[Numbers]) -> Axis:
    """Return a value axis, logarithmic where on an even scale most of the middles would be one dot."""
    low, high = value_range(*columns)
    is_single = sum(value is not None for value in columns[0]) == 1
    axis = value_axis(label, unit, low, high, chart.lines, from_zero=is_single)
    min_middle, max_middle = value_range(columns[0])
    if low <= 0 or max_middle < _MIN_LOG_RATIO * min_middle or chart.lines:
        return axis
    factor = axis.scale.factor
    return with_log(replace(axis, title=f"{label} (logarithmic)".strip()), low / factor * 0.9, high / factor * 1.1)


def numeric(chart: Chart, rows: Rows) -> Picture:
    """Return lines or points over numbers."""
    y = rows.numbers("y")
    base, x = _number_axis(chart, rows.numbers("x"), [])
    extra = {name: rows.numbers(name) for name in ("low", "high") if rows.has(name)}
    is_single = len(set(rows.series_names())) == 1
    y_range = value_range(y, *extra.values())
    axis = value_axis(chart.y_label, chart.y_unit, *y_range, chart.lines, from_zero=is_single)
    cells, unit = (rows.cells("text"), Unit.NAME) if rows.has("text") else (rows.cells("x"), chart.x_unit)
    series = series_by_name(rows, y, chart.y_unit, [fmt.text(cell, unit) for cell in cells])
    picture = _picture(rows, base, axis, series, x, is_horizontal=False, extra=extra)
    thinned = _thinned if chart.mark is Mark.SCATTER else _extremes
    return replace(picture, series=tuple(map(thinned, picture.series)))


def area(chart: Chart, rows: Rows) -> Picture:
    """Return series stacked over a number: every series has every x, and a missing value adds nothing."""
    base, x = _number_axis(chart, rows.numbers("x"), [])
    positions = sorted({value for value in x if value is not None})
    index_by_position = {position: index for index, position in enumerate(positions)}
    values = rows.numbers("y")
    totals = [0.0] * max(len(positions), 1)
    for position, value in zip(x, values, strict=True):
        if position is not None:
            totals[index_by_position[position]] += value or 0.0
    axis = value_axis(chart.y_label, chart.y_unit, *value_range(totals, [0.0]), chart.lines)
    all_series = series_by_name(rows, values, chart.y_unit, [""] * rows.count)
    x_by_series = split_by_series(rows, x)
    shown_positions = positions[:: max(1, math.ceil(len(positions) / _MAX_POINTS))]
    for name, series in all_series.items():
        value_by_x = dict(zip(x_by_series[name], series.value, strict=True))
        raw_values = [value_by_x.get(position) or 0.0 for position in shown_positions]
        series.base = list(shown_positions)
        series.shown = [fmt.text(value, chart.y_unit) for value in raw_values]
        series.label = [fmt.text(position * base.scale.factor, chart.x_unit) for position in shown_positions]
        series.value = scaled(raw_values, axis.scale)
    return Picture(chart, base, axis, tuple(all_series.values()), lines=reference_lines(chart, axis))


def histogram(chart: Chart, rows: Rows) -> Picture:
    """Return counts over bins from x to x2, series stacked."""
    left, right = rows.numbers("x"), rows.numbers("x2")
    if chart.log_x:  # A bin from zero starts at half the first edge that can be shown.
        min_edge = min((edge for edge in [*left, *right] if edge is not None and edge > 0), default=1.0)
        left = [None if edge is None else edge if edge > 0 else min_edge / 2 for edge in left]
    base, _ = _number_axis(chart, left, right)
    values = rows.numbers("y")
    total_by_edge = dict[float, float]()
    for edge, value in zip(left, values, strict=True):
        if edge is not None:
            total_by_edge[edge] = total_by_edge.get(edge, 0.0) + (value or 0.0)
    axis = value_axis(chart.y_label, chart.y_unit, *value_range(total_by_edge.values(), [0.0]), ())
    labels = [
        f"{fmt.text(low, chart.x_unit)} to {fmt.text(high, chart.x_unit)}"
        for low, high in zip(rows.cells("x"), rows.cells("x2"), strict=True)
    ]
    series = series_by_name(rows, values, chart.y_unit, labels)
    picture = _picture(rows, base, axis, series, scaled(left, base.scale), is_horizontal=False)
    ends = split_by_series(rows, scaled(right, base.scale))
    for bars in picture.series:
        bars.extra = {"end": ends[bars.name]}
    return replace(picture, lines=reference_lines(chart, base))


def heatmap(chart: Chart, rows: Rows) -> Picture:
    """Return cells by row and column; where there are too many they are joined by their maximum, which keeps peaks."""
    columns, column_codes = _categories(rows.cells("x"))
    lanes, lane_codes = _categories(rows.cells("y"))
    rows_joined, columns_joined = math.ceil(len(lanes) / _MAX_ROWS) or 1, math.ceil(len(columns) / _MAX_COLUMNS) or 1
    base, _ = category_axis(chart.x_label, chart.x_unit, columns[::columns_joined])
    value, _ = category_axis(chart.y_label, chart.y_unit, lanes[::rows_joined])
    numbers = rows.numbers("color")
    scale = value_axis("", chart.color_unit, *value_range(numbers), (), from_zero=False).scale
    cells = scaled(numbers, scale)
    grid: list[Numbers] = [[None] * len(base.labels) for _ in value.labels] if rows.count else []
    for lane, column, cell in zip(lane_codes, column_codes, cells, strict=True):
        grid_row, index = grid[lane // rows_joined], column // columns_joined
        before = grid_row[index]
        grid_row[index] = cell if before is None else before if cell is None else max(before, cell)
    color = Axis(scale.symbol, chart.color_unit, scale, *value_range(cells))
    return Picture(chart, base, value, cells=tuple(grid), color=color)


def timeline(chart: Chart, rows: Rows) -> Picture:
    """Return bars from x to x2 in lanes; of too many only the longest."""
    lanes, lane_codes = _categories(rows.cells("y"))
    base, lane_labels = category_axis(chart.y_label, chart.y_unit, lanes)
    start, end = rows.numbers("x"), rows.numbers("x2")
    low, high = value_range(start, end)
    low = 0.0 if 0 < low < (high - low) * _MAX_START_SHARE else low
    scale = fmt.axis_scale(low, high, chart.x_unit)
    axis = Axis(fmt.axis_title(chart.x_label, scale), chart.x_unit, scale, low / scale.factor, high / scale.factor)
    if low == high:
        axis = replace(axis, low=axis.low - 0.5, high=axis.high + 0.5)
    lengths = _lengths(start, end)
    labels = [
        lane_labels[lane] if text is None else fmt.text(text, Unit.NAME).strip() or NO_NAME
        for lane, text in zip(lane_codes, rows.cells("text"), strict=True)
    ]
    bars_by_name = series_by_name(rows, lengths, chart.x_unit, labels)
    starts, ends, lanes_by_series = (
        split_by_series(rows, column)
        for column in (scaled(start, scale, 9), scaled(end, scale, 9), list(map(float, lane_codes)))
    )
    min_length = _min_length(lengths)
    all_series = list[Series]()
    for name, series in bars_by_name.items():
        series.base, series.value, series.extra = lanes_by_series[name], starts[name], {"end": ends[name]}
        all_series.append(series.reordered([
            mark for mark, length in enumerate(_lengths(starts[name], ends[name]))
            if length is not None and length * scale.factor >= min_length
        ]))  # fmt: skip
    return Picture(chart, base, axis, tuple(all_series), is_horizontal=True, lines=reference_lines(chart, axis))


def _picture(  # noqa: PLR0913  one call per mark
    rows: Rows,
    base: Axis,
    axis: Axis,
    all_series: dict[str, Series],
    positions: Sequence[float | None],
    *,
    is_horizontal: bool,
    extra: dict[str, Numbers] | None = None,
) -> Picture:
    """Return a picture of series of raw values, brought into the units of the axes."""
    positions_by_series = split_by_series(rows, positions)
    channels = {channel: split_by_series(rows, scaled(column, axis.scale)) for channel, column in (extra or {}).items()}
    for name, series in all_series.items():
        series.base, series.value = positions_by_series[name], scaled(series.value, axis.scale)
        series.extra = {channel: column[name] for channel, column in channels.items()}
    lines = reference_lines(rows.chart, axis)
    return Picture(rows.chart, base, axis, tuple(all_series.values()), is_horizontal, lines=lines)


def _categories(values: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """Return the distinct values in order of appearance, and each value's index among them."""
    index_by_value: dict[Any, int] = {}
    codes = [index_by_value.setdefault(value, len(index_by_value)) for value in values]
    return list(index_by_value), codes


def _lengths(starts: Numbers, ends: Numbers) -> Numbers:
    return [None if start is None or end is None else end - start for start, end in zip(starts, ends, strict=True)]


def _number_axis(chart: Chart, values: Numbers, ends: Numbers) -> tuple[Axis, Numbers]:
    """Return the base axis over numbers, and the values in its unit; a log axis has only the positive ones."""
    if chart.log_x:
        positive: Numbers = [value if value is not None and value > 0 else None for value in values]
        low, high = value_range(positive, [end for end in ends if end is not None and end > 0])
        if high <= 0:
            low, high = 1.0, 10.0
        return with_log(Axis(chart.x_label, chart.x_unit), low, high), positive
    low, high = value_range(values, ends)
    scale = fmt.axis_scale(low, high, chart.x_unit)
    low, high = low / scale.factor, high / scale.factor
    if low == high:
        low, high = low - 0.5, high + 0.5
    if chart.mark is Mark.SCATTER:
        low, high = low - (high - low) * 0.03, high + (high - low) * 0.03
    return Axis(fmt.axis_title(chart.x_label, scale), chart.x_unit, scale, low, high), scaled(values, scale, 9)


def _thinned(series: Series) -> Series:
    return series.reordered(range(0, len(series.base), max(1, math.ceil(len(series.base) / _MAX_MARKS))))


def _extremes(series: Series) -> Series:
    """Return a line's points in order of x; of too many the smallest and the largest of each bucket, to keep peaks."""
    present = [point for point, position in enumerate(series.base) if position is not None]
    series = series.reordered(sorted(present, key=lambda point: series.base[point] or 0.0))
    count = len(series.base)
    if count <= _MAX_POINTS:
        return series
    size = math.ceil(2 * count / _MAX_POINTS)
    shown = set[int]()
    for first in range(0, count, size):
        points = range(first, min(first + size, count))
        bucket = [(value, point) for point in points if (value := series.value[point]) is not None]
        shown |= {min(bucket)[1], max(bucket)[1]} if bucket else {first}
    return series.reordered(sorted(shown))


def _min_length(lengths: Numbers) -> float:
    """Return the length from which on a timeline's bars are drawn, 0 where all are."""
    present = sorted((length for length in lengths if length is not None), reverse=True)
    return present[_MAX_MARKS] if len(present) > _MAX_MARKS else 0.0
