"""Chart → Plotly figure: the same picture as the SVG, to zoom and hover.

Text from traces is escaped before Plotly sees it (it reads pseudo-HTML in labels, and would even load pictures from
addresses in there) and never stands in a hover template. Numbers go as short plain lists: they pack far better than
Plotly's typed arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any

from htareport.render import names
from htareport.render.format import NNBSP
from htareport.render.palette import WORST, viridis
from htareport.render.picture import Axis, Picture, Series, picture
from htareport.render.svg_parts import FONTS, clean, fitted, text_width
from htareport.report import Chart, Mark, Unit

if TYPE_CHECKING:
    import plotly.graph_objects as go

_GRID = "rgba(128,136,144,.25)"
_CLEAR = "rgba(0,0,0,0)"
_SIZE = 12
_LABEL_SHARE = 0.42
_ROW, _LEAST, _MOST = 22, 270, 640
_MOST_LABELS = 12
_TITLE = 40
_LEGEND_WIDTH, _LEGEND_ENTRY, _LEGEND_LINE = 480, 42, 19
_MOST_ROW_LABELS = 40
Trace = dict[str, Any]


def figure(chart: Chart) -> go.Figure:
    """Return a chart as a figure that stands on its own: with title, white ground and axis units."""
    import plotly.graph_objects as go  # noqa: PLC0415  slow to import, and only needed here

    spec = figure_spec(picture(chart), 700)
    layout = spec["layout"] | {"title": {"text": safe(chart.title), "x": 0.01, "xanchor": "left", "y": 0.98, "yanchor": "top"}}
    layout["margin"] = layout["margin"] | {"t": layout["margin"]["t"] + _TITLE}
    layout |= {"paper_bgcolor": "#fff", "plot_bgcolor": "#fff", "height": layout["height"] + _TITLE}
    return go.Figure(data=spec["data"], layout=layout | {"template": {}})


def safe(text: str, longest: int = names.HOVER) -> str:
    """Return text from a trace so that Plotly shows it as it is, cut in the middle where it is very long."""
    return escape(clean(names.cut(text, longest)), quote=False)


def figure_spec(made: Picture, width: float = 500) -> dict[str, Any]:
    """Return a picture as Plotly's `data` and `layout`, plain JSON values, to be drawn about `width` pixels wide."""
    makers: dict[Mark, Callable[[Picture], list[Trace]]] = {
        Mark.BAR: _bars,
        Mark.STACKED_BAR: _stacks,
        Mark.RANGE: _ranges,
        Mark.BOX: _boxes,
        Mark.LINE: _lines,
        Mark.AREA: _areas,
        Mark.SCATTER: _points,
        Mark.HISTOGRAM: _histogram,
        Mark.HEATMAP: _heatmap,
        Mark.TIMELINE: _timeline,
    }
    return {"data": makers[made.chart.mark](made), "layout": _layout(made, width * _LABEL_SHARE)}


def _layout(made: Picture, room: float) -> dict[str, Any]:
    is_map = made.chart.mark is Mark.HEATMAP
    upright = made.value if is_map or not made.horizontal else made.base
    level = made.value if made.horizontal else made.base
    rows = len(upright.labels)
    per_row = _ROW * (1 + 0.4 * (len(made.series) - 1)) if made.chart.mark in {Mark.BOX, Mark.RANGE} else _ROW
    height = min(max(100 + per_row * rows, 150), _MOST) if rows and not is_map else 330 if is_map else _LEAST + 30
    return {
        "height": round(height),
        # Plotly's own widening would move the plot away from its legend.
        "margin": {"l": round(_left(upright, room)), "r": 64 if is_map else 16, "t": 12 + _above(made),
                   "b": 44 if level.title else 26, "autoexpand": False},
        "font": {"family": FONTS, "size": _SIZE},
        "modebar": {"bgcolor": _CLEAR, "color": "rgba(128,136,144,.6)", "activecolor": "rgba(128,136,144,1)"},
        "paper_bgcolor": _CLEAR,
        "plot_bgcolor": _CLEAR,
        "hovermode": "closest",
        "hoverlabel": {"align": "left", "namelength": -1},
        "showlegend": made.has_legend,
        "legend": {"orientation": "h", "xref": "container", "x": 0, "xanchor": "left", "y": 1.0, "yanchor": "bottom",
                   "traceorder": "normal", "font": {"size": 11}},
        "barmode": {Mark.STACKED_BAR: "relative"}.get(made.chart.mark, "overlay"),
        "boxmode": "group",
        "bargap": 0.24 if made.horizontal else 0.14,
        "xaxis": _axis(_with_room(made, level), 80),
        "yaxis": _axis(upright, room, upright=True, reverse=is_map or made.horizontal),
        **_reference_lines(made),
    }


