"""How each mark reads its columns; see `report.Chart` for the table of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from htareport.render.charts import ticks as fmt
from htareport.render.charts.picture import (
    MOST_MARKS,
    MOST_POINTS,
    Axis,
    Numbers,
    Picture,
    Rows,
    Series,
    category_axis,
    grouped,
    reference_lines,
    scaled,
    span,
    split,
    value_axis,
    with_log,
)
from htareport.render.kernel_names import NO_NAME
from htareport.report import Chart, Mark, Unit

_FEW = 3  # Up to so many stacked bars lie on their side: wide columns say nothing.
_LONG_LABEL = 9
_FAR = 100  # Times the least value.
_NEAR = 0.05  # A timeline that starts so close to zero starts there.
_MOST_ROWS, _MOST_COLUMNS = 128, 256
_SPREAD = ("low", "q1", "q3", "high")


def bar(chart: Chart, rows: Rows) -> Picture:
    """One bar a row, lying, the first on top."""
    base, full = category_axis(chart.y_label, chart.y_unit, rows.raw("y"))
    values = rows.numbers("x")
    extra = {"low": rows.numbers("low")} if rows.has("low") else {}
    axis = value_axis(chart.x_label, chart.x_unit, *span(values, *extra.values()), chart.lines, zero=True)
    series = grouped(rows, values, chart.x_unit, full)
    for name, starts in split(rows, extra["low"]).items() if extra else ():
        lengths = [None if a is None or b is None else b - a for a, b in zip(starts, series[name].value, strict=True)]
        series[name].shown = ["+" * ((length or 0) > 0) + fmt.text(length, chart.x_unit) for length in lengths]
    places = split(rows, [float(i) for i in range(rows.count)])
    return _finished(chart, base, axis, series, places, horizontal=True, extra=_split(rows, extra))


def stacked_bar(chart: Chart, rows: Rows) -> Picture:
    """Series stacked over categories: columns, or lying bars where there are few or their names are long."""
    categories, place = _places(rows.raw("x"))
    base, full = category_axis(chart.x_label, chart.x_unit, categories)
    values = rows.numbers("y")
    totals = {True: [0.0] * max(len(categories), 1), False: [0.0] * max(len(categories), 1)}
    for i, value in zip(place, values, strict=True):
        totals[(value or 0) >= 0][i] += value or 0.0
    axis = value_axis(chart.y_label, chart.y_unit, *span(totals[True], totals[False]), chart.lines, zero=True)
    series = grouped(rows, values, chart.y_unit, [full[i] for i in place])
    lying = len(categories) <= _FEW or any(len(label) > _LONG_LABEL for label in base.labels)
    return _finished(chart, base, axis, series, split(rows, [float(i) for i in place]), horizontal=lying)


def spread(chart: Chart, rows: Rows) -> Picture:
    """Boxes and ranges: a middle with whiskers per category, lying so that names can be read."""
    is_box = chart.mark is Mark.BOX
    where, what = ("x", "y") if is_box else ("y", "x")
    label, unit = (chart.x_label, chart.x_unit) if is_box else (chart.y_label, chart.y_unit)
    value_label, value_unit = (chart.y_label, chart.y_unit) if is_box else (chart.x_label, chart.x_unit)
    categories, place = _places(rows.raw(where))
    base, full = category_axis(label, unit, categories)
    values = rows.numbers(what)
    extra = {name: rows.numbers(name) for name in _SPREAD if rows.has(name)}
    axis = _spread_axis(chart, value_label, value_unit, [values, *extra.values()])
    series = grouped(rows, values, value_unit, [full[i] for i in place])
    return _finished(
        chart, base, axis, series, split(rows, [float(i) for i in place]), horizontal=True, extra=_split(rows, extra)
    )


def _spread_axis(chart: Chart, label: str, unit: Unit, columns: list[Numbers]) -> Axis:
    """Logarithmic where the middles lie so far apart that on an even scale most would be one dot."""
    low, high = span(*columns)
    alone = sum(value is not None for value in columns[0]) == 1
    axis = value_axis(label, unit, low, high, chart.lines, zero=alone)
    least, greatest = span(columns[0])
    if low <= 0 or greatest < _FAR * least or chart.lines:
        return axis
    factor = axis.scale.factor
    return with_log(replace(axis, title=f"{label} (logarithmic)".strip()), low / factor * 0.9, high / factor * 1.1)


def numeric(chart: Chart, rows: Rows) -> Picture:
    """Lines and points over numbers."""
    x, y = rows.numbers("x"), rows.numbers("y")
    base, x = _number_axis(chart, x, [])
    extra = {name: rows.numbers(name) for name in ("low", "high") if rows.has(name)}
    alone = len(set(rows.series_names())) == 1
    axis = value_axis(chart.y_label, chart.y_unit, *span(y, *extra.values()), chart.lines, zero=alone)
    texts = rows.raw("text") if rows.has("text") else rows.raw("x")
    unit = Unit.NAME if rows.has("text") else chart.x_unit
    series = grouped(rows, y, chart.y_unit, [fmt.text(value, unit) for value in texts])
    numeric = _finished(chart, base, axis, series, split(rows, x), horizontal=False, extra=_split(rows, extra))
    if chart.mark is Mark.SCATTER:
        thinned = [
            s.reordered(range(0, len(s.base), max(1, math.ceil(len(s.base) / MOST_MARKS)))) for s in numeric.series
        ]
    else:
        thinned = [_thinned(_sorted(s)) for s in numeric.series]
    return Picture(chart, base, axis, tuple(thinned), lines=numeric.lines)


def area(chart: Chart, rows: Rows) -> Picture:
    """Series stacked over a number: every series gets every x, a missing value adds nothing."""
    x = rows.numbers("x")
    base, x = _number_axis(chart, x, [])
    places = sorted({value for value in x if value is not None})
    order = {value: i for i, value in enumerate(places)}
    values = rows.numbers("y")
    totals = [0.0] * max(len(places), 1)
    for where, value in zip(x, values, strict=True):
        if where is not None:
            totals[order[where]] += value or 0.0
    axis = value_axis(chart.y_label, chart.y_unit, *span(totals, [0.0]), chart.lines, zero=True)
    series = grouped(rows, values, chart.y_unit, [""] * rows.count)
    by_series = split(rows, x)
    step = max(1, math.ceil(len(places) / MOST_POINTS))
    for name, one in series.items():
        at = {where: value for where, value in zip(by_series[name], one.value, strict=True) if where is not None}
        one.base = list(places[::step])
        raw = [at.get(place) or 0.0 for place in places[::step]]
        one.shown = [fmt.text(value, chart.y_unit) for value in raw]
        one.label = [fmt.text(place * base.scale.factor, chart.x_unit) for place in places[::step]]
        one.value = scaled(raw, axis.scale)
    return Picture(chart, base, axis, tuple(series.values()), lines=reference_lines(chart, axis))


def histogram(chart: Chart, rows: Rows) -> Picture:
    """Counts over bins from x to x2, series stacked."""
    left, right = rows.numbers("x"), rows.numbers("x2")
    if chart.log_x:  # A bin from zero starts a tenth below the first edge that can be shown.
        least = min((v for v in [*left, *right] if v is not None and v > 0), default=1.0)
        left = [None if v is None else v if v > 0 else least / 2 for v in left]
    base, _ = _number_axis(chart, left, right)
    values = rows.numbers("y")
    piles = dict[float, float]()
    for edge, value in zip(left, values, strict=True):
        if edge is not None:
            piles[edge] = piles.get(edge, 0.0) + (value or 0.0)
    axis = value_axis(chart.y_label, chart.y_unit, *span(piles.values(), [0.0]), (), zero=True)
    labels = [
        f"{fmt.text(a, chart.x_unit)} to {fmt.text(b, chart.x_unit)}"
        for a, b in zip(rows.raw("x"), rows.raw("x2"), strict=True)
    ]
    series = grouped(rows, values, chart.y_unit, labels)
    extra = _split(rows, {"end": scaled(right, base.scale)})
    histogram = _finished(chart, base, axis, series, split(rows, scaled(left, base.scale)), horizontal=False)
    for one in histogram.series:
        one.extra = {"end": extra["end"][one.name]}
    return Picture(chart, base, axis, histogram.series, lines=reference_lines(chart, base))


def heatmap(chart: Chart, rows: Rows) -> Picture:
    """Cells by row and column; many rows or columns are joined by their greatest value, so that no peak is lost."""
    columns, column_of = _places(rows.raw("x"))
    lanes, lane_of = _places(rows.raw("y"))
    per_row, per_column = math.ceil(len(lanes) / _MOST_ROWS) or 1, math.ceil(len(columns) / _MOST_COLUMNS) or 1
    base, _ = category_axis(chart.x_label, chart.x_unit, columns[::per_column])
    value, _ = category_axis(chart.y_label, chart.y_unit, lanes[::per_row])
    numbers = rows.numbers("color")
    color = value_axis("", chart.color_unit, *span(numbers), (), zero=False)
    low, high = span(scaled(numbers, color.scale))
    color = Axis(color.scale.symbol, chart.color_unit, color.scale, low, high)
    cells = tuple([None] * len(base.labels) for _ in value.labels) if rows.count else ()
    grid: list[Numbers] = [list(row) for row in cells]
    for i, j, cell in zip(lane_of, column_of, scaled(numbers, color.scale), strict=True):
        row, at = grid[i // per_row], j // per_column
        old = row[at]
        row[at] = cell if old is None else old if cell is None else max(old, cell)
    return Picture(chart, base, value, cells=tuple(grid), color=color)


def timeline(chart: Chart, rows: Rows) -> Picture:
    """Bars from x to x2 in lanes; of too many the longest are kept."""
    lanes, lane_of = _places(rows.raw("y"))
    base, full = category_axis(chart.y_label, chart.y_unit, lanes)
    start, end = rows.numbers("x"), rows.numbers("x2")
    low, high = span(start, end)
    low = 0.0 if 0 < low < (high - low) * _NEAR else low
    scale = fmt.axis_scale(low, high, chart.x_unit)
    axis = Axis(fmt.axis_title(chart.x_label, scale), chart.x_unit, scale, low / scale.factor, high / scale.factor)
    if low == high:
        axis = replace(axis, low=axis.low - 0.5, high=axis.high + 0.5)
    lengths = [None if a is None or b is None else b - a for a, b in zip(start, end, strict=True)]
    texts = rows.raw("text")
    named = zip(lane_of, texts, strict=True)
    labels = [full[lane] if text is None else fmt.text(text, Unit.NAME).strip() or NO_NAME for lane, text in named]
    series = grouped(rows, lengths, chart.x_unit, labels)
    starts, ends = split(rows, scaled(start, axis.scale, 9)), split(rows, scaled(end, axis.scale, 9))
    places = split(rows, [float(lane) for lane in lane_of])
    least = _cutoff(lengths)
    for name, one in series.items():
        one.base, one.value, one.extra = places[name], starts[name], {"end": ends[name]}
        keep = [
            i
            for i, (a, b) in enumerate(zip(one.value, one.extra["end"], strict=True))
            if a is not None and b is not None and (b - a) * axis.scale.factor >= least
        ]
        series[name] = one.reordered(keep)
    return Picture(chart, base, axis, tuple(series.values()), horizontal=True, lines=reference_lines(chart, axis))


def _finished(  # noqa: PLR0913  one call per mark
    chart: Chart,
    base: Axis,
    axis: Axis,
    series: dict[str, Series],
    places: dict[str, Numbers],
    *,
    horizontal: bool,
    extra: dict[str, dict[str, Numbers]] | None = None,
) -> Picture:
    """Bring every series into the axes' units."""
    for name, one in series.items():
        one.base = places[name]
        one.value = scaled(one.value, axis.scale)
        one.extra = {channel: scaled(by[name], axis.scale) for channel, by in (extra or {}).items()}
    return Picture(chart, base, axis, tuple(series.values()), horizontal=horizontal, lines=reference_lines(chart, axis))


