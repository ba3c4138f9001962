"""Chart → Plotly figure: the same picture as the SVG, to zoom and hover.

Text from traces is escaped before Plotly sees it (it reads pseudo-HTML in labels, and would even load pictures from
addresses in there) and never stands in a hover template. Numbers go as short plain lists: they pack far better than
Plotly's typed arrays.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from htareport.render.charts import plotly_marks
from htareport.render.charts.draw import picture
from htareport.render.charts.palette import WORST
from htareport.render.charts.picture import Axis, Picture
from htareport.render.charts.plotly_marks import MOST_ROW_LABELS, safe
from htareport.render.charts.svg_parts import FONTS, MOST_LABELS, fitted, text_width, thinned_labels
from htareport.report import Chart, Mark, Unit

if TYPE_CHECKING:
    import plotly.graph_objects as go

_GRID = "rgba(128,136,144,.25)"
_CLEAR = "rgba(0,0,0,0)"
_SIZE = 12
_LABEL_SHARE = 0.42
_ROW, _LEAST, _MOST = 22, 270, 640
_TITLE = 44
_FEW_WHOLE = 8
_TEXT_ROOM, _TEXT_GAP = 0.13, 8


def figure(chart: Chart) -> go.Figure:
    """Return a chart as a figure that stands on its own: with title, white ground and axis units."""
    import plotly.graph_objects as go  # noqa: PLC0415  slow to import, and only needed here

    made = picture(chart)
    spec = figure_spec(made, 700)
    layout = spec["layout"] | {
        "template": {},
        "title": {"text": safe(chart.title), "x": 0.01, "xanchor": "left", "y": 0.98, "yanchor": "top"},
        "paper_bgcolor": "#fff",
        "plot_bgcolor": "#fff",
        "showlegend": made.has_legend,
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
    }
    layout["margin"] = layout["margin"] | {"t": _TITLE + 44 * made.has_legend, "autoexpand": True}
    layout["height"] += layout["margin"]["t"]
    return go.Figure(data=spec["data"], layout=layout)


def figure_spec(made: Picture, width: float = 500) -> dict[str, Any]:
    """Return a picture as Plotly's `data` and `layout`, plain JSON values, to be drawn about `width` pixels wide."""
    return {"data": plotly_marks.traces(made), "layout": _layout(made, width)}


def _layout(made: Picture, width: float) -> dict[str, Any]:
    room = width * _LABEL_SHARE
    is_map = made.chart.mark is Mark.HEATMAP
    upright = made.value if is_map or not made.horizontal else made.base
    level = made.value if made.horizontal else made.base
    rows = len(upright.labels)
    per_row = _ROW * max(1.0, 0.6 * len(set(made.lanes))) if made.chart.mark in {Mark.BOX, Mark.RANGE} else _ROW
    height = min(max(100 + per_row * rows, 150), _MOST) if rows and not is_map else 330 if is_map else _LEAST + 30
    return {
        "height": round(height),
        "margin": {
            "l": round(_left(upright, room)),
            "r": 64 if is_map else 16,
            "t": 20 if made.lines else 12,
            "b": 48 if level.title else 30,
            "autoexpand": False,
        },
        "font": {"family": FONTS, "size": _SIZE},
        "paper_bgcolor": _CLEAR,
        "plot_bgcolor": _CLEAR,
        "hovermode": "closest",
        "hoverlabel": {"align": "left", "namelength": -1},
        "showlegend": False,  # The page has its own, which wraps and can be reached by keyboard.
        "barmode": {Mark.STACKED_BAR: "relative", Mark.HISTOGRAM: "stack"}.get(made.chart.mark, "overlay"),
        "boxmode": "group",
        "bargap": 0.24 if made.horizontal else 0.14,
        "xaxis": _axis(_with_room(made, level, length := width - _left(upright, room) - 16), 80, length),
        "yaxis": _axis(upright, room, height - 60, upright=True, reverse=is_map or made.horizontal),
        **_reference_lines(made),
    }


