"""Every mark becomes an SVG and a Plotly figure that show the same numbers, whatever the frame holds."""

import math
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest
from render.sample import HOSTILE, sample

from htareport.render import palette
from htareport.render.picture import picture
from htareport.render.plotly import figure, figure_spec
from htareport.render.svg import svg
from htareport.render.svg_parts import fitted, text_width
from htareport.report import Chart, Mark, Unit

SVG = "{http://www.w3.org/2000/svg}"
CHARTS = {chart.name: chart for section in sample().sections for chart in section.charts}
NAMES = {"x": "a", "y": "b", "color": "c", "low": "d", "high": "e", "q1": "f", "q3": "g", "x2": "h", "text": "i"}
USED = {
    Mark.BAR: ("x", "y"), Mark.STACKED_BAR: ("x", "y", "color"), Mark.LINE: ("x", "y", "low", "high"),
    Mark.AREA: ("x", "y", "color"), Mark.HEATMAP: ("x", "y", "color"), Mark.HISTOGRAM: ("x", "y", "x2"),
    Mark.BOX: ("x", "y", "low", "q1", "q3", "high"), Mark.RANGE: ("x", "y", "low", "high"), Mark.SCATTER: ("x", "y"),
    Mark.TIMELINE: ("x", "y", "color", "x2", "text"),
}  # fmt: skip
NAMED = {Mark.BAR: "y", Mark.RANGE: "y", Mark.STACKED_BAR: "x", Mark.BOX: "x", Mark.TIMELINE: "y", Mark.HEATMAP: "x"}


def made(mark: Mark, cells: dict[str, list], **more) -> Chart:
    """A chart of a mark whose channels hold the given cells; channels not given are numbers from 0."""
    rows = max(map(len, cells.values()), default=0)
    frame = {NAMES[channel]: list(cells.get(channel, range(rows))) for channel in USED[mark]}
    channels = {channel: NAMES[channel] for channel in USED[mark]}
    return Chart("c", "T", mark, pd.DataFrame(frame), **channels, **more)


def checked(chart: Chart) -> ET.Element:
    """Both pictures of a chart, checked for what must hold of any."""
    text = svg(chart)
    assert text == svg(chart)
    assert "nan" not in re.sub(r"<(title|desc|text)[^>]*>[^<]*", "", text).lower()
    assert "inf" not in re.sub(r"<(title|desc|text)[^>]*>[^<]*", "", text).lower()
    root = ET.fromstring(text)  # noqa: S314  our own
    assert root.find(f"{SVG}title").text
    assert root.find(f"{SVG}desc").text
    width = float(root.get("width"))
    for element in root.iter(f"{SVG}text"):
        if element.get("transform"):
            continue
        size = text_width(element.text)
        shift = {"end": size, "middle": size / 2}.get(element.get("text-anchor"), 0)
        left = float(element.get("x")) - shift
        assert left > -1, element.text
        assert left + size < width + 6, element.text
    figure(chart).to_json()
    return root


@pytest.mark.parametrize("name", CHARTS)
def test_sample_charts_are_drawn(name):
    root = checked(CHARTS[name])
    assert len(list(root.iter(f"{SVG}path"))) > 1


def test_sample_has_every_mark():
    assert {chart.mark for chart in CHARTS.values()} == set(Mark)


DEGENERATE = {
    "no rows": {},
    "one row": {"x": [1.0], "y": [2.0], "color": ["s"]},
    "zeros": {"x": [0, 0], "y": [0, 0], "color": ["a", "b"], "x2": [0, 0]},
    "missing": {"x": [math.nan, 1.0, None], "y": [1.0, math.nan, None], "color": ["a", None, "b"],
                "low": [math.nan] * 3, "x2": [math.nan, 2, 3]},
    "all missing": {"x": [None, None], "y": [math.nan, math.nan], "color": [None, None]},
    "infinite": {"x": [math.inf, 1, 2], "y": [1, -math.inf, 3], "color": ["a", "b", "c"], "high": [1, 2, math.inf]},
    "negative": {"x": [-3.0, 4.0, -1e9], "y": [-5.0, 6.0, -2e9], "color": ["a", "b", "a"]},
    "huge": {"x": [1e300, 2e300], "y": [1e300, 2e308 / 10], "color": ["a", "b"], "x2": [2e300, 3e300]},
    "tiny": {"x": [1e-300, 2e-300], "y": [1e-300, 2e-300], "color": ["a", "b"]},
    "constant": {"x": [5.0] * 4, "y": [7.0] * 4, "color": ["a", "b", "c", "d"]},
    "many series": {"x": list(range(40)), "y": [1.0] * 40, "color": [f"series with a name, {i}" for i in range(40)]},
}  # fmt: skip


@pytest.mark.parametrize("case", DEGENERATE)
@pytest.mark.parametrize("mark", list(Mark))
@pytest.mark.parametrize("unit", [Unit.NANOSECONDS, Unit.COUNT])
def test_any_frame_gives_a_picture(mark, case, unit):
    cells = dict(DEGENERATE[case])
    if mark is Mark.HEATMAP and "y" in cells:
        cells["color"] = cells["y"]
    for log in (False, True):
        checked(made(mark, cells, x_unit=unit, y_unit=unit, log_x=log, lines=((3.0, "line"), (math.nan, "none"))))


