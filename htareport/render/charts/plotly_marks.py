"""How each mark becomes Plotly's traces."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

from htareport.render import kernel_names
from htareport.render.charts.palette import viridis
from htareport.render.charts.picture import Axis, Picture, Series
from htareport.render.charts.svg_parts import clean
from htareport.render.charts.ticks import NNBSP
from htareport.report import Mark, Unit

MOST_ROW_LABELS = 40
_WIDTH = 0.74
_MOST_NAMED = 4096  # Cells of a heatmap that say in full what they are.
Trace = dict[str, Any]


def traces(made: Picture) -> list[Trace]:
    """Return a picture's marks as traces, plain JSON values."""
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
    return makers[made.chart.mark](made)


def safe(text: str, longest: int = kernel_names.HOVER) -> str:
    """Return text from a trace so that Plotly shows it as it is, cut in the middle where it is very long."""
    return escape(clean(kernel_names.cut(text, longest)), quote=False)


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
    texts = len(made.base.labels) <= MOST_ROW_LABELS
    written: list[Trace] = [{"text": one.shown, "textposition": "outside", "cliponaxis": False} if texts else {}
               for one in made.series]  # fmt: skip
    bars = zip(made.series, written, strict=True)  # The width is said, else a series of one bar has it by itself.
    return [_bar_like(made, one, width=_WIDTH, **more, **_floating(one)) for one, more in bars]


def _floating(series: Series) -> Trace:
    """Where bars start that do not start at zero; their value is then their length."""
    if "low" not in series.extra:
        return {}
    pairs = zip(series.extra["low"], series.value, strict=True)
    return {"base": series.extra["low"], "x": [(value or 0.0) - (low or 0.0) for low, value in pairs]}


def _stacks(made: Picture) -> list[Trace]:
    few = len(made.base.labels) < 4  # noqa: PLR2004  a lone bar would fill the whole plot
    return [_bar_like(made, one, **({"width": 0.72} if few else {})) for one in made.series]


def _ranges(made: Picture) -> list[Trace]:
    result = list[Trace]()
    for shift, one in zip(made.lanes, made.series, strict=True):
        base = [None if place is None else place + shift for place in one.base]
        low, high = one.extra.get("low", one.value), one.extra.get("high", one.value)
        reach = {
            "type": "data", "symmetric": False, "thickness": 1.4, "width": 4,
            "array": [_distance(value, end) for value, end in zip(one.value, high, strict=True)],
            "arrayminus": [_distance(end, value) for value, end in zip(one.value, low, strict=True)],
        }  # fmt: skip
        result.append({"type": "scatter", "mode": "markers", **_named(one), **_xy(made, base, one.value), **_hover(one),
                       "marker": {"color": one.color.line, "size": 8}, "error_x": reach})  # fmt: skip
    return result


def _distance(low: float | None, high: float | None) -> float:
    return 0.0 if low is None or high is None else float(f"{max(high - low, 0.0):.6g}")


def _boxes(made: Picture) -> list[Trace]:
    """Boxes from their quartiles; Plotly draws its own hover for them, with the numbers of the axis."""
    result = list[Trace]()
    for shift, one in zip(made.lanes, made.series, strict=True):
        keep = [i for i, value in enumerate(one.value) if value is not None]
        part = one.reordered(keep)
        ends = {name: part.extra.get(name, part.value) for name in ("low", "q1", "q3", "high")}
        whole = {
            name: [a if a is not None else b for a, b in zip(column, part.value, strict=True)]
            for name, column in ends.items()
        }
        result.append({
            "type": "box", "orientation": "h", **_named(one), "y": [(p or 0.0) + shift for p in part.base],
            "median": part.value, "q1": whole["q1"], "q3": whole["q3"], "lowerfence": whole["low"],
            "upperfence": whole["high"], "width": 0.6 / max(len(set(made.lanes)), 1),
            "line": {"color": one.color.line, "width": 1.4}, "hoverinfo": "x",
        })  # fmt: skip
    return result


def _lines(made: Picture) -> list[Trace]:
    shape = {"shape": "hv"} if made.has_steps else {}
    result = list[Trace]()
    for one in made.series:
        if "low" in one.extra and "high" in one.extra and any(value is not None for value in one.extra["low"]):
            edge = {"width": 0, **shape}
            quiet = {"type": "scatter", "mode": "lines", "x": one.base, "line": edge, "hoverinfo": "skip",
                     "showlegend": False, "legendgroup": safe(one.name, 60)}  # fmt: skip
            result.append(quiet | {"y": one.extra["low"]})
            result.append(quiet | {"y": one.extra["high"], "fill": "tonexty", "fillcolor": _faint(one.color.light)})
    for one in made.series:
        lone = sum(value is not None for value in one.value) == 1
        result.append({"type": "scatter", "mode": "markers" if lone else "lines", **_named(one), "x": one.base,
                       "y": one.value, "line": {"color": one.color.line, "width": 2, **shape},
                       "marker": {"color": one.color.line}, **_template(made, one)})  # fmt: skip
    return result


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
    digits = ",.6~r" if axis.unit.is_id or axis.unit is Unit.COUNT or axis.log else ",.4~r"
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
    result = list[Trace]()
    for one in made.series:
        keep = [i for i, place in enumerate(one.base) if place is not None and one.extra["end"][i] is not None]
        part = one.reordered(keep)
        edges = [(a or 0.0, b or 0.0) for a, b in zip(part.base, part.extra["end"], strict=True)]
        result.append({
            "type": "bar", **_named(one), **_hover(part), "y": part.value,
            "x": [float(f"{(a + b) / 2:.9g}") for a, b in edges],
            "width": [float(f"{max(b - a, 0.0) * 0.96:.6g}") for a, b in edges],
            "marker": {"color": one.color.light},
        })  # fmt: skip
    return result


def _heatmap(made: Picture) -> list[Trace]:
    rows, columns = ([safe(label) for label in axis.labels] for axis in (made.value, made.base))
    x, y = (safe(axis.title).replace("%{", "") for axis in (made.base, made.value))
    cell = f"%{{z:,.4~r}}{NNBSP}{made.color.scale.symbol}" if made.color.scale.symbol else "%{z:,.4~r}"
    trace: Trace = {
        "type": "heatmap",
        "z": [list(row) for row in made.cells],
        "colorscale": [[i / 9, viridis(i / 9)] for i in range(10)],
        "hoverongaps": False,
        "colorbar": {"thickness": 12, "outlinewidth": 0, "title": {"text": safe(made.color.title)}},
        "hovertemplate": f"{cell}<extra></extra>",
    }
    if len(rows) * len(columns) <= _MOST_NAMED:
        trace["customdata"] = [[[row, column] for column in columns] for row in rows]
        where = f"{y} %{{customdata[0]}}<br>{x} %{{customdata[1]}}"
        trace["hovertemplate"] = f"{where}<br>{trace['hovertemplate']}"
    return [trace]


def _timeline(made: Picture) -> list[Trace]:
    result = list[Trace]()
    for one in made.series:
        lengths = [_distance(start, end) for start, end in zip(one.value, one.extra["end"], strict=True)]
        result.append({"type": "bar", "orientation": "h", **_named(one), "base": one.value, "x": lengths,
                       "y": one.base, "width": 0.72, "marker": {"color": one.color.light}, **_hover(one)})  # fmt: skip
    return result
