"""What a picture holds of a chart, before anything draws it."""

import pandas as pd
import pytest

from htareport.render.charts.draw import picture_of
from htareport.render.charts.plotly import figure
from htareport.render.charts.svg import svg
from htareport.report import Chart, Mark, Unit

PARTS = pd.DataFrame({"rank": [0, 1] * 3, "part": ["a", "a", "none", "none", "b", "b"], "time": [5, 0, 0, None, 1, 2]})


@pytest.mark.parametrize("mark", [Mark.STACKED_BAR, Mark.AREA])
def test_series_of_zeros_are_not_named(mark):
    made = picture_of(Chart("c", "T", mark, PARTS, "rank", "time", "part"))
    assert [series.name for series in made.series] == ["a", "b"]


def test_lines_at_zero_stay():
    made = picture_of(Chart("c", "T", Mark.LINE, PARTS, "rank", "time", "part"))
    assert [series.name for series in made.series] == ["a", "none", "b"]


def test_stacks_of_zeros_only_keep_their_series():
    made = picture_of(Chart("c", "T", Mark.STACKED_BAR, PARTS.assign(time=0), "rank", "time", "part"))
    assert len(made.series) == 3


def test_colours_do_not_depend_on_what_is_there():
    def colors(frame):
        return {
            one.name: one.color for one in picture_of(Chart("c", "T", Mark.AREA, frame, "rank", "time", "part")).series
        }

    assert colors(PARTS)["b"] == colors(PARTS.assign(time=1))["b"]


def test_one_series_is_named_too():
    """Its colour means something; bars of no series have none."""
    frame = pd.DataFrame({"name": ["k", "l"], "kind": "compute", "time": [2, 1]})
    named = Chart("c", "T", Mark.BAR, frame, "time", "name", "kind", y_unit=Unit.NAME)
    assert ">compute</text>" in svg(named)
    assert figure(named).layout.showlegend
    plain = Chart("c", "T", Mark.BAR, frame, "time", "name", y_unit=Unit.NAME)
    assert not picture_of(plain).has_legend
    assert not figure(plain).layout.showlegend
