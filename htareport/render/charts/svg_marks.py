"""Draws the marks of a chart as SVG: bars, boxes, lines, areas, points, heatmap cells and timelines."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from htareport.render.charts.palette import viridis
from htareport.render.charts.picture import SPREAD_SHARE, Numbers, Picture, Series
from htareport.render.charts.svg_parts import EMPTY, Canvas, box_path, fill, num, stroke
from htareport.report import Mark

_NUM_LEVELS = 16
_MAX_BAR, _MAX_COLUMN = 26.0, 64.0
MAX_LABELLED_ROWS = 40
Point = tuple[float, float]


def draw(canvas: Canvas) -> None:
    """Draw all marks of the canvas's picture."""
    draw_by_mark: dict[Mark, Callable[[Canvas], None]] = {
        Mark.BAR: _bars,
        Mark.STACKED_BAR: _stacks,
        Mark.RANGE: _spreads,
        Mark.BOX: _spreads,
        Mark.LINE: _lines,
        Mark.AREA: _areas,
        Mark.SCATTER: _points,
        Mark.HISTOGRAM: _histogram,
        Mark.HEATMAP: _cells,
        Mark.TIMELINE: _lanes,
    }
    draw_by_mark[canvas.picture.chart.mark](canvas)


def _thickness(canvas: Canvas) -> float:
    """Return the width of a bar as a share of its category's slot."""
    max_width = _MAX_BAR if canvas.picture.is_horizontal else _MAX_COLUMN
    share = 0.74 if canvas.picture.is_horizontal else 0.86 if canvas.slot > 3 else 1.0  # noqa: PLR2004  pixels for a gap
    return min(share, max_width / canvas.slot)


def _bars(canvas: Canvas) -> None:
    half = _thickness(canvas) / 2
    texts = list[tuple[float, float, str]]()
    for series in canvas.picture.series:
        starts = series.extra.get("low", [0.0] * len(series.value))
        rows = zip(series.base, starts, series.value, series.label, series.shown, strict=True)
        for base, start, value, label, shown in rows:
            if base is None:
                continue
            ends = (start or 0.0, value or 0.0)
            canvas.rect(canvas.box((base - half, base + half), ends), fill(series.color), f"{label}: {shown}")
            texts.append((*canvas.point(base, max(ends)), shown))
    for text_x, text_y, shown in texts if len(canvas.picture.base.labels) <= MAX_LABELLED_ROWS else ():
        canvas.text(text_x + 4, text_y + 4, shown, muted=False)


def stacked(picture: Picture) -> Iterable[tuple[Series, list[tuple[int, float, float]]]]:
    """Yield each series with its bars as (mark, bottom, top): values are stacked in order, negative ones downwards."""
    tops, bottoms = dict[float, float](), dict[float, float]()
    for series in picture.series:
        bars = list[tuple[int, float, float]]()
        for mark, (base, value) in enumerate(zip(series.base, series.value, strict=True)):
            if base is None or not value:
                continue
            ends = tops if value > 0 else bottoms
            bottom = ends.get(base, 0.0)
            ends[base] = bottom + value
            bars.append((mark, bottom, bottom + value))
        yield series, bars


def _stacks(canvas: Canvas) -> None:
    half = _thickness(canvas) / 2
    for series, bars in stacked(canvas.picture):
        spans = ((series.base[mark] or 0.0, bottom, top) for mark, bottom, top in bars)
        boxes = (canvas.box((base - half, base + half), (bottom, top)) for base, bottom, top in spans)
        canvas.path(box_path(boxes), fill(series.color))


def _spreads(canvas: Canvas) -> None:
    lanes = canvas.picture.lanes
    spread_share = SPREAD_SHARE / len(set(lanes)) if lanes else SPREAD_SHARE
    for shift, series in zip(lanes, canvas.picture.series, strict=True):
        half = min(spread_share * 0.4, 9 / canvas.slot)
        whiskers, boxes, middles = list[str](), list[tuple[float, float, float, float]](), list[Point]()
        for mark, (base, value) in enumerate(zip(series.base, series.value, strict=True)):
            if base is None:
                continue
            low, q1, q3, high = (series.extra.get(name, series.value)[mark] for name in ("low", "q1", "q3", "high"))
            if low is not None and high is not None:
                whiskers.append(_segment(canvas, base + shift, low, high, half / 2))
            if q1 is not None and q3 is not None and "q1" in series.extra:
                boxes.append(canvas.box((base + shift - half, base + shift + half), (q1, q3)))
            if value is not None:
                middles.append((base + shift, value))
        canvas.path("".join(whiskers), stroke(series.color, 1.4))
        canvas.path(box_path(boxes), f'{fill(series.color)} fill-opacity=".45"')
        _middles(canvas, series, middles, half if boxes else 0.0)


