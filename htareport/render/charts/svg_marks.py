"""How each mark is drawn on a canvas."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from htareport.render.charts.palette import viridis
from htareport.render.charts.picture import SPREAD, Numbers, Picture, Series
from htareport.render.charts.svg_parts import EMPTY, Canvas, box_path, fill, num, stroke
from htareport.report import Mark

_LEVELS = 16
_WIDEST_BAR, _WIDEST_COLUMN = 26.0, 64.0
LABELLED_ROWS = 40
Point = tuple[float, float]


def draw(canvas: Canvas) -> None:
    """Draw all marks of the canvas's picture."""
    makers: dict[Mark, Callable[[Canvas], None]] = {
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
    makers[canvas.picture.chart.mark](canvas)


def _thickness(canvas: Canvas) -> float:
    """Width of a bar as a share of its category's slot."""
    widest = _WIDEST_BAR if canvas.picture.horizontal else _WIDEST_COLUMN
    share = 0.74 if canvas.picture.horizontal else 0.86 if canvas.slot > 3 else 1.0  # noqa: PLR2004  pixels for a gap
    return min(share, widest / canvas.slot)


def _bars(canvas: Canvas) -> None:
    half = _thickness(canvas) / 2
    values = list[tuple[float, float, str]]()
    for series in canvas.picture.series:
        starts = series.extra.get("low", [0.0] * len(series.value))
        rows = zip(series.base, starts, series.value, series.label, series.shown, strict=True)
        for base, start, value, label, shown in rows:
            if base is None:
                continue
            ends = (start or 0.0, value or 0.0)
            canvas.rect(canvas.box((base - half, base + half), ends), fill(series.color), f"{label}: {shown}")
            values.append((*canvas.point(base, max(ends)), shown))
    for x, y, shown in values if len(canvas.picture.base.labels) <= LABELLED_ROWS else ():
        canvas.text(x + 4, y + 4, shown, muted=False)


def stacked(picture: Picture) -> Iterable[tuple[Series, list[tuple[int, float, float]]]]:
    """Yield each series with (mark, bottom, top): values pile up in order, negative ones downwards."""
    above, below = dict[float, float](), dict[float, float]()
    for series in picture.series:
        pieces = list[tuple[int, float, float]]()
        for i, (base, value) in enumerate(zip(series.base, series.value, strict=True)):
            if base is None or not value:
                continue
            pile = above if value > 0 else below
            bottom = pile.get(base, 0.0)
            pile[base] = bottom + value
            pieces.append((i, bottom, bottom + value))
        yield series, pieces


def _stacks(canvas: Canvas) -> None:
    half = _thickness(canvas) / 2
    for series, pieces in stacked(canvas.picture):
        places = ((series.base[i] or 0.0, bottom, top) for i, bottom, top in pieces)
        boxes = (canvas.box((base - half, base + half), (bottom, top)) for base, bottom, top in places)
        canvas.path(box_path(boxes), fill(series.color))


def _spreads(canvas: Canvas) -> None:
    lanes = canvas.picture.lanes
    room = SPREAD / len(set(lanes)) if lanes else SPREAD
    for shift, series in zip(lanes, canvas.picture.series, strict=True):
        half = min(room * 0.4, 9 / canvas.slot)
        whiskers, boxes, middles = list[str](), list[tuple[float, float, float, float]](), list[Point]()
        for i, (base, value) in enumerate(zip(series.base, series.value, strict=True)):
            if base is None:
                continue
            low, q1, q3, high = (series.extra.get(name, series.value)[i] for name in ("low", "q1", "q3", "high"))
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
    """A whisker with end caps as path data."""
    ends = [(*canvas.point(base - cap, end), *canvas.point(base + cap, end)) for end in (low, high)]
    (x0, y0), (x1, y1) = canvas.point(base, low), canvas.point(base, high)
    caps = "".join(f"M{num(a)} {num(b)}L{num(c)} {num(d)}" for a, b, c, d in ends)
    return f"M{num(x0)} {num(y0)}L{num(x1)} {num(y1)}{caps}"


def _middles(canvas: Canvas, series: Series, middles: Sequence[Point], half: float) -> None:
    """Medians: a stroke across a box, a dot where there is none."""
    if half:
        ends = ((canvas.point(base - half, value), canvas.point(base + half, value)) for base, value in middles)
        d = "".join(f"M{num(a)} {num(b)}L{num(c)} {num(e)}" for (a, b), (c, e) in ends)
        canvas.path(d, stroke(series.color, 2.6))
    else:
        canvas.path(_dots(canvas, middles), f'{stroke(series.color, 7)} stroke-linecap="round"')


def _dots(canvas: Canvas, points: Iterable[Point]) -> str:
    return "".join(f"M{num(x)} {num(y)}h0" for x, y in (canvas.point(*point) for point in points))


def _runs(series: Series, values: Numbers) -> list[list[Point]]:
    """Split into stretches without gaps."""
    runs: list[list[Point]] = [[]]
    for base, value in zip(series.base, values, strict=True):
        if base is None or value is None:
            runs.append([])
        else:
            runs[-1].append((base, value))
    return [run for run in runs if run]


def _trace(canvas: Canvas, points: Sequence[Point]) -> str:
    """Points as path data without the first M; a step function keeps its value until the next point."""
    if canvas.picture.has_steps and len(points) > 1:
        points = [q for a, b in pairwise(points) for q in (a, (b[0], a[1]))] + [points[-1]]
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
    both = [low is not None and high is not None for low, high in zip(*_ends(series), strict=True)]
    low, high = ([v if keep else None for v, keep in zip(column, both, strict=True)] for column in _ends(series))
    for lower, upper in zip(_runs(series, low), _runs(series, high), strict=True):
        canvas.path(
            f"M{_trace(canvas, upper)}L{_trace_back(canvas, lower)}z", f'{fill(series.color)} fill-opacity=".2"'
        )


def _ends(series: Series) -> tuple[Numbers, Numbers]:
    return series.extra["low"], series.extra["high"]


def _trace_back(canvas: Canvas, points: Sequence[Point]) -> str:
    return "L".join(reversed(_trace(canvas, points).split("L")))


def _areas(canvas: Canvas) -> None:
    piles = dict[float, float]()
    for series in canvas.picture.series:
        lower = [(base, piles.get(base, 0.0)) for base in series.base if base is not None]
        for base, value in zip(series.base, series.value, strict=True):
            if base is not None:
                piles[base] = piles.get(base, 0.0) + (value or 0.0)
        upper = [(base, piles[base]) for base, _ in lower]
        if len(upper) == 1:  # One place has no width: draw a column.
            span = 0.25 * (canvas.picture.base.high - canvas.picture.base.low)
            lower, upper = ([(p - span, v), (p + span, v)] for ((p, v),) in (lower, upper))
        if upper:
            canvas.path(f"M{_trace(canvas, upper)}L{_trace_back(canvas, lower)}z", fill(series.color))


def _points(canvas: Canvas) -> None:
    for series in canvas.picture.series:
        points = (point for run in _runs(series, series.value) for point in run)
        canvas.path(_dots(canvas, points), f'{stroke(series.color, 5)} stroke-linecap="round" stroke-opacity=".8"')


def _histogram(canvas: Canvas) -> None:
    for series, pieces in stacked(canvas.picture):
        boxes = list[tuple[float, float, float, float]]()
        for i, bottom, top in pieces:
            left, right = series.base[i], series.extra["end"][i]
            if left is not None and right is not None:
                x, y, w, h = canvas.box((left, right), (bottom, top))
                boxes.append((x, y, max(w - (0.8 if w > 4 else 0), 0.3), h))  # noqa: PLR2004  room for a gap
        canvas.path(box_path(boxes), fill(series.color))


def _cells(canvas: Canvas) -> None:
    """Levels of colour, runs merged, one path each; the commonest is the ground, so that no seams show."""
    picture = canvas.picture
    rows, columns = len(picture.cells), len(picture.base.labels)
    low, high = picture.color.low, picture.color.high
    levels = [[_level(value, low, high) for value in row] for row in picture.cells]
    flat = [level for row in levels for level in row]
    ground = max(sorted(set(flat)), key=flat.count)
    canvas.rect((canvas.left, canvas.top, canvas.plot_width, canvas.plot_height), _cell_fill(ground))
    wide, high_px = canvas.plot_width / columns, canvas.plot_height / rows
    paths: dict[int, list[str]] = {}
    for i, row in enumerate(levels):
        top, below = canvas.top + i * high_px, canvas.top + (i + 1) * high_px
        first = 0
        while first < columns:
            last = first
            while last < columns and row[last] == row[first]:
                last += 1
            if row[first] != ground:
                x0, x1 = canvas.left + first * wide, canvas.left + last * wide
                cell = f"M{num(x0)} {num(top)}H{num(x1)}V{num(below + 0.25)}H{num(x0)}z"
                paths.setdefault(row[first], []).append(cell)
            first = last
    for level in sorted(paths):
        canvas.path("".join(paths[level]), f'{_cell_fill(level)} shape-rendering="crispEdges"')


def _level(value: float | None, low: float, high: float) -> int:
    if value is None:
        return -1
    return min(_LEVELS - 1, int((value - low) / ((high - low) or 1) * _LEVELS))


def _cell_fill(level: int) -> str:
    return f'fill="{EMPTY}" class="none"' if level < 0 else f'fill="{viridis((level + 0.5) / _LEVELS)}"'


def color_bar(canvas: Canvas) -> None:
    """Draw a heatmap's scale at the right, with its unit above."""
    axis, x = canvas.picture.color, canvas.width - canvas.right + 14
    if axis.low == axis.high:
        canvas.rect((x, canvas.top, 12, 12), _cell_fill(0))
        canvas.text(x + 17, canvas.top + 10, canvas.picture.color_text(axis.low))
        return
    step = canvas.plot_height / _LEVELS
    for i in range(_LEVELS):
        canvas.rect((x, canvas.top + canvas.plot_height - (i + 1) * step, 12, step + 0.4), _cell_fill(i))
    for place, label in axis.ticks(5):
        share = (place - axis.low) / (axis.high - axis.low)
        canvas.text(x + 17, canvas.top + (1 - share) * canvas.plot_height + 4, label)
    if axis.title:
        canvas.text(x, canvas.top - 6, axis.title)


def _lanes(canvas: Canvas) -> None:
    """Bars in lanes; neighbours less than half a pixel apart are one."""
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