def _with_room(made: Picture, axis: Axis) -> Axis:
    """Leave room at the right for the values that stand beside bars."""
    return replace(axis, high=axis.high * 1.12) if made.chart.mark is Mark.BAR and axis is made.value else axis


def _above(made: Picture) -> int:
    """Pixels above the plot that the legend and the labels of upright reference lines need."""
    lines = 16 if made.lines and (made.horizontal or made.lines_on_base) else 6 if made.lines else 0
    if not made.has_legend:
        return lines
    widths = [text_width(one.name, 11) + _LEGEND_ENTRY for one in made.series]
    columns = max(1, int(_LEGEND_WIDTH / max(widths)))
    rows = 1 if sum(widths) <= _LEGEND_WIDTH else math.ceil(len(widths) / columns)
    return lines + 4 + _LEGEND_LINE * rows


def _is_silent(axis: Axis) -> bool:
    """Whether an upright axis needs no title: names speak for themselves."""
    return not axis.title or (bool(axis.labels) and axis.unit.is_text)


def _left(axis: Axis, room: float) -> float:
    """Return the pixels that an upright axis's labels and title take."""
    longest = max((text_width(label, _SIZE) for _, label in axis.ticks()), default=0.0)
    return min(longest, room) + 12 + (0 if _is_silent(axis) else 22)


def _axis(axis: Axis, room: float, *, upright: bool = False, reverse: bool = False) -> dict[str, Any]:
    result: dict[str, Any] = {"gridcolor": _GRID, "zeroline": False, "showgrid": not axis.labels}
    if axis.title and not (upright and _is_silent(axis)):
        result["title"] = {"text": safe(axis.title), "standoff": 8}
    if axis.labels:
        every = max(1, math.ceil(len(axis.labels) / (_MOST_ROW_LABELS if upright else _MOST_LABELS)))
        shown = axis.ticks()[::every]
        texts = [safe(fitted(label, room, _SIZE), 80) for _, label in shown]
        ends = [axis.high, axis.low] if reverse else [axis.low, axis.high]
        return result | {"tickmode": "array", "tickvals": [place for place, _ in shown], "ticktext": texts,
                         "range": ends, "tickangle": 0}  # fmt: skip
    if axis.log:
        ticks = axis.ticks()
        return result | {"type": "log", "tickmode": "array", "tickvals": [place for place, _ in ticks],
                         "ticktext": [label for _, label in ticks], "tickangle": 0,
                         "range": [math.log10(axis.low), math.log10(axis.high)]}  # fmt: skip
    whole = axis.scale.factor == 1 and axis.unit in {Unit.ID, Unit.COUNT} and axis.high - axis.low < 8  # noqa: PLR2004
    steps = {"dtick": max(1, math.ceil((axis.high - axis.low) / 8))} if whole else {}
    separators = {"tickformat": ",.10~g" if axis.unit is not Unit.ID else "d"} if axis.unit in {Unit.ID, Unit.COUNT} else {}
    return result | {"range": [axis.low, axis.high], "nticks": 8, "tickangle": 0, **steps, **separators}


def _reference_lines(made: Picture) -> dict[str, Any]:
    shapes, notes = list[dict[str, Any]](), list[dict[str, Any]]()
    upright = made.horizontal or made.lines_on_base
    along, across = ("x", "y") if upright else ("y", "x")
    axis = made.base if made.lines_on_base else made.value
    for value, label in made.lines:
        place = math.log10(value) if axis.log and value > 0 else value
        shapes.append({"type": "line", f"{along}0": value, f"{along}1": value, f"{across}0": 0, f"{across}1": 1,
                       f"{across}ref": "paper", "line": {"dash": "dash", "color": WORST.light, "width": 1.2}})  # fmt: skip
        notes.append({"text": safe(label), "showarrow": False, along: place, across: 1, f"{across}ref": "paper",
                      "xanchor": "center" if upright else "right", "yanchor": "bottom"})  # fmt: skip
    return {"shapes": shapes, "annotations": notes} if shapes else {}