def _segment(canvas: Canvas, base: float, low: float, high: float, cap: float) -> str:
    """Return a whisker with end caps as path data."""
    caps = (_stroke_between(canvas.point(base - cap, end), canvas.point(base + cap, end)) for end in (low, high))
    return _stroke_between(canvas.point(base, low), canvas.point(base, high)) + "".join(caps)


def _stroke_between(start: Point, end: Point) -> str:
    return f"M{num(start[0])} {num(start[1])}L{num(end[0])} {num(end[1])}"


def _middles(canvas: Canvas, series: Series, middles: Sequence[Point], half: float) -> None:
    """Draw medians: a stroke across a box, a dot where there is none."""
    if half:
        ends = ((canvas.point(base - half, value), canvas.point(base + half, value)) for base, value in middles)
        canvas.path("".join(_stroke_between(*points) for points in ends), stroke(series.color, 2.6))
    else:
        canvas.path(_dots(canvas, middles), f'{stroke(series.color, 7)} stroke-linecap="round"')


def _dots(canvas: Canvas, points: Iterable[Point]) -> str:
    return "".join(f"M{num(x)} {num(y)}h0" for x, y in (canvas.point(*point) for point in points))


def _runs(series: Series, values: Numbers) -> list[list[Point]]:
    """Return a series' points as runs without gaps."""
    runs: list[list[Point]] = [[]]
    for base, value in zip(series.base, values, strict=True):
        if base is None or value is None:
            runs.append([])
        else:
            runs[-1].append((base, value))
    return [run for run in runs if run]


def _trace(canvas: Canvas, points: Sequence[Point]) -> str:
    """Return points as path data without the first M; a step function keeps its value until the next point."""
    if canvas.picture.has_steps and len(points) > 1:
        corners = (corner for before, after in pairwise(points) for corner in (before, (after[0], before[1])))
        points = [*corners, points[-1]]
    return "L".join(f"{num(x)} {num(y)}" for x, y in (canvas.point(*point) for point in points))


def _lines(canvas: Canvas) -> None:
    for series in canvas.picture.series:
        if "low" in series.extra and "high" in series.extra:
            _band(canvas, series)
    for series in canvas.picture.series:
        runs = _runs(series, series.value)
        canvas.path(
            "".join(f"M{_trace(canvas, run)}" for run in runs if len(run) > 1),
            f'{stroke(series.color, 1.8)} stroke-linejoin="round"',
        )
        lone = [run[0] for run in runs if len(run) == 1]
        canvas.path(_dots(canvas, lone), f'{stroke(series.color, 6)} stroke-linecap="round"')


def _band(canvas: Canvas, series: Series) -> None:
    edges = zip(series.extra["low"], series.extra["high"], strict=True)
    bounded = [(None, None) if None in ends else ends for ends in edges]
    low, high = ([ends[i] for ends in bounded] for i in (0, 1))
    for lower, upper in zip(_runs(series, low), _runs(series, high), strict=True):
        canvas.path(
            f"M{_trace(canvas, upper)}L{_trace_back(canvas, lower)}z", f'{fill(series.color)} fill-opacity=".2"'
        )


def _trace_back(canvas: Canvas, points: Sequence[Point]) -> str:
    return "L".join(reversed(_trace(canvas, points).split("L")))


def _areas(canvas: Canvas) -> None:
    top_by_base = dict[float, float]()
    for series in canvas.picture.series:
        lower = [(base, top_by_base.get(base, 0.0)) for base in series.base if base is not None]
        for base, value in zip(series.base, series.value, strict=True):
            if base is not None:
                top_by_base[base] = top_by_base.get(base, 0.0) + (value or 0.0)
        upper = [(base, top_by_base[base]) for base, _ in lower]
        if len(upper) == 1:  # One place has no width: draw a column.
            half_width = 0.25 * (canvas.picture.base.high - canvas.picture.base.low)
            lower, upper = ([(x - half_width, y), (x + half_width, y)] for ((x, y),) in (lower, upper))
        if upper:
            canvas.path(f"M{_trace(canvas, upper)}L{_trace_back(canvas, lower)}z", fill(series.color))


def _points(canvas: Canvas) -> None:
    for series in canvas.picture.series:
        points = (point for run in _runs(series, series.value) for point in run)
        canvas.path(_dots(canvas, points), f'{stroke(series.color, 5)} stroke-linecap="round" stroke-opacity=".8"')


