"""Every mark becomes an SVG and a Plotly figure that show the same numbers, whatever the frame holds."""

import math
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest
from render.sample import HOSTILE, sample

from htareport.render.charts import palette
from htareport.render.charts.draw import picture_of
from htareport.render.charts.plotly import figure, figure_spec
from htareport.render.charts.svg import svg
from htareport.render.charts.svg_parts import fitted, text_width
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


def texts(root: ET.Element) -> list[tuple[str | None, ET.Element]]:
    """Every text with its anchor, which stands on its group."""
    return [(group.get("text-anchor"), text) for group in root.iter(f"{SVG}g") for text in group.iter(f"{SVG}text")]


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
    for anchor, element in texts(root):
        if element.get("transform"):
            continue
        size = text_width(element.text)
        shift = {"end": size, "middle": size / 2}.get(anchor, 0)
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
@pytest.mark.parametrize(
    ("unit", "log"),
    [
        (Unit.NANOSECONDS, False),
        (Unit.COUNT, True),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((Unit.NANOSECONDS, True), (Unit.COUNT, False))),
    ],
)
def test_any_frame_gives_a_picture(mark, case, unit, log):
    cells = dict(DEGENERATE[case])
    if mark is Mark.HEATMAP and "y" in cells:
        cells["color"] = cells["y"]
    checked(made(mark, cells, x_unit=unit, y_unit=unit, log_x=log, lines=((3.0, "line"), (math.nan, "none"))))


@pytest.mark.parametrize("mark", [m for m in Mark if m in NAMED])
@pd.option_context("mode.string_storage", "python")  # Half a surrogate pair is no text to pyarrow.
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
        "g",
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
        for trace in figure_spec(picture_of(chart))["data"]:
            assert not any(name in trace.get("hovertemplate", "") for name in HOSTILE)


def test_both_back_ends_show_the_same_numbers():
    chart = made(Mark.STACKED_BAR, {"x": [0, 1, 0, 1], "y": [1e6, 2e6, 3e6, 4e6], "color": ["a", "a", "b", "b"]})
    data = figure_spec(picture_of(replace(chart, frame=pd.concat([chart.frame] * 1))))["data"]
    assert [trace["y" if "orientation" not in trace else "x"] for trace in data] == [[1.0, 2.0], [3.0, 4.0]]
    root = checked(chart)
    boxes = [p.get("d") for p in root.iter(f"{SVG}path") if p.get("fill")]
    wide = [[float(w) for w in re.findall(r"h(-?[\d.]+)v", d)] for d in boxes if d.count("z") == 2]
    assert wide[1][0] / wide[0][0] == pytest.approx(3, rel=0.01)
    assert wide[0][1] / wide[0][0] == pytest.approx(2, rel=0.01)


def test_bars_of_the_sample_have_the_tables_numbers():
    chart = CHARTS["top"]
    data = figure_spec(picture_of(chart))["data"]
    shown = sorted((y, x) for trace in data for x, y in zip(trace["x"], trace["y"], strict=True))
    expected = [float(f"{v / 1e6:.6g}") for v in chart.frame["sum"]]
    assert [x for _, x in shown] == expected


def test_numbers_are_plain_lists():
    text = "".join(figure(chart).to_json() for chart in CHARTS.values())
    assert "bdata" not in text


def test_equal_short_names_are_two_bars():
    chart = made(Mark.BAR, {"y": ["void a::k<1>(int)", "void a::k<2>(int)"], "x": [1, 2]}, y_unit=Unit.NAME)
    assert figure_spec(picture_of(chart))["data"][0]["y"] == [0.0, 1.0]


def test_equal_short_names_say_what_differs():
    chart = made(Mark.BAR, {"y": ["void a::k<1>(int)", "void a::k<2>(int)", ""], "x": [1, 2, 3]}, y_unit=Unit.NAME)
    assert picture_of(chart).base.labels == ("a::k · 1", "a::k · 2", "(no name)")
    root = checked(replace(chart, color="b"))
    assert [one.name for one in picture_of(replace(chart, color="b")).series][2] == "(no name)"
    assert "(no name): 3" in [title.text.replace("\u202fns", "") for title in root.iter(f"{SVG}title")]