def _named(series: Series) -> Trace:
    return {"name": safe(series.name, 60), "legendgroup": safe(series.name, 60), "showlegend": bool(series.name)}


def _hover(series: Series) -> Trace:
    """Full label and value with unit, by way of customdata."""
    pairs = [[safe(label), shown] for label, shown in zip(series.label, series.shown, strict=True)]
    extra = "%{fullData.name}" if series.name else ""
    return {"customdata": pairs, "hovertemplate": f"%{{customdata[0]}}<br>%{{customdata[1]}}<extra>{extra}</extra>"}


def _xy(made: Picture, base: list[Any], value: list[Any]) -> Trace:
    return {"x": value, "y": base} if made.horizontal else {"x": base, "y": value}


def _bar_like(made: Picture, series: Series, **more: Any) -> Trace:
    way = {"orientation": "h"} if made.horizontal else {}
    return {"type": "bar", **_named(series), **_xy(made, series.base, series.value), **way, **_hover(series),
            "marker": {"color": series.color.light}, **more}  # fmt: skip


def _bars(made: Picture) -> list[Trace]:
    texts = len(made.base.labels) <= _MOST_ROW_LABELS
    return [
        _bar_like(made, one, **({"text": one.shown, "textposition": "outside", "cliponaxis": False} if texts else {}))
        for one in made.series
    ]


def _stacks(made: Picture) -> list[Trace]:
    few = len(made.base.labels) < 4  # noqa: PLR2004  a lone bar would fill the whole plot
    return [_bar_like(made, one, **({"width": 0.72} if few else {})) for one in made.series]


def _offset(made: Picture, k: int) -> float:
    count = len(made.series)
    return (k - (count - 1) / 2) * 0.8 / count


def _ranges(made: Picture) -> list[Trace]:
    traces = list[Trace]()
    for k, one in enumerate(made.series):
        base = [None if place is None else place + _offset(made, k) for place in one.base]
        low, high = one.extra.get("low", one.value), one.extra.get("high", one.value)
        reach = {
            "type": "data", "symmetric": False, "thickness": 1.4, "width": 4,
            "array": [_distance(value, end) for value, end in zip(one.value, high, strict=True)],
            "arrayminus": [_distance(end, value) for value, end in zip(one.value, low, strict=True)],
        }  # fmt: skip
        traces.append({"type": "scatter", "mode": "markers", **_named(one), **_xy(made, base, one.value), **_hover(one),
                       "marker": {"color": one.color.line, "size": 8}, "error_x": reach})  # fmt: skip
    return traces


def _distance(low: float | None, high: float | None) -> float:
    return 0.0 if low is None or high is None else float(f"{max(high - low, 0.0):.6g}")


def _boxes(made: Picture) -> list[Trace]:
    """Boxes from their quartiles; Plotly draws its own hover for them, with the numbers of the axis."""
    traces = list[Trace]()
    for k, one in enumerate(made.series):
        keep = [i for i, value in enumerate(one.value) if value is not None]
        part = one.reordered(keep)
        ends = {name: part.extra.get(name, part.value) for name in ("low", "q1", "q3", "high")}
        whole = {
            name: [a if a is not None else b for a, b in zip(column, part.value, strict=True)]
            for name, column in ends.items()
        }
        traces.append({
            "type": "box", "orientation": "h", **_named(one), "y": [(p or 0.0) + _offset(made, k) for p in part.base],
            "median": part.value, "q1": whole["q1"], "q3": whole["q3"], "lowerfence": whole["low"],
            "upperfence": whole["high"], "width": 0.6 / len(made.series),
            "line": {"color": one.color.line, "width": 1.4}, "hoverinfo": "x",
        })  # fmt: skip
    return traces


def _lines(made: Picture) -> list[Trace]:
    shape = {"shape": "hv"} if made.has_steps else {}
    traces = list[Trace]()
    for one in made.series:
        if "low" in one.extra and "high" in one.extra and any(value is not None for value in one.extra["low"]):
            edge = {"width": 0, **shape}
            quiet = {"type": "scatter", "mode": "lines", "x": one.base, "line": edge, "hoverinfo": "skip",
                     "showlegend": False, "legendgroup": safe(one.name, 60)}  # fmt: skip
            traces.append(quiet | {"y": one.extra["low"]})
            traces.append(quiet | {"y": one.extra["high"], "fill": "tonexty", "fillcolor": _faint(one.color.light)})
    for one in made.series:
        lone = sum(value is not None for value in one.value) == 1
        traces.append({"type": "scatter", "mode": "markers" if lone else "lines", **_named(one), "x": one.base,
                       "y": one.value, "line": {"color": one.color.line, "width": 2, **shape},
                       "marker": {"color": one.color.line}, **_template(made, one)})  # fmt: skip
    return traces