def _histogram(canvas: Canvas) -> None:
    for series, bars in stacked(canvas.picture):
        boxes = list[tuple[float, float, float, float]]()
        for mark, bottom, top in bars:
            left, right = series.base[mark], series.extra["end"][mark]
            if left is not None and right is not None:
                x, y, w, h = canvas.box((left, right), (bottom, top))
                boxes.append((x, y, max(w - (0.8 if w > 4 else 0), 0.3), h))  # noqa: PLR2004  room for a gap
        canvas.path(box_path(boxes), fill(series.color))


def _cells(canvas: Canvas) -> None:
    """Draw a heatmap's cells."""
    # Values become 16 levels of colour. The commonest level is the ground, so that no seams show; on it neighbouring
    # cells of one level are merged, and each level is one path.
    picture = canvas.picture
    rows, columns = len(picture.cells), len(picture.base.labels)
    low, high = picture.color.low, picture.color.high
    levels = [[_level(value, low, high) for value in row] for row in picture.cells]
    flat = [level for row in levels for level in row]
    ground = max(sorted(set(flat)), key=flat.count)
    canvas.rect((canvas.left, canvas.top, canvas.plot_width, canvas.plot_height), _cell_fill(ground))
    cell_width, cell_height = canvas.plot_width / columns, canvas.plot_height / rows
    paths: dict[int, list[str]] = {}
    for row_index, row in enumerate(levels):
        top, bottom = canvas.top + row_index * cell_height, canvas.top + (row_index + 1) * cell_height
        start = 0
        while start < columns:
            end = start
            while end < columns and row[end] == row[start]:
                end += 1
            if row[start] != ground:
                left, right = canvas.left + start * cell_width, canvas.left + end * cell_width
                rectangle = f"M{num(left)} {num(top)}H{num(right)}V{num(bottom + 0.25)}H{num(left)}z"
                paths.setdefault(row[start], []).append(rectangle)
            start = end
    for level in sorted(paths):
        canvas.path("".join(paths[level]), f'{_cell_fill(level)} shape-rendering="crispEdges"')


def _level(value: float | None, min_value: float, max_value: float) -> int:
    if value is None:
        return -1
    return min(_NUM_LEVELS - 1, int((value - min_value) / ((max_value - min_value) or 1) * _NUM_LEVELS))


def _cell_fill(level: int) -> str:
    return f'fill="{EMPTY}" class="none"' if level < 0 else f'fill="{viridis((level + 0.5) / _NUM_LEVELS)}"'


def color_bar(canvas: Canvas) -> None:
    """Draw a heatmap's scale at the right, with its unit above."""
    axis, x = canvas.picture.color, canvas.width - canvas.right + 14
    if axis.low == axis.high:
        canvas.rect((x, canvas.top, 12, 12), _cell_fill(0))
        canvas.text(x + 17, canvas.top + 10, canvas.picture.color_text(axis.low))
        return
    step = canvas.plot_height / _NUM_LEVELS
    for level in range(_NUM_LEVELS):
        canvas.rect((x, canvas.top + canvas.plot_height - (level + 1) * step, 12, step + 0.4), _cell_fill(level))
    for position, label in axis.ticks(5):
        share = (position - axis.low) / (axis.high - axis.low)
        canvas.text(x + 17, canvas.top + (1 - share) * canvas.plot_height + 4, label)
    if axis.title:
        canvas.text(x, canvas.top - 6, axis.title)


def _lanes(canvas: Canvas) -> None:
    """Draw a timeline's bars in lanes; neighbours less than half a pixel apart are one."""
    half = min(0.36, 12 / canvas.slot)
    for series in canvas.picture.series:
        marks = sorted(
            (base, start, end)
            for base, start, end in zip(series.base, series.value, series.extra["end"], strict=True)
            if base is not None and start is not None and end is not None
        )
        boxes = list[tuple[float, float, float, float]]()
        for base, start, end in marks:
            x, y, w, h = canvas.box((base - half, base + half), (start, end))
            w = max(w, 0.5)
            if boxes and math.isclose(boxes[-1][1], y) and x - (boxes[-1][0] + boxes[-1][2]) < 0.4:  # noqa: PLR2004
                x0 = boxes[-1][0]
                boxes[-1] = (x0, y, max(boxes[-1][2], x + w - x0), h)
            else:
                boxes.append((x, y, w, h))
        canvas.path(box_path(boxes), fill(series.color))
