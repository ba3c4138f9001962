"""Draws a chart as static SVG, for pages without scripts, print, PDF and mail."""

from __future__ import annotations

import math
from html import escape

from htareport.render.charts import svg_marks
from htareport.render.charts.draw import picture_of
from htareport.render.charts.palette import WORST
from htareport.render.charts.picture import Axis, Picture
from htareport.render.charts.svg_parts import (
    FONT_SIZE,
    FONTS,
    GRID,
    MAX_LABELS,
    Canvas,
    clean,
    fill,
    fitted,
    num,
    stroke,
    text_width,
    thinned_labels,
)
from htareport.render.kernel_names import cut
from htareport.report import Chart, Mark

WIDTH = 500
_HEIGHT, _HEATMAP_HEIGHT = 270, 320
_ROW_HEIGHT, _MAX_HEIGHT = 22.0, 640.0
_LEGEND_LINE_HEIGHT = 18.0
_MIN_DENSE_ROWS = 4  # Fewer rows stand further apart.
_MAX_DESCRIPTION = 600
_DASHES = f'{stroke(WORST, 1.2)} stroke-dasharray="5 3"'
_MAX_LABEL_SHARE = 0.42  # Category names may take so much of the width.


def svg(chart: Chart, width: float = WIDTH, *, xmlns: bool = True) -> str:
    """Return a chart as an SVG element, `width` pixels wide; its height follows from its rows.

    Any frame gives a picture. `xmlns` may be left out where the SVG stands inside HTML.
    """
    return draw(picture_of(chart), width, xmlns=xmlns)


def draw(picture: Picture, width: float = WIDTH, *, xmlns: bool = True, captioned: bool = False) -> str:
    """Return a picture as an SVG element; `captioned` says that the page shows its caption already."""
    canvas = _canvas(picture, width)
    if picture.num_marks:
        if picture.chart.mark is Mark.HEATMAP:
            _row_labels(canvas)
            svg_marks.draw(canvas)
            svg_marks.color_bar(canvas)
        else:
            _grid(canvas)
            svg_marks.draw(canvas)
            _reference_lines(canvas)
        _bottom_axis(canvas)
        _titles(canvas)
        if picture.has_legend:
            _legend(canvas, draw_it=True)
    else:
        canvas.text(width / 2, canvas.height / 2, "No data", "middle")
    return _element(canvas, xmlns=xmlns, captioned=captioned)


def _element(canvas: Canvas, *, xmlns: bool, captioned: bool) -> str:
    chart, size = canvas.picture.chart, f"{num(canvas.width)} {num(canvas.height)}"
    summary = cut(description(canvas.picture, captioned=captioned), _MAX_DESCRIPTION)
    namespace = ' xmlns="http://www.w3.org/2000/svg"' if xmlns else ""
    return (
        f'<svg{namespace} viewBox="0 0 {size}" width="{num(canvas.width)}" height="{num(canvas.height)}" role="img" '
        f'font-family="{FONTS}" font-size="{FONT_SIZE}"><title>{escape(clean(chart.title))}</title>'
        f"<desc>{escape(clean(summary))}</desc>{canvas.markup()}</svg>"
    )


def description(picture: Picture, *, captioned: bool = False) -> str:
    """Return one or two sentences for those who cannot see the picture: its caption, axes and series."""
    chart = picture.chart
    kind = chart.mark.replace("_", " ")
    series = ", ".join(series.name for series in picture.series if series.name)
    axes = (
        f"{picture.value.title} by {picture.base.title}".strip()
        if picture.value.title and picture.base.title
        else chart.title
    )
    listed = f" Series: {series}." if series else ""
    return f"{'' if captioned else chart.caption} {kind.capitalize()} chart of {axes}.{listed}".strip()


