"""Chart → static SVG. It shows in browsers without scripts, in print, in PDF and in mail."""

from __future__ import annotations

import math
from html import escape

from htareport.render.charts import svg_marks
from htareport.render.charts.draw import picture
from htareport.render.charts.palette import WORST
from htareport.render.charts.picture import Axis, Picture
from htareport.render.charts.svg_parts import (
    FONT_SIZE,
    FONTS,
    GRID,
    MOST_LABELS,
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
_ROW, _MOST_HEIGHT = 22.0, 640.0
_LEGEND_LINE = 18.0
_FEW_ROWS = 4
_LONGEST_DESCRIPTION = 600
_LEFT_SHARE = 0.42  # Category names may take so much of the width.


def svg(chart: Chart, width: float = WIDTH, *, xmlns: bool = True) -> str:
    """Return a chart as an SVG element, `width` pixels wide; its height follows from what it shows.

    Any frame gives a picture. `xmlns` may be left out where the SVG stands inside HTML.
    """
    return draw(picture(chart), width, xmlns=xmlns)


def draw(made: Picture, width: float = WIDTH, *, xmlns: bool = True, captioned: bool = False) -> str:
    """Return a picture as an SVG element; `captioned` says that its caption stands beside it."""
    canvas = _canvas(made, width)
    if made.num_marks:
        if made.chart.mark is Mark.HEATMAP:
            _row_labels(canvas)
            svg_marks.draw(canvas)
            svg_marks.color_bar(canvas)
        else:
            _grid(canvas)
            svg_marks.draw(canvas)
            _reference_lines(canvas)
        _bottom_axis(canvas)
        _titles(canvas)
        if made.has_legend:
            _legend(canvas, draw_it=True)
    else:
        canvas.text(width / 2, canvas.height / 2, "No data", "middle")
    return _element(canvas, xmlns=xmlns, captioned=captioned)


def _element(canvas: Canvas, *, xmlns: bool, captioned: bool) -> str:
    chart, size = canvas.picture.chart, f"{num(canvas.width)} {num(canvas.height)}"
    told = cut(description(canvas.picture, captioned=captioned), _LONGEST_DESCRIPTION)
    space = ' xmlns="http://www.w3.org/2000/svg"' if xmlns else ""
    return (
        f'<svg{space} viewBox="0 0 {size}" width="{num(canvas.width)}" height="{num(canvas.height)}" role="img" '
        f'font-family="{FONTS}" font-size="{FONT_SIZE}"><title>{escape(clean(chart.title))}</title>'
        f"<desc>{escape(clean(told))}</desc>{canvas.markup()}</svg>"
    )


def description(made: Picture, *, captioned: bool = False) -> str:
    """Return one or two sentences for those who cannot see the picture: its caption, axes and series."""
    chart = made.chart
    kind = chart.mark.replace("_", " ")
    series = ", ".join(one.name for one in made.series if one.name)
    axes = f"{made.value.title} by {made.base.title}".strip() if made.value.title and made.base.title else chart.title
    listed = f" Series: {series}." if series else ""
    return f"{'' if captioned else chart.caption} {kind.capitalize()} chart of {axes}.{listed}".strip()


def _canvas(made: Picture, width: float) -> Canvas:
    """Choose height and margins so that everything fits."""
    is_map = made.chart.mark is Mark.HEATMAP
    canvas = Canvas(made, width, _HEIGHT, left=10, right=14, top=10, bottom=40)
    vertical = made.value if is_map or not made.horizontal else made.base
    if vertical.labels:
        longest = max(text_width(label) for label in vertical.labels)
        canvas.left = min(longest + 10, width * _LEFT_SHARE)
    else:
        canvas.left = max(text_width(label) for _, label in vertical.ticks()) + 10
    canvas.left += 16 if _left_title(made) else 0
    horizontal = made.value if made.horizontal else made.base
    canvas.bottom = 40 if horizontal.title else 24
    if made.has_legend:
        canvas.top += _legend(canvas, draw_it=False)
    if is_map:
        canvas.top += 12
        ticks = made.color.ticks()
        labels = [label for _, label in ticks] + [made.color_text(made.color.low)]
        canvas.right = max(20 + text_width(made.color.title), 37 + max(map(text_width, labels)))
    elif made.chart.mark is Mark.BAR and len(made.base.labels) <= svg_marks.LABELLED_ROWS:
        canvas.right = 10 + max((text_width(s) for one in made.series for s in one.shown), default=0)
    if made.lines and (made.horizontal or made.lines_on_base):
        canvas.top += 14
    canvas.height = _height(canvas)
    return canvas


def _height(canvas: Canvas) -> float:
    height = canvas.picture
    margins = canvas.top + canvas.bottom
    if height.chart.mark is Mark.HEATMAP:
        rows = len(height.value.labels)
        return min(max(margins + rows * 18.0, 160.0), _HEATMAP_HEIGHT)
    if not height.horizontal:
        return _HEIGHT
    per_row = _ROW
    if height.chart.mark in {Mark.BOX, Mark.RANGE}:
        per_row *= max(1.0, 0.6 * len(set(height.lanes)))
    elif height.chart.mark is Mark.TIMELINE or len(height.base.labels) < _FEW_ROWS:
        per_row *= 1.4
    return min(max(margins + per_row * len(height.base.labels), margins + 40), _MOST_HEIGHT)


def _left_title(made: Picture) -> str:
    """The vertical axis's title; names of kernels and the like speak for themselves."""
    axis = made.value if made.chart.mark is Mark.HEATMAP or not made.horizontal else made.base
    return "" if axis.labels and axis.unit.is_text else axis.title


def _grid(canvas: Canvas) -> None:
    """Grid lines across the value axis, and the labels at the left."""
    made = canvas.picture
    if made.horizontal:
        places = [num(canvas.across(made.value, place)) for place, _ in _bottom_ticks(canvas)]
        lines = [f"M{x} {num(canvas.top)}v{num(canvas.plot_height)}" for x in places]
        canvas.path("".join(lines), f'stroke="{GRID}" class="grid"')
        _row_labels(canvas)
        return
    ticks = [(canvas.down(made.value, place), label) for place, label in made.value.ticks()]
    lines = [f"M{num(canvas.left)} {num(y)}h{num(canvas.plot_width)}" for y, _ in ticks]
    canvas.path("".join(lines), f'stroke="{GRID}" class="grid"')
    for y, label in ticks:
        canvas.text(canvas.left - 6, y + 4, label, "end")


def _row_labels(canvas: Canvas) -> None:
    """Categories at the left, as many as fit."""
    made = canvas.picture
    axis = made.value if made.chart.mark is Mark.HEATMAP else made.base
    room = canvas.left - 10 - (16 if _left_title(made) else 0)
    slot = canvas.plot_height / max(len(axis.labels), 1)
    for place, label in thinned_labels(axis.ticks(), slot, 10**6, across=False):
        canvas.text(canvas.left - 6, canvas.down(axis, place) + 4, fitted(label, room), "end")


def _bottom_ticks(canvas: Canvas) -> list[tuple[float, str]]:
    """Ticks of the horizontal axis, no more than fit."""
    made = canvas.picture
    axis = made.value if made.horizontal else made.base
    if axis.labels:
        return thinned_labels(axis.ticks(), canvas.plot_width / len(axis.labels), MOST_LABELS, across=True)
    for count in (8, 6, 5, 4, 3, 2):
        ticks = axis.ticks(count)
        widest = max((text_width(label) for _, label in ticks), default=0)
        if len(ticks) <= MOST_LABELS and (widest + 12) * len(ticks) <= canvas.plot_width:
            return ticks
    return axis.ticks(1)[:1]


def _bottom_axis(canvas: Canvas) -> None:
    made = canvas.picture
    axis = made.value if made.horizontal else made.base
    bottom = canvas.top + canvas.plot_height
    canvas.path(f"M{num(canvas.left)} {num(bottom)}h{num(canvas.plot_width)}", f'stroke="{GRID}" class="grid"')
    for place, label in _bottom_ticks(canvas):
        x = canvas.across(axis, place)
        half = text_width(label) / 2
        if not canvas.left - 1 <= x <= canvas.left + canvas.plot_width + 1:
            continue
        # Clear of the zero at the left.
        least = half if made.horizontal or made.value.labels else canvas.left - 2 + half
        canvas.text(min(max(x, least), canvas.width - half), bottom + 16, label, "middle")


def _titles(canvas: Canvas) -> None:
    made = canvas.picture
    axis = made.value if made.horizontal else made.base
    if axis.title:
        middle = canvas.left + canvas.plot_width / 2
        canvas.text(middle, canvas.height - 6, fitted(axis.title, canvas.plot_width), "middle")
    if title := _left_title(made):
        y = num(canvas.top + canvas.plot_height / 2)
        shown = fitted(title, canvas.plot_height)
        canvas.text(12, float(y), shown, "middle", extra=f' transform="rotate(-90 12 {y})"')


def _reference_lines(canvas: Canvas) -> None:
    """Dashed lines with their labels, none where they would touch."""
    made = canvas.picture
    axis = made.base if made.lines_on_base else made.value
    taken = -math.inf
    for value, label in sorted(made.lines):
        if axis.low <= value <= axis.high:
            draw_line = _upright_line if made.horizontal or made.lines_on_base else _level_line
            taken = draw_line(canvas, axis, value, label, taken)


def _upright_line(canvas: Canvas, axis: Axis, value: float, label: str, taken: float) -> float:
    """Draw a line with its label on top; `taken` is where the last label ended, as is the result."""
    label = fitted(label, canvas.width * 0.7)
    x, width = canvas.across(axis, value), text_width(label)
    canvas.path(f"M{num(x)} {num(canvas.top)}v{num(canvas.plot_height)}", _dashes())
    left = min(max(x - width / 2, 2), canvas.width - width - 2)
    if left < taken + 6:
        return taken
    canvas.text(left, canvas.top - 5, label)
    return left + width


def _level_line(canvas: Canvas, axis: Axis, value: float, label: str, taken: float) -> float:
    """Draw a line with its label above, at the end with fewer marks; `taken` is the last label's height."""
    y = canvas.down(axis, value)
    canvas.path(f"M{num(canvas.left)} {num(y)}h{num(canvas.plot_width)}", _dashes())
    if abs(y - taken) < FONT_SIZE + 2:
        return taken
    shown = fitted(label, canvas.plot_width)
    left, right, width = canvas.left + 4, canvas.left + canvas.plot_width, text_width(shown)
    if _marks_near(canvas, left, left + width, y - 8) < _marks_near(canvas, right - width, right, y - 8):
        canvas.text(left, y - 4, shown)
    else:
        canvas.text(right, y - 4, shown, "end")
    return y


def _marks_near(canvas: Canvas, left: float, right: float, y: float) -> int:
    """Count the points that a label of one line between two pixels at this height would cover."""
    pairs = (pair for one in canvas.picture.series for pair in zip(one.base, one.value, strict=True))
    places = (canvas.point(base, value) for base, value in pairs if base is not None and value is not None)
    return sum(left <= x <= right and abs(place - y) < FONT_SIZE for x, place in places)


def _dashes() -> str:
    return f'{stroke(WORST, 1.2)} stroke-dasharray="5 3"'


def _legend(canvas: Canvas, *, draw_it: bool) -> float:
    """Draw (or only measure) the legend above the plot; return its height."""
    x, y = 4.0, 5.0
    for series in canvas.picture.series:
        name = fitted(series.name or "–", canvas.width * 0.6)
        width = 25 + text_width(name)
        if x > 4 and x + width > canvas.width:  # noqa: PLR2004  the first of a line always stays
            x, y = 4.0, y + _LEGEND_LINE
        if draw_it:
            canvas.rect((x, y, 10, 10), fill(series.color))
            canvas.text(x + 14, y + 9, name, muted=False)
        x += width
    return y - 5 + _LEGEND_LINE
