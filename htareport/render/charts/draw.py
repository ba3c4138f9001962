"""A chart made ready to draw, by its mark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from htareport.render.charts import picture_kinds
from htareport.render.charts.picture import Picture, Rows, Series
from htareport.report.charts import Chart, Mark

_STACKED_MARKS = {Mark.STACKED_BAR, Mark.AREA, Mark.HISTOGRAM}  # Marks of which a zero is not to be seen.


def picture_of(chart: Chart) -> Picture:
    """Make a chart ready to draw. Any frame gives a picture: rows without a number are gaps."""
    builder_by_mark: dict[Mark, Callable[[Chart, Rows], Picture]] = {
        Mark.BAR: picture_kinds.bar,
        Mark.STACKED_BAR: picture_kinds.stacked_bar,
        Mark.RANGE: picture_kinds.spread,
        Mark.BOX: picture_kinds.spread,
        Mark.LINE: picture_kinds.numeric,
        Mark.AREA: picture_kinds.area,
        Mark.SCATTER: picture_kinds.numeric,
        Mark.HISTOGRAM: picture_kinds.histogram,
        Mark.HEATMAP: picture_kinds.heatmap,
        Mark.TIMELINE: picture_kinds.timeline,
    }
    picture = builder_by_mark[chart.mark](chart, Rows(chart))
    return replace(picture, series=_non_zero(picture.series)) if chart.mark in _STACKED_MARKS else picture


def _non_zero(series: tuple[Series, ...]) -> tuple[Series, ...]:
    """Return the series of a stack that are anywhere above zero, all of them if none is."""
    return tuple(stacked for stacked in series if any(stacked.value)) or series