def _places(values: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """Return the distinct values in order of appearance, and each value's place among them."""
    order: dict[Any, int] = {}
    place = [order.setdefault(value, len(order)) for value in values]
    return list(order), place


def _split(rows: Rows, extra: dict[str, Numbers]) -> dict[str, dict[str, Numbers]]:
    return {channel: split(rows, column) for channel, column in extra.items()}


def _number_axis(chart: Chart, values: Numbers, ends: Numbers) -> tuple[Axis, Numbers]:
    """Make the base axis over numbers and return the values in its unit; on a log axis only positive ones stay."""
    if chart.log_x:
        positive: Numbers = [value if value is not None and value > 0 else None for value in values]
        low, high = span(positive, [end for end in ends if end is not None and end > 0])
        if high <= 0:
            low, high = 1.0, 10.0
        return with_log(Axis(chart.x_label, chart.x_unit), low, high), positive
    low, high = span(values, ends)
    scale = fmt.axis_scale(low, high, chart.x_unit)
    low, high = low / scale.factor, high / scale.factor
    if low == high:
        low, high = low - 0.5, high + 0.5
    if chart.mark is Mark.SCATTER:
        low, high = low - (high - low) * 0.03, high + (high - low) * 0.03
    return Axis(fmt.axis_title(chart.x_label, scale), chart.x_unit, scale, low, high), scaled(values, scale, 9)


def _sorted(series: Series) -> Series:
    present = [i for i, place in enumerate(series.base) if place is not None]
    return series.reordered(sorted(present, key=lambda i: series.base[i] or 0.0))


def _thinned(series: Series) -> Series:
    """Keep the least and the greatest point of each bucket, so that no peak is lost."""
    count = len(series.base)
    if count <= MOST_POINTS:
        return series
    size = math.ceil(2 * count / MOST_POINTS)
    keep = set[int]()
    for first in range(0, count, size):
        bucket = [(value, i) for i in range(first, min(first + size, count)) if (value := series.value[i]) is not None]
        keep |= {min(bucket)[1], max(bucket)[1]} if bucket else {first}
    return series.reordered(sorted(keep))


def _cutoff(lengths: Numbers) -> float:
    """Return the length from which on marks are drawn, 0 where all are."""
    present = sorted((length for length in lengths if length is not None), reverse=True)
    return present[MOST_MARKS] if len(present) > MOST_MARKS else 0.0