def _with_room(made: Picture, axis: Axis, length: float) -> Axis:
    """Leave room for the values that stand beside bars: at the right, and left of those that go there."""
    if made.chart.mark is not Mark.BAR or axis is not made.value:
        return axis
    to_the_left = axis.low < 0
    widest = max((text_width(text, _SIZE) for one in made.series for text in one.shown), default=0.0) + _TEXT_GAP
    share = max(_TEXT_ROOM, widest / max(length - widest * (1 + to_the_left), widest))
    room = share * (1 + to_the_left) * (axis.high - axis.low)
    return replace(axis, low=axis.low - room * to_the_left, high=axis.high + room)


def _is_silent(axis: Axis) -> bool:
    """Whether an upright axis needs no title: names speak for themselves."""
    return not axis.title or (bool(axis.labels) and axis.unit.is_text)


def _left(axis: Axis, room: float) -> float:
    """Return the pixels that an upright axis's labels and title take."""
    longest = max((text_width(label, _SIZE) for _, label in axis.ticks()), default=0.0)
    return min(longest, room) + 16 + (0 if _is_silent(axis) else 22)


def _axis(axis: Axis, room: float, length: float, *, upright: bool = False, reverse: bool = False) -> dict[str, Any]:
    result: dict[str, Any] = {"gridcolor": _GRID, "zeroline": False, "showgrid": not axis.labels,
                              "ticklabelstandoff": 5}  # fmt: skip
    if axis.title and not (upright and _is_silent(axis)):
        result["title"] = {"text": safe(fitted(axis.title, length, _SIZE)), "standoff": 8, "font": {"size": _SIZE}}
    if axis.labels:
        shown = thinned_labels(
            axis.ticks(), length / len(axis.labels), MOST_ROW_LABELS if upright else MOST_LABELS, across=not upright
        )
        texts = [safe(fitted(label, room, _SIZE), 80) for _, label in shown]
        ends = [axis.high, axis.low] if reverse else [axis.low, axis.high]
        return result | {"tickmode": "array", "tickvals": [place for place, _ in shown], "ticktext": texts,
                         "range": ends, "tickangle": 0}  # fmt: skip
    if axis.log:
        ticks = axis.ticks()
        result |= {"type": "log", "range": [math.log10(axis.low), math.log10(axis.high)], "tickangle": 0}
        return result | {"tickmode": "array", "tickvals": [place for place, _ in ticks],
                         "ticktext": [label for _, label in ticks]}  # fmt: skip
    result |= {"range": [axis.low, axis.high], "nticks": 8, "tickangle": 0}
    if (axis.unit.is_id or axis.unit is Unit.COUNT) and axis.scale.factor == 1 and axis.high - axis.low < _FEW_WHOLE:
        result["dtick"] = 1  # No ticks between whole numbers.
    return result | {"tickformat": "d" if axis.unit.is_id else ",.10~g"}


def _reference_lines(made: Picture) -> dict[str, Any]:
    shapes, notes = list[dict[str, Any]](), list[dict[str, Any]]()
    upright = made.horizontal or made.lines_on_base
    along, across = ("x", "y") if upright else ("y", "x")
    axis = made.base if made.lines_on_base else made.value
    for value, label in made.lines:
        place = math.log10(value) if axis.log and value > 0 else value
        shape = {f"{along}0": value, f"{along}1": value, f"{across}0": 0, f"{across}1": 1, f"{across}ref": "paper"}
        shapes.append({"type": "line", **shape, "line": {"dash": "dash", "color": WORST.light, "width": 1.2}})
        anchor = {"xanchor": "center" if upright else "right", "yanchor": "bottom"}
        notes.append(
            {"text": safe(label), "showarrow": False, along: place, across: 1, f"{across}ref": "paper", **anchor}
        )
    return {"shapes": shapes, "annotations": notes} if shapes else {}