def test_names_do_not_turn_the_reading_direction():
    for mark in (Mark.BAR, Mark.STACKED_BAR, Mark.TIMELINE, Mark.BOX, Mark.HEATMAP):
        names = ["a\u202eb", "\u2066c"]
        cells = {NAMED[mark]: names, "color": names if mark is not Mark.HEATMAP else [1, 2]}
        cells |= {"text": names} if mark is Mark.TIMELINE else {}
        chart = made(mark, cells, x_unit=Unit.TEXT if NAMED[mark] == "x" else Unit.ID, y_unit=Unit.TEXT)
        chart = replace(chart, title=names[0], x_label=names[0], y_label=names[0], lines=((1.0, names[0]),))
        shown = svg(chart) + "".join(_strings(figure(chart).to_plotly_json()))
        assert "⟨U+202E⟩" in shown
        assert not re.search("[\u202e\u2066]", shown)


@pytest.mark.parametrize(
    ("values", "series", "low", "said"),
    [
        ([97e6, 99e6, 98e6, 100e6], ["a"] * 4, 0, False),  # One line: flat is the truth.
        ([60e6, 99e6, 98e6, 100e6], ["a", "a", "b", "b"], 0, False),
        ([97e6, 99e6, 98e6, 100e6], ["a", "a", "b", "b"], 90, True),  # Two that nobody could tell apart.
    ],
)
def test_axes_start_at_zero_or_say_so(values, series, low, said):
    cells = {"x": [0, 1, 0, 1], "y": values, "low": values, "high": values}
    chart = made(Mark.LINE, cells, y_label="time")
    chart = replace(chart, frame=chart.frame.assign(c=series), color="c")
    axis = picture_of(chart).value
    assert (axis.low >= low) if low else axis.low == 0
    assert axis.title == ("time (ms; not from 0)" if said else "time (ms)")


def test_titles_of_axes_fit():
    cells = {"y": ["a long name of a kernel"] * 2, "x": [1, 2]}
    chart = made(Mark.BAR, cells, x_unit=Unit.NANOSECONDS, x_label="mean time on the host before a launch, " * 4)
    layout = figure_spec(picture_of(chart), 500)["layout"]
    title = layout["xaxis"]["title"]
    assert text_width(title["text"], title["font"]["size"]) <= 500 - layout["margin"]["l"] - layout["margin"]["r"] + 1


def test_middles_far_apart_stand_on_a_logarithmic_axis():
    cells = {"y": ["a", "b", "c"], "x": [2e3, 3e3, 9e6], "low": [1e3, 2e3, 1e6], "high": [4e3, 5e3, 2e7]}
    axis = picture_of(made(Mark.RANGE, cells, x_unit=Unit.NANOSECONDS, x_label="duration")).value
    assert axis.is_log
    assert axis.title == "duration (logarithmic)"
    assert [label for _, label in axis.ticks()] == ["1\u202fµs", "10\u202fµs", "100\u202fµs", "1\u202fms", "10\u202fms"]
    checked(made(Mark.RANGE, cells, x_unit=Unit.NANOSECONDS))
    even = cells | {"x": [2e6, 3e6, 9e6]}
    assert not picture_of(made(Mark.RANGE, even, x_unit=Unit.NANOSECONDS)).value.is_log


def test_short_logarithmic_axes_have_ticks():
    for low, high in ((2e3, 3e4), (6e5, 9e5), (5e4, 1e6)):
        cells = {"x": [low, (low + high) / 2], "y": [5, 6], "x2": [(low + high) / 2, high]}
        chart = made(Mark.HISTOGRAM, cells, x_unit=Unit.NANOSECONDS, y_unit=Unit.COUNT, log_x=True)
        assert 2 <= len(picture_of(chart).base.ticks()) <= 8


def test_neighbours_share_their_attributes():
    root = checked(CHARTS["top"])
    assert not [text for text in root.iter(f"{SVG}text") if text.get("fill") or text.get("class")]
    assert len(list(root.iter(f"{SVG}g"))) < len(list(root.iter(f"{SVG}text")))


