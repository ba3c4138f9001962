"""Draws a chart as a Plotly figure: the same picture as the SVG, to zoom and hover.

Text from traces is escaped before Plotly sees it (it reads pseudo-HTML in labels, and would even load pictures from
addresses in there) and never stands in a hover template. Numbers go as short plain lists: they pack far better than
Plotly's typed arrays.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from htareport.render.charts import plotly_marks
from htareport.render.charts.draw import picture_of
from htareport.render.charts.palette import WORST
from htareport.render.charts.picture import Axis, Picture
from htareport.render.charts.plotly_marks import MAX_ROW_LABELS, safe
from htareport.render.charts.svg_parts import FONTS, MAX_LABELS, fitted, text_width, thinned_labels
from htareport.report import Chart, Mark, Unit

if TYPE_CHECKING:
    import plotly.graph_objects as go

_GRID = "rgba(128,136,144,.25)"
_TRANSPARENT = "rgba(0,0,0,0)"
_FONT_SIZE = 12
_MAX_LABEL_SHARE = 0.42
_ROW_HEIGHT, _DEFAULT_HEIGHT, _HEATMAP_HEIGHT, _MAX_HEIGHT = 22, 300, 330, 640
_TITLE_HEIGHT = 44
_MAX_UNIT_TICKS = 8
_MIN_TEXT_SHARE, _TEXT_GAP = 0.13, 8


def figure(chart: Chart) -> go.Figure:
    """Return a chart as a figure that stands on its own: with title, white ground and axis units."""
    import plotly.graph_objects as go  # noqa: PLC0415  slow to import, and only needed here

    picture = picture_of(chart)
    spec = figure_spec(picture, 700)
    layout = spec["layout"] | {
        "template": {},
        "title": {"text": safe(chart.title), "x": 0.01, "xanchor": "left", "y": 0.98, "yanchor": "top"},
        "paper_bgcolor": "#fff",
        "plot_bgcolor": "#fff",
        "showlegend": picture.has_legend,
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
    }
    layout["margin"] = layout["margin"] | {"t": _TITLE_HEIGHT + 44 * picture.has_legend, "autoexpand": True}
    layout["height"] += layout["margin"]["t"]
    return go.Figure(data=spec["data"], layout=layout)


def figure_spec(picture: Picture, width: float = 500) -> dict[str, Any]:
    """Return a picture as Plotly's `data` and `layout`, plain JSON values, to be drawn about `width` pixels wide."""
    return {"data": plotly_marks.traces(picture), "layout": _layout(picture, width)}


def _layout(picture: Picture, width: float) -> dict[str, Any]:
    label_width = width * _MAX_LABEL_SHARE
    is_heatmap = picture.chart.mark is Mark.HEATMAP
    x_axis, y_axis = picture.x_axis, picture.y_axis
    plot_width = width - _left_margin(y_axis, label_width) - 16
    height = _plot_height(picture)
    return {
        "height": round(height),
        "margin": {
            "l": round(_left_margin(y_axis, label_width)),
            "r": 64 if is_heatmap else 16,
            "t": 20 if picture.lines else 12,
            "b": 48 if x_axis.title else 30,
            "autoexpand": False,
        },
        "font": {"family": FONTS, "size": _FONT_SIZE},
        "paper_bgcolor": _TRANSPARENT,
        "plot_bgcolor": _TRANSPARENT,
        "hovermode": "closest",
        "hoverlabel": {"align": "left", "namelength": -1},
        "showlegend": False,  # The page has its own, which wraps and can be reached by keyboard.
        "barmode": {Mark.STACKED_BAR: "relative", Mark.HISTOGRAM: "stack"}.get(picture.chart.mark, "overlay"),
        "boxmode": "group",
        "bargap": 0.24 if picture.is_horizontal else 0.14,
        "xaxis": _axis(_extended_for_texts(picture, x_axis, plot_width), 80, plot_width),
        "yaxis": _axis(y_axis, label_width, height - 60, is_upright=True),
        **_reference_lines(picture),
    }


def _plot_height(picture: Picture) -> float:
    num_rows = len(picture.y_axis.labels)
    if picture.chart.mark is Mark.HEATMAP:
        return _HEATMAP_HEIGHT
    if not num_rows:
        return _DEFAULT_HEIGHT
    lanes = len(set(picture.lanes)) if picture.chart.mark in {Mark.BOX, Mark.RANGE} else 0
    return min(max(100 + _ROW_HEIGHT * max(1.0, 0.6 * lanes) * num_rows, 150), _MAX_HEIGHT)