def _canvas(picture: Picture, width: float) -> Canvas:
    """Return a canvas with the height and margins that labels, legend and marks need."""
    is_heatmap = picture.chart.mark is Mark.HEATMAP
    canvas = Canvas(picture, width, _HEIGHT, left=10, right=14, top=10, bottom=40)
    y_axis = picture.y_axis
    widest_label = max(text_width(label) for _, label in y_axis.ticks())
    canvas.left = min(widest_label + 10, width * _MAX_LABEL_SHARE) if y_axis.labels else widest_label + 10
    canvas.left += 16 if _left_title(picture) else 0
    canvas.bottom = 40 if picture.x_axis.title else 24
    if picture.has_legend:
        canvas.top += _legend(canvas, draw_it=False)
    if is_heatmap:
        canvas.top += 12
        ticks = picture.color.ticks()
        labels = [label for _, label in ticks] + [picture.color_text(picture.color.low)]
        canvas.right = max(20 + text_width(picture.color.title), 37 + max(map(text_width, labels)))
    elif picture.chart.mark is Mark.BAR and len(picture.base.labels) <= svg_marks.MAX_LABELLED_ROWS:
        canvas.right = 10 + max((text_width(text) for series in picture.series for text in series.shown), default=0)
    if picture.lines and (picture.is_horizontal or picture.lines_on_base):
        canvas.top += 14
    canvas.height = _height(canvas)
    return canvas


def _height(canvas: Canvas) -> float:
    picture = canvas.picture
    margins = canvas.top + canvas.bottom
    if picture.chart.mark is Mark.HEATMAP:
        num_rows = len(picture.value.labels)
        return min(max(margins + num_rows * 18.0, 160.0), _HEATMAP_HEIGHT)
    if not picture.is_horizontal:
        return _HEIGHT
    row_height = _ROW_HEIGHT
    if picture.chart.mark in {Mark.BOX, Mark.RANGE}:
        row_height *= max(1.0, 0.6 * len(set(picture.lanes)))
    elif picture.chart.mark is Mark.TIMELINE or len(picture.base.labels) < _MIN_DENSE_ROWS:
        row_height *= 1.4
    return min(max(margins + row_height * len(picture.base.labels), margins + 40), _MAX_HEIGHT)


def _left_title(picture: Picture) -> str:
    """Return the vertical axis's title; empty for names of kernels and the like, which need none."""
    axis = picture.y_axis
    return "" if axis.labels and axis.unit.is_text else axis.title


def _grid(canvas: Canvas) -> None:
    """Draw grid lines across the value axis, and the labels at the left."""
    picture = canvas.picture
    if picture.is_horizontal:
        x_pixels = [num(canvas.across(picture.value, position)) for position, _ in _bottom_ticks(canvas)]
        lines = [f"M{pixel} {num(canvas.top)}v{num(canvas.plot_height)}" for pixel in x_pixels]
        canvas.path("".join(lines), f'stroke="{GRID}" class="grid"')
        _row_labels(canvas)
        return
    ticks = [(canvas.down(picture.value, position), label) for position, label in picture.value.ticks()]
    lines = [f"M{num(canvas.left)} {num(y)}h{num(canvas.plot_width)}" for y, _ in ticks]
    canvas.path("".join(lines), f'stroke="{GRID}" class="grid"')
    for y, label in ticks:
        canvas.text(canvas.left - 6, y + 4, label, "end")


def _row_labels(canvas: Canvas) -> None:
    """Draw the labels of categories at the left, as many as fit."""
    axis = canvas.picture.y_axis
    label_width = canvas.left - 10 - (16 if _left_title(canvas.picture) else 0)
    slot = canvas.plot_height / max(len(axis.labels), 1)
    for position, label in thinned_labels(axis.ticks(), slot, 10**6, across=False):
        canvas.text(canvas.left - 6, canvas.down(axis, position) + 4, fitted(label, label_width), "end")


def _bottom_ticks(canvas: Canvas) -> list[tuple[float, str]]:
    """Return the ticks of the horizontal axis, no more than fit."""
    axis = canvas.picture.x_axis
    if axis.labels:
        return thinned_labels(axis.ticks(), canvas.plot_width / len(axis.labels), MAX_LABELS, across=True)
    for count in (8, 6, 5, 4, 3, 2):
        ticks = axis.ticks(count)
        widest = max((text_width(label) for _, label in ticks), default=0)
        if len(ticks) <= MAX_LABELS and (widest + 12) * len(ticks) <= canvas.plot_width:
            return ticks
    return axis.ticks(1)[:1]