def test_long_labels_are_cut_everywhere():
    chart = made(Mark.BAR, {"y": ["k" * 9000], "x": [1]}, y_unit=Unit.NAME, lines=((1.0, "l" * 9000),))
    chart = replace(chart, frame=chart.frame.assign(c=["s" * 9000]), color="c")
    assert len(svg(chart)) < 5000


def test_time_axis_says_ms():
    assert picture_of(CHARTS["top"]).value.title == "total time (ms)"
    assert [label for _, label in picture_of(CHARTS["top"]).value.ticks()][:3] == ["0", "100", "200"]


def test_no_more_than_twelve_labels_below():
    cells = {"x": list(range(1000)), "y": [1.0] * 1000, "color": ["a"] * 1000}
    root = checked(made(Mark.STACKED_BAR, cells))
    bottom = [e.text for anchor, e in texts(root) if anchor == "middle" and not e.get("transform")]
    assert 2 <= len(bottom) <= 12


def test_peaks_survive_thinning():
    values = np.zeros(20_000)
    values[17_777] = 9e6
    chart = made(Mark.LINE, {"x": list(range(20_000)), "y": list(values), "low": [None] * 20_000})
    series = picture_of(chart).series[0]
    assert len(series.value) <= 2000
    assert max(v for v in series.value if v is not None) == 9.0


def test_big_heatmap_keeps_its_peak():
    rows, columns = 1024, 20
    cells = {"x": list(range(columns)) * rows, "y": [i // columns for i in range(rows * columns)],
             "color": [1e6] * (rows * columns)}  # fmt: skip
    cells["color"][5000] = 9e6
    made_picture = picture_of(made(Mark.HEATMAP, cells))
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


@pytest.mark.parametrize("width", [240, 500])
def test_values_beside_bars_have_room(width):
    """However wide their unit is, on narrow pages too."""
    cells = {"y": ["conv", "mm"], "x": [49.9e9, 30.2e9]}
    chart = Chart("w", "W", Mark.BAR, pd.DataFrame(cells), "x", "y", x_unit=Unit.FLOP, y_unit=Unit.TEXT)
    layout = figure_spec(picture_of(chart), width)["layout"]
    low, high = layout["xaxis"]["range"]
    pixels = (width - layout["margin"]["l"] - layout["margin"]["r"]) / (high - low)
    assert (high - 49.9) * pixels > text_width("49.9\u202fGFLOP", 12)


def test_bars_that_do_not_start_at_zero():
    """A waterfall: each bar lies between its start and its value, and says how long it is, with its sign."""
    cells = {"y": ["up", "down", "in all"], "low": [0.0, 30.0, 0.0], "x": [30.0, -20.0, -20.0]}
    chart = Chart("w", "W", Mark.BAR, pd.DataFrame(cells), "x", "y", low="low", x_unit=Unit.COUNT, y_unit=Unit.TEXT)
    drawn = ET.fromstring(svg(chart))  # noqa: S314  our own
    boxes = [(float(box.get("x")), float(box.get("width"))) for box in drawn.iter(f"{SVG}rect") if len(box)]
    (up, up_width), (down, down_width), (total, total_width) = boxes
    assert up_width / 30 == pytest.approx(down_width / 50, rel=0.01)
    assert down == pytest.approx(total, abs=0.1)
    assert up + up_width == pytest.approx(down + down_width, abs=0.1)
    assert up == pytest.approx(total + total_width, abs=0.1)
    assert {"+30", "−50", "−20"} <= {text.text for text in drawn.iter(f"{SVG}text")}
    (trace,) = figure_spec(picture_of(chart))["data"]
    assert trace["base"] == [0, 30, 0]
    assert trace["x"] == [30, -50, -20]
    low, high = figure_spec(picture_of(chart))["layout"]["xaxis"]["range"]
    assert low < -20 - 0.2 * 50 < 30 + 0.2 * 50 < high  # Room for what stands beside the bars.