@pytest.mark.parametrize("mark", [m for m in Mark if m in NAMED])
def test_hostile_names_are_text(mark):
    names = [*HOSTILE, "x" * 100_000, "\ud800"]
    cells = {NAMED[mark]: names, "color": names if mark is not Mark.HEATMAP else list(range(len(names)))}
    if mark is Mark.TIMELINE:
        cells["text"] = names
    chart = made(mark, cells, x_unit=Unit.NAME, y_unit=Unit.NAME)
    chart = replace(chart, title=names[2], caption=names[0])
    root = checked(chart)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        "svg",
        "title",
        "desc",
        "rect",
        "path",
        "text",
    }
    text = figure(chart).to_plotly_json()
    strings = list(_strings(text["data"])) + list(_strings(text["layout"]))
    assert not [s for s in strings if re.search(r"<(?!br>|extra>|/extra>)", s)]
    assert not [s for s in strings if "%{customdata}" in s and "hovertemplate" in s]


def _strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)


def test_names_never_stand_in_hover_templates():
    for chart in CHARTS.values():
        for trace in figure_spec(picture(chart))["data"]:
            assert not any(name in trace.get("hovertemplate", "") for name in HOSTILE)


def test_both_back_ends_show_the_same_numbers():
    chart = made(Mark.STACKED_BAR, {"x": [0, 1, 0, 1], "y": [1e6, 2e6, 3e6, 4e6], "color": ["a", "a", "b", "b"]})
    data = figure_spec(picture(replace(chart, frame=pd.concat([chart.frame] * 1))))["data"]
    assert [trace["y" if "orientation" not in trace else "x"] for trace in data] == [[1.0, 2.0], [3.0, 4.0]]
    root = checked(chart)
    boxes = [p.get("d") for p in root.iter(f"{SVG}path") if p.get("fill")]
    wide = [[float(w) for w in re.findall(r"h(-?[\d.]+)v", d)] for d in boxes if d.count("z") == 2]
    assert wide[1][0] / wide[0][0] == pytest.approx(3, rel=0.01)
    assert wide[0][1] / wide[0][0] == pytest.approx(2, rel=0.01)


def test_bars_of_the_sample_have_the_tables_numbers():
    chart = CHARTS["top"]
    data = figure_spec(picture(chart))["data"]
    shown = sorted((y, x) for trace in data for x, y in zip(trace["x"], trace["y"], strict=True))
    expected = [float(f"{v / 1e6:.6g}") for v in chart.frame["sum"]]
    assert [x for _, x in shown] == expected


def test_numbers_are_plain_lists():
    text = "".join(figure(chart).to_json() for chart in CHARTS.values())
    assert "bdata" not in text


def test_equal_short_names_are_two_bars():
    chart = made(Mark.BAR, {"y": ["void a::k<1>(int)", "void a::k<2>(int)"], "x": [1, 2]}, y_unit=Unit.NAME)
    assert figure_spec(picture(chart))["data"][0]["y"] == [0.0, 1.0]


def test_time_axis_says_ms():
    assert picture(CHARTS["top"]).value.title == "total time (ms)"
    assert [label for _, label in picture(CHARTS["top"]).value.ticks()][:3] == ["0", "100", "200"]


def test_no_more_than_twelve_labels_below():
    cells = {"x": list(range(1000)), "y": [1.0] * 1000, "color": ["a"] * 1000}
    root = checked(made(Mark.STACKED_BAR, cells))
    bottom = [e.text for e in root.iter(f"{SVG}text") if e.get("text-anchor") == "middle" and not e.get("transform")]
    assert 2 <= len(bottom) <= 12


def test_peaks_survive_thinning():
    values = np.zeros(100_000)
    values[77_777] = 9e6
    chart = made(Mark.LINE, {"x": list(range(100_000)), "y": list(values), "low": [None] * 100_000})
    series = picture(chart).series[0]
    assert len(series.value) <= 2000
    assert max(v for v in series.value if v is not None) == 9.0


def test_big_heatmap_keeps_its_peak():
    rows, columns = 1024, 20
    cells = {"x": list(range(columns)) * rows, "y": [i // columns for i in range(rows * columns)],
             "color": [1e6] * (rows * columns)}  # fmt: skip
    cells["color"][5000] = 9e6
    made_picture = picture(made(Mark.HEATMAP, cells))
    assert len(made_picture.cells) <= 128
    assert max(v for row in made_picture.cells for v in row if v is not None) == 9.0


def test_first_four_colours_are_those_of_the_palette():
    names = ["Compute", "exposed communication", "exposed memory", "idle"]
    assert [c.light for c in palette.assign(names).values()] == ["#1F6FB2", "#E69F00", "#882255", "#D0D5DA"]
    assert [c.dark for c in palette.assign(names).values()] == ["#4A9BE0", "#F0B429", "#D47FA6", "#4A545E"]
    unknown = palette.assign(["compute", "x", "y", "z"])
    assert len({color.index for color in unknown.values()}) == 4


def test_pictures_need_nothing_that_pdf_lacks():
    for chart in (chart for section in sample(hostile=False).sections for chart in section.charts):
        assert not re.search(r"style=|var\(|currentColor|Gradient|foreignObject|<filter", svg(chart))


def test_fitted_text():
    assert fitted("abc", 500) == "abc"
    cut = fitted("a" * 500, 100)
    assert text_width(cut) <= 100.2
    assert "…" in cut