def _bottom_axis(canvas: Canvas) -> None:
    picture, axis = canvas.picture, canvas.picture.x_axis
    bottom = canvas.top + canvas.plot_height
    canvas.path(f"M{num(canvas.left)} {num(bottom)}h{num(canvas.plot_width)}", f'stroke="{GRID}" class="grid"')
    for position, label in _bottom_ticks(canvas):
        x = canvas.across(axis, position)
        half = text_width(label) / 2
        if not canvas.left - 1 <= x <= canvas.left + canvas.plot_width + 1:
            continue
        # Clear of the zero at the left.
        min_x = half if picture.is_horizontal or picture.value.labels else canvas.left - 2 + half
        canvas.text(min(max(x, min_x), canvas.width - half), bottom + 16, label, "middle")


def _titles(canvas: Canvas) -> None:
    axis = canvas.picture.x_axis
    if axis.title:
        middle = canvas.left + canvas.plot_width / 2
        canvas.text(middle, canvas.height - 6, fitted(axis.title, canvas.plot_width), "middle")
    if title := _left_title(canvas.picture):
        y = num(canvas.top + canvas.plot_height / 2)
        shown = fitted(title, canvas.plot_height)
        canvas.text(12, float(y), shown, "middle", extra=f' transform="rotate(-90 12 {y})"')


def _reference_lines(canvas: Canvas) -> None:
    """Draw dashed lines with their labels; a label that would touch the one before is left out."""
    picture = canvas.picture
    axis = picture.base if picture.lines_on_base else picture.value
    label_end = -math.inf
    for value, label in sorted(picture.lines):
        if axis.low <= value <= axis.high:
            draw_line = _upright_line if picture.is_horizontal or picture.lines_on_base else _level_line
            label_end = draw_line(canvas, axis, value, label, label_end)


def _upright_line(canvas: Canvas, axis: Axis, value: float, label: str, label_end: float) -> float:
    """Draw a line with its label on top. Return where the last label ends; `label_end` is where it ended before."""
    label = fitted(label, canvas.width * 0.7)
    x, width = canvas.across(axis, value), text_width(label)
    canvas.path(f"M{num(x)} {num(canvas.top)}v{num(canvas.plot_height)}", _DASHES)
    left = min(max(x - width / 2, 2), canvas.width - width - 2)
    if left < label_end + 6:
        return label_end
    canvas.text(left, canvas.top - 5, label)
    return left + width


def _level_line(canvas: Canvas, axis: Axis, value: float, label: str, label_y: float) -> float:
    """Draw a line, its label above it at the end with fewer marks. Return the last label's height, `label_y` before."""
    y = canvas.down(axis, value)
    canvas.path(f"M{num(canvas.left)} {num(y)}h{num(canvas.plot_width)}", _DASHES)
    if abs(y - label_y) < FONT_SIZE + 2:
        return label_y
    shown = fitted(label, canvas.plot_width)
    left, right, width = canvas.left + 4, canvas.left + canvas.plot_width, text_width(shown)
    if _marks_near(canvas, left, left + width, y - 8) < _marks_near(canvas, right - width, right, y - 8):
        canvas.text(left, y - 4, shown)
    else:
        canvas.text(right, y - 4, shown, "end")
    return y


def _marks_near(canvas: Canvas, left: float, right: float, y: float) -> int:
    """Count the points that a label of one line between two pixels at this height would cover."""
    points = (point for series in canvas.picture.series for point in zip(series.base, series.value, strict=True))
    pixels = (canvas.point(base, value) for base, value in points if base is not None and value is not None)
    return sum(left <= point_x <= right and abs(point_y - y) < FONT_SIZE for point_x, point_y in pixels)


def _legend(canvas: Canvas, *, draw_it: bool) -> float:
    """Draw (or only measure) the legend above the plot; return its height."""
    x, y = 4.0, 5.0
    for series in canvas.picture.series:
        name = fitted(series.name or "–", canvas.width * 0.6)
        width = 25 + text_width(name)
        if x > 4 and x + width > canvas.width:  # noqa: PLR2004  the first of a line always stays
            x, y = 4.0, y + _LEGEND_LINE_HEIGHT
        if draw_it:
            canvas.rect((x, y, 10, 10), fill(series.color))
            canvas.text(x + 14, y + 9, name, muted=False)
        x += width
    return y - 5 + _LEGEND_LINE_HEIGHT
