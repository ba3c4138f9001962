"""Turns the marks of a chart into Plotly traces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from html import escape
from typing import Any

from htareport.render import kernel_names
from htareport.render.charts.palette import viridis
from htareport.render.charts.picture import Axis, Numbers, Picture, Series
from htareport.render.charts.svg_parts import clean
from htareport.render.charts.ticks import NNBSP
from htareport.report import Mark, Unit

MAX_ROW_LABELS = 40
_BAR_WIDTH = 0.74
_MAX_NAMED_CELLS = 4096  # Cells of a heatmap with their row and column in the hover text.
Trace = dict[str, Any]


def traces(picture: Picture) -> list[Trace]:
    """Return a picture's marks as traces, plain JSON values."""
    traces_by_mark: dict[Mark, Callable[[Picture], Iterable[Trace]]] = {
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
    return list(traces_by_mark[picture.chart.mark](picture))


def safe(text: str, max_length: int = kernel_names.MAX_HOVER) -> str:
    """Return text from a trace so that Plotly shows it as it is, cut in the middle where it is very long."""
    return escape(clean(kernel_names.cut(text, max_length)), quote=False)


def _named(series: Series) -> Trace:
    return {"name": safe(series.name, 60), "legendgroup": safe(series.name, 60), "showlegend": bool(series.name)}


def _hover(series: Series) -> Trace:
    """Return hover text with full label and value with unit, by way of customdata."""
    texts = [[safe(label), shown] for label, shown in zip(series.label, series.shown, strict=True)]
    return {"customdata": texts, "hovertemplate": _hover_template("%{customdata[0]}<br>%{customdata[1]}", series)}


def _hover_template(text: str, series: Series) -> str:
    return f"{text}<extra>{'%{fullData.name}' if series.name else ''}</extra>"


def _xy(picture: Picture, base: list[Any], value: list[Any]) -> Trace:
    return {"x": value, "y": base} if picture.is_horizontal else {"x": base, "y": value}


def _bar(picture: Picture, series: Series, **attributes: Any) -> Trace:
    orientation = {"orientation": "h"} if picture.is_horizontal else {}
    return {"type": "bar", **_named(series), **_xy(picture, series.base, series.value), **orientation, **_hover(series),
            "marker": {"color": series.color.light}, **attributes}  # fmt: skip


def _bars(picture: Picture) -> Iterator[Trace]:
    has_texts = len(picture.base.labels) <= MAX_ROW_LABELS
    for series in picture.series:
        texts = {"text": series.shown, "textposition": "outside", "cliponaxis": False} if has_texts else {}
        # Without a width, a series of one bar would have its own.
        yield _bar(picture, series, width=_BAR_WIDTH, **texts, **_floating(series))


def _floating(series: Series) -> Trace:
    """Return where bars start that do not start at zero; their value is then their length."""
    if "low" not in series.extra:
        return {}
    spans = zip(series.extra["low"], series.value, strict=True)
    return {"base": series.extra["low"], "x": [(value or 0.0) - (low or 0.0) for low, value in spans]}


def _stacks(picture: Picture) -> Iterator[Trace]:
    is_sparse = len(picture.base.labels) < 4  # noqa: PLR2004  a lone bar would fill the whole plot
    for series in picture.series:
        yield _bar(picture, series, **({"width": 0.72} if is_sparse else {}))


def _ranges(picture: Picture) -> Iterator[Trace]:
    for shift, series in zip(picture.lanes, picture.series, strict=True):
        base = [None if position is None else position + shift for position in series.base]
        low, high = series.extra.get("low", series.value), series.extra.get("high", series.value)
        whiskers = {
            "type": "data", "symmetric": False, "thickness": 1.4, "width": 4,
            "array": _lengths(series.value, high), "arrayminus": _lengths(low, series.value),
        }  # fmt: skip
        yield {"type": "scatter", "mode": "markers", **_named(series), **_xy(picture, base, series.value),
               **_hover(series), "marker": {"color": series.color.line, "size": 8}, "error_x": whiskers}  # fmt: skip


def _lengths(starts: Numbers, ends: Numbers) -> list[float]:
    spans = zip(starts, ends, strict=True)
    return [0.0 if start is None or end is None else float(f"{max(end - start, 0.0):.6g}") for start, end in spans]


def _boxes(picture: Picture) -> Iterator[Trace]:
    """Yield boxes from their quartiles; Plotly draws its own hover for them, with the numbers of the axis."""
    for shift, series in zip(picture.lanes, picture.series, strict=True):
        boxes = series.reordered([mark for mark, value in enumerate(series.value) if value is not None])
        quartiles = {
            name: [median if end is None else end for end, median in zip(column, boxes.value, strict=True)]
            for name, column in ((name, boxes.extra.get(name, boxes.value)) for name in ("low", "q1", "q3", "high"))
        }
        yield {
            "type": "box", "orientation": "h", **_named(series),
            "y": [(position or 0.0) + shift for position in boxes.base],
            "median": boxes.value, "q1": quartiles["q1"], "q3": quartiles["q3"], "lowerfence": quartiles["low"],
            "upperfence": quartiles["high"], "width": 0.6 / max(len(set(picture.lanes)), 1),
            "line": {"color": series.color.line, "width": 1.4}, "hoverinfo": "x",
        }  # fmt: skip


def _lines(picture: Picture) -> Iterator[Trace]:
    shape = {"shape": "hv"} if picture.has_steps else {}
    for series in picture.series:
        low, high = series.extra.get("low"), series.extra.get("high")
        if low is not None and high is not None and any(value is not None for value in low):
            band = {"type": "scatter", "mode": "lines", "x": series.base, "line": {"width": 0, **shape},
                    "hoverinfo": "skip", "showlegend": False, "legendgroup": safe(series.name, 60)}  # fmt: skip
            yield band | {"y": low}
            yield band | {"y": high, "fill": "tonexty", "fillcolor": _faint(series.color.light)}
    for series in picture.series:
        is_single_point = sum(value is not None for value in series.value) == 1
        yield {"type": "scatter", "mode": "markers" if is_single_point else "lines", **_named(series), "x": series.base,
               "y": series.value, "line": {"color": series.color.line, "width": 2, **shape},
               "marker": {"color": series.color.line}, **_line_hover(picture, series)}  # fmt: skip


def _faint(color: str) -> str:
    red, green, blue = (int(color[digit : digit + 2], 16) for digit in (1, 3, 5))
    return f"rgba({red},{green},{blue},.2)"


def _line_hover(picture: Picture, series: Series) -> Trace:
    """Return hover text of lines, where a text per point would be long: numbers in the axes' own units."""
    value, base = _number("y", picture.value), _number("x", picture.base)
    title = safe(picture.base.title.split(" (")[0]).replace("%{", "")
    return {"hovertemplate": _hover_template(f"{title} {base}<br>{value}", series)}


def _number(name: str, axis: Axis) -> str:
    digits = ",.6~r" if axis.unit.is_id or axis.unit is Unit.COUNT or axis.is_log else ",.4~r"
    unit = f"{NNBSP}{axis.scale.symbol}" if axis.scale.symbol else ""
    return f"%{{{name}:{digits}}}{unit}"


def _areas(picture: Picture) -> Iterator[Trace]:
    shape = {"shape": "hv"} if picture.has_steps else {}
    for series in picture.series:
        color = series.color.light
        yield {"type": "scatter", "mode": "lines", "stackgroup": "all", **_named(series), "x": series.base,
               "y": series.value, "line": {"width": 0, "color": color, **shape}, "fillcolor": color,
               **_line_hover(picture, series)}  # fmt: skip


def _points(picture: Picture) -> Iterator[Trace]:
    for series in picture.series:
        yield {"type": "scatter", "mode": "markers", **_named(series), "x": series.base, "y": series.value,
               **_hover(series), "cliponaxis": False,
               "marker": {"color": series.color.line, "size": 6, "opacity": 0.8}}  # fmt: skip


def _histogram(picture: Picture) -> Iterator[Trace]:
    """Yield bars of given edges. On a log axis Plotly takes a bar's centre and width in raw units."""
    for series in picture.series:
        edges = zip(series.base, series.extra["end"], strict=True)
        bars = series.reordered([mark for mark, edge in enumerate(edges) if None not in edge])
        bins = [(left or 0.0, right or 0.0) for left, right in zip(bars.base, bars.extra["end"], strict=True)]
        yield {
            "type": "bar", **_named(series), **_hover(bars), "y": bars.value,
            "x": [float(f"{(left + right) / 2:.9g}") for left, right in bins],
            "width": [float(f"{max(right - left, 0.0) * 0.96:.6g}") for left, right in bins],
            "marker": {"color": series.color.light},
        }  # fmt: skip


def _heatmap(picture: Picture) -> Iterator[Trace]:
    rows, columns = ([safe(label) for label in axis.labels] for axis in (picture.value, picture.base))
    x, y = (safe(axis.title).replace("%{", "") for axis in (picture.base, picture.value))
    cell = f"%{{z:,.4~r}}{NNBSP}{picture.color.scale.symbol}" if picture.color.scale.symbol else "%{z:,.4~r}"
    trace: Trace = {
        "type": "heatmap",
        "z": [list(row) for row in picture.cells],
        "colorscale": [[stop / 9, viridis(stop / 9)] for stop in range(10)],
        "hoverongaps": False,
        "colorbar": {"thickness": 12, "outlinewidth": 0, "title": {"text": safe(picture.color.title)}},
        "hovertemplate": f"{cell}<extra></extra>",
    }
    if len(rows) * len(columns) <= _MAX_NAMED_CELLS:
        trace["customdata"] = [[[row, column] for column in columns] for row in rows]
        names = f"{y} %{{customdata[0]}}<br>{x} %{{customdata[1]}}"
        trace["hovertemplate"] = f"{names}<br>{trace['hovertemplate']}"
    yield trace


def _timeline(picture: Picture) -> Iterator[Trace]:
    for series in picture.series:
        yield {"type": "bar", "orientation": "h", **_named(series), "base": series.value,
               "x": _lengths(series.value, series.extra["end"]), "y": series.base, "width": 0.72,
               "marker": {"color": series.color.light}, **_hover(series)}  # fmt: skip