def _faint(color: str) -> str:
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},.2)"


def _template(made: Picture, series: Series) -> Trace:
    """Hover text of lines, where a text per point would be long: numbers in the axes' own units."""
    value, base = _number("y", made.value), _number("x", made.base)
    extra = "%{fullData.name}" if series.name else ""
    title = safe(made.base.title.split(" (")[0]).replace("%{", "")
    return {"hovertemplate": f"{title} {base}<br>{value}<extra>{extra}</extra>"}


def _number(name: str, axis: Axis) -> str:
    digits = ",.6~r" if axis.unit in {Unit.COUNT, Unit.ID} or axis.log else ",.4~r"
    unit = f"{NNBSP}{axis.scale.symbol}" if axis.scale.symbol else ""
    return f"%{{{name}:{digits}}}{unit}"


def _areas(made: Picture) -> list[Trace]:
    shape = {"shape": "hv"} if made.has_steps else {}
    return [
        {"type": "scatter", "mode": "lines", "stackgroup": "all", **_named(one), "x": one.base, "y": one.value,
         "line": {"width": 0, "color": one.color.light, **shape}, "fillcolor": one.color.light, **_template(made, one)}
        for one in made.series
    ]  # fmt: skip


def _points(made: Picture) -> list[Trace]:
    return [
        {"type": "scatter", "mode": "markers", **_named(one), "x": one.base, "y": one.value, **_hover(one),
         "cliponaxis": False,
         "marker": {"color": one.color.line, "size": 6, "opacity": 0.8}}
        for one in made.series
    ]  # fmt: skip


def _histogram(made: Picture) -> list[Trace]:
    """Bars of given edges. On a log axis Plotly takes a bar's centre and width in raw units."""
    traces = list[Trace]()
    for one in made.series:
        keep = [i for i, place in enumerate(one.base) if place is not None and one.extra["end"][i] is not None]
        part = one.reordered(keep)
        edges = [(a or 0.0, b or 0.0) for a, b in zip(part.base, part.extra["end"], strict=True)]
        traces.append({"type": "bar", **_named(one), **_hover(part), "y": part.value,
                       "x": [float(f"{(a + b) / 2:.9g}") for a, b in edges],
                       "width": [float(f"{(b - a) * 0.96:.6g}") for a, b in edges],
                       "marker": {"color": one.color.light, "opacity": 0.6 if len(made.series) > 1 else 1}})  # fmt: skip
    return traces


def _heatmap(made: Picture) -> list[Trace]:
    title = {"title": {"text": safe(made.color.title)}} if made.color.title else {}
    labels = [safe(label) for label in made.base.labels]
    rows = [safe(label) for label in made.value.labels]
    x, y = safe(made.base.title).replace("%{", ""), safe(made.value.title).replace("%{", "")
    unit = f"{NNBSP}{made.color.scale.symbol}" if made.color.scale.symbol else ""
    return [{
        "type": "heatmap", "z": [list(row) for row in made.cells],
        "customdata": [[[row, label] for label in labels] for row in rows] if len(rows) * len(labels) <= 4096 else None,  # noqa: PLR2004
        "colorscale": [[i / 9, viridis(i / 9)] for i in range(10)], "hoverongaps": False,
        "colorbar": {"thickness": 12, "outlinewidth": 0, **title},
        "hovertemplate": f"{y} %{{customdata[0]}}<br>{x} %{{customdata[1]}}<br>%{{z:,.4~r}}{unit}<extra></extra>"
        if len(rows) * len(labels) <= 4096 else f"%{{z:,.4~r}}{unit}<extra></extra>",  # noqa: PLR2004
    }]  # fmt: skip


def _timeline(made: Picture) -> list[Trace]:
    traces = list[Trace]()
    for one in made.series:
        lengths = [_distance(start, end) for start, end in zip(one.value, one.extra["end"], strict=True)]
        traces.append({"type": "bar", "orientation": "h", **_named(one), "base": one.value, "x": lengths,
                       "y": one.base, "width": 0.72, "marker": {"color": one.color.light}, **_hover(one)})  # fmt: skip
    return traces