def _extended_for_texts(picture: Picture, axis: Axis, length: float) -> Axis:
    """Return the axis with space for the values that are written at the ends of bars, on the left where these go."""
    if picture.chart.mark is not Mark.BAR or axis is not picture.value:
        return axis
    is_negative = axis.low < 0
    texts = (text for series in picture.series for text in series.shown)
    widest = max((text_width(text, _FONT_SIZE) for text in texts), default=0.0) + _TEXT_GAP
    share = max(_MIN_TEXT_SHARE, widest / max(length - widest * (1 + is_negative), widest))
    text_length = share * (1 + is_negative) * (axis.high - axis.low)
    return replace(axis, low=axis.low - text_length * is_negative, high=axis.high + text_length)


def _has_no_title(axis: Axis) -> bool:
    """Whether an upright axis needs no title: names speak for themselves."""
    return not axis.title or (bool(axis.labels) and axis.unit.is_text)


def _left_margin(axis: Axis, label_width: float) -> float:
    """Return the pixels that an upright axis's labels and title take."""
    max_width = max((text_width(label, _FONT_SIZE) for _, label in axis.ticks()), default=0.0)
    return min(max_width, label_width) + 16 + (0 if _has_no_title(axis) else 22)


def _axis(axis: Axis, label_width: float, length: float, *, is_upright: bool = False) -> dict[str, Any]:
    """Return an axis; upright categories have the first on top."""
    layout: dict[str, Any] = {"gridcolor": _GRID, "zeroline": False, "showgrid": not axis.labels,
                              "ticklabelstandoff": 5}  # fmt: skip
    if axis.title and not (is_upright and _has_no_title(axis)):
        title = safe(fitted(axis.title, length, _FONT_SIZE))
        layout["title"] = {"text": title, "standoff": 8, "font": {"size": _FONT_SIZE}}
    if axis.labels:
        max_labels = MAX_ROW_LABELS if is_upright else MAX_LABELS
        labels = thinned_labels(axis.ticks(), length / len(axis.labels), max_labels, across=not is_upright)
        texts = [safe(fitted(label, label_width, _FONT_SIZE), 80) for _, label in labels]
        axis_range = [axis.high, axis.low] if is_upright else [axis.low, axis.high]
        return layout | {"tickmode": "array", "tickvals": [position for position, _ in labels], "ticktext": texts,
                         "range": axis_range, "tickangle": 0}  # fmt: skip
    if axis.is_log:
        ticks = axis.ticks()
        layout |= {"type": "log", "range": [math.log10(axis.low), math.log10(axis.high)], "tickangle": 0}
        return layout | {"tickmode": "array", "tickvals": [position for position, _ in ticks],
                         "ticktext": [label for _, label in ticks]}  # fmt: skip
    layout |= {"range": [axis.low, axis.high], "nticks": 8, "tickangle": 0}
    is_integral = (axis.unit.is_id or axis.unit is Unit.COUNT) and axis.scale.factor == 1
    if is_integral and axis.high - axis.low < _MAX_UNIT_TICKS:
        layout["dtick"] = 1  # No ticks between whole numbers.
    return layout | {"tickformat": "d" if axis.unit.is_id else ",.10~g"}


def _reference_lines(picture: Picture) -> dict[str, Any]:
    shapes, notes = list[dict[str, Any]](), list[dict[str, Any]]()
    is_upright = picture.is_horizontal or picture.lines_on_base
    along, across = ("x", "y") if is_upright else ("y", "x")
    axis = picture.base if picture.lines_on_base else picture.value
    for value, label in picture.lines:
        position = math.log10(value) if axis.is_log and value > 0 else value
        shape = {f"{along}0": value, f"{along}1": value, f"{across}0": 0, f"{across}1": 1, f"{across}ref": "paper"}
        shapes.append({"type": "line", **shape, "line": {"dash": "dash", "color": WORST.light, "width": 1.2}})
        anchor = {"xanchor": "center" if is_upright else "right", "yanchor": "bottom"}
        notes.append(
            {"text": safe(label), "showarrow": False, along: position, across: 1, f"{across}ref": "paper", **anchor}
        )
    return {"shapes": shapes, "annotations": notes} if shapes else {}
