"""The device work of a step as marks."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from htareport.analyses.time.critical_path import CriticalPath
from htareport.analyses.time.timeline import Timeline
from htareport.errors import UsageError
from htareport.run.runner import analyze

US = 1000


def some_steps(rank: int = 0, lengths=(1000, 3000, 2000, 900)) -> TraceBuilder:
    """Steps of so many µs; step k has a gemm of 400 on stream 7 and a copy of 100 on 20."""
    trace, at = TraceBuilder(rank, 2), 0
    for step, length in enumerate(lengths):
        trace.step(step, at, length).kernel(f"gemm_{step}", at + 200, 400, launch=(at + 10, 5))
        trace.memcpy("HtoD (Pinned -> Device)", at + 500, 100, stream=20, launch=(at + 20, 5))
        at += length
    return trace


def marks_of(section):
    [chart] = section.charts
    return chart.frame


def test_the_median_step_of_the_lowest_rank(run):
    """Step 2, from 4000 to 6000; the last step, which none follows, does not count."""
    section = run(Timeline(), some_steps(7), some_steps(3))
    [chart] = section.charts
    assert chart.title == "Device work, rank 3, step 2"
    marks = chart.frame.set_index("label")
    assert marks.loc["stream 7", ["start", "end", "text"]].tolist() == [4200 * US, 4600 * US, "gemm_2"]
    assert marks.loc["stream 20", "kind"] == "memory"
    table = section.table().set_index("stream")
    assert set(table["rank"]) == {3}
    assert table.loc[7, ["events", "busy", "first", "last"]].tolist() == [1, 400 * US, 4200 * US, 4600 * US]


@pytest.mark.parametrize(
    ("lengths", "chosen"),
    [((1000, 1200, 1100, 900), 2), ((1000, 1000, 1000), 1), ((1000, 2000, 500), 0), ((700,), 0)],
    ids=["median", "last of equals", "of two the shorter", "incomplete, but the only one"],
)
def test_the_step_is_that_of_the_critical_path(tmp_path, lengths, chosen):
    """One definition of the step of median length."""
    some_steps(0, lengths).cpu_op("aten::mm", 5, 1).write(tmp_path / "0.json")
    report = analyze(tmp_path, analyses=[Timeline(), CriticalPath()])
    assert report["timeline"].charts[0].title == f"Device work, rank 0, step {chosen}"
    assert report["critical_path"].table("ranks")["step"].tolist() == [chosen]


def test_steps_without_device_work_do_not_count(tmp_path):
    """Steps of 500, 600, 700 and 800 µs, of which only 2 and 3 have a kernel: 2 is the complete one."""
    trace, at = TraceBuilder(0), 0
    for step, length in enumerate((500, 600, 700, 800)):
        trace.step(step, at, length).cpu_op("aten::mm", at + 10, 20)
        if step > 1:
            trace.kernel("gemm", at + 100, 50, launch=(at + 15, 5))
        at += length
    trace.write(tmp_path / "0.json")
    report = analyze(tmp_path, analyses=[Timeline(), CriticalPath()])
    assert report["timeline"].charts[0].title == "Device work, rank 0, step 2"
    assert report["critical_path"].table("ranks")["step"].tolist() == [2]


def test_chosen(run):
    """Ranks, steps and streams as options."""
    section = run(Timeline(ranks="3,7", steps="0-1", streams="7"), some_steps(7), some_steps(3))
    marks = marks_of(section)
    assert sorted(set(marks["label"])) == ["rank 3 stream 7", "rank 7 stream 7"]
    assert set(marks["text"]) == {"gemm_0", "gemm_1"}
    assert "steps 0-1" in section.charts[0].title


def test_nothing_chosen(run):
    """A stream that isn't there: no picture, and a sentence."""
    section = run(Timeline(streams="99"), some_steps())
    assert not section.charts
    assert "Nothing is recorded" in section.notes[0]


@pytest.mark.parametrize("options", [{"ranks": "a"}, {"steps": "5-3"}, {"streams": "-1"}])
def test_wrong_options(options):
    """Are said when they are given."""
    with pytest.raises(UsageError, match=r"timeline\."):
        Timeline(**options)


def test_small_ones_share_a_mark(run):
    """Thousands of kernels become few marks, named after the longest."""
    trace = TraceBuilder(0)
    for number in range(4000):
        trace.kernel("long" if number % 10 == 3 else "short", 10 * number, 9 if number % 10 == 3 else 8)
    marks = marks_of(run(Timeline(), trace))
    assert len(marks) <= 2000
    assert (marks["start"].min(), marks["end"].max()) == (0, 39_998 * US)
    assert marks["text"].str.contains("device events, longest: long").any()


def test_without_steps_the_fullest_file(tmp_path):
    """Of several captures the one with most device work."""
    one = TraceBuilder(0).kernel("a", 0, 5).write(tmp_path / "one.json")
    two = TraceBuilder(0).kernel("b", 900, 5).kernel("c", 910, 5).write(tmp_path / "two.json")
    section = analyze({0: (one, two)}, analyses=[Timeline()])["timeline"]
    assert section.charts[0].title == "Device work, rank 0, capture 2 of 2"
    assert set(marks_of(section)["text"]) == {"b", "c"}


def test_devices(run):
    """Lanes say which device, where there are several."""
    trace = TraceBuilder(0, devices=2).kernel("a", 0, 50).kernel("b", 10, 50, device=1)
    assert marks_of(run(Timeline(), trace))["label"].tolist() == ["device 0 stream 7", "device 1 stream 7"]
