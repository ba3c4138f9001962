"""Reading a file again: places of events, their arguments, and copies with exact text."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from builder import TraceBuilder

from htareport.errors import TraceFileError
from htareport.export.numbered import index_of, load_numbered, threads_of
from htareport.export.rewrite import micros, rewrite, with_fields, without_args
from htareport.reading.arguments import read_arguments

LAYOUTS = ("kineto", "compact", "indent", "array")


def builder(count=3) -> TraceBuilder:
    """Rows of several categories, with one that is no event of the tables and one that is set aside between them."""
    trace = TraceBuilder(0)
    for step in range(count):
        at = 10 * step
        trace.event({"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": f"t{step}"}})
        trace.cpu_op("aten::mm", at, 5, **{"External id": step, "Input Dims": [[2, step], []]})
        trace.complete("cpu_op", "backwards", 1, 1, (at, -5), {})
        trace.kernel("gemm", at + 2, 5, launch=(at + 1, 1))
    return trace


@pytest.mark.parametrize("layout", LAYOUTS)
def test_places(tmp_path, layout):
    """Of every row, whatever stands between; they lead back to the event."""
    path = builder().write(tmp_path / "rank0.json", layout)
    raw = json.loads(path.read_text())
    events = raw if isinstance(raw, list) else raw["traceEvents"]
    trace = load_numbered(0, path)
    assert trace.captures[0].events == len(events) == 15
    for columns in trace.loaded.tables.values():
        names = [trace.loaded.strings[code] for code in columns["name"].tolist()]
        assert [events[place]["name"] for place in columns["position"].tolist()] == names
    assert index_of(trace, trace.device_events).tolist() == [4, 9, 14]
    assert index_of(trace, trace.launches).tolist() == [3, 8, 13]
    pids, tids = threads_of(trace, trace.device_events)
    assert (set(pids.tolist()), set(tids.tolist())) == ({0}, {7})


def test_places_go_on_through_captures(tmp_path):
    """In the order of time."""
    late = builder().write(tmp_path / "a_rank0.json")
    early = TraceBuilder(0, base_ns=1_740_000_000_000_000_000).kernel("first", 0, 1, launch=(0, 1))
    early = early.write(tmp_path / "b_rank0.json")
    trace = load_numbered(0, (late, early))
    assert [capture.path for capture in trace.captures] == [early, late]
    assert index_of(trace, trace.device_events).tolist() == [1, 6, 11, 16]


def test_many_chunks(tmp_path):
    """Places and arguments of a file that is read in pieces."""
    trace = TraceBuilder(0)
    for number in range(4_000):
        trace.cpu_op(f"op{number}", number, 1, **{"External id": number})
    path = trace.write(tmp_path / "rank0.json")
    assert path.stat().st_size > 3 * (128 << 10)
    loaded = load_numbered(0, path)
    assert np.array_equal(loaded.loaded.tables["cpu_op"]["position"], np.arange(4_000))
    found = read_arguments(path, {"External id"})["External id"]
    assert found.items == found.positions.tolist() == list(range(4_000))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_arguments(tmp_path, layout):
    """Those asked for, or all; only of complete events."""
    path = builder().write(tmp_path / "rank0.json", layout)
    found = read_arguments(path, {"External id", "Input Dims", "nothing"})
    assert set(found) == {"External id", "Input Dims"}
    assert found["External id"].positions.tolist() == [1, 6, 11]
    assert found["Input Dims"].items == [[[2, 0], []], [[2, 1], []], [[2, 2], []]]
    assert set(read_arguments(path)) == {"External id", "Input Dims", "correlation", "device", "stream"}


def test_arguments_that_are_none(tmp_path):
    """Lists, text and nothing at all; what is no event counts as in the loader."""
    path = tmp_path / "rank0.json"
    rows = [{"ph": "X", "name": "a", "args": 1}, 5, {"ph": "X", "name": "b", "args": {"x": 1}}, {"ph": "X", "args": []}]
    path.write_text(json.dumps({"traceEvents": rows}))
    found = read_arguments(path)
    assert (found["x"].positions.tolist(), found["x"].items) == ([1], [1])


def written(path, **options) -> str:
    out = io.BytesIO()
    rewrite(path, out, {"rank": 7}, **options)
    return out.getvalue().decode()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_copy_keeps_the_text(tmp_path, layout):
    """Long decimals, large numbers, names; metadata are what was given; events may be added."""
    number = "1682725898237042.9915"
    trace = builder().complete("cpu_op", 'é "q" \\ {', 1, 2**60, (number, "0.001"), {"big": 2**62})
    path = trace.write(tmp_path / "rank0.json", layout)
    text = written(path, more=[b'{"ph":"C","name":"n","ts":1.5,"pid":0,"args":{"n":1}}'])
    copy = json.loads(text)
    assert copy["rank"] == 7
    raw = json.loads(path.read_text())
    events = raw if isinstance(raw, list) else raw["traceEvents"]
    assert copy["traceEvents"][:-1] == events
    assert copy["traceEvents"][-1]["ph"] == "C"
    assert number in text


def test_an_edit_changes_or_drops(tmp_path):
    """By place; what it leaves alone keeps its text."""
    path = builder(2).write(tmp_path / "rank0.json")

    def edit(place, event):
        if place == 1:
            return with_fields(event, {"critical": 1}, name="renamed")
        if place == 4:
            return without_args(event, "12")
        return None if place == 2 else event

    events = json.loads(written(path, edit=edit))["traceEvents"]
    assert len(events) == 9
    assert events[1]["name"] == "renamed"
    assert events[1]["args"] == {"External id": 0, "Input Dims": [[2, 0], []], "critical": 1}
    assert events[3] == {"ph": "X", "cat": "kernel", "name": "12", "pid": 0, "tid": 7, "ts": 2.0, "dur": 5.0}


def test_slips_are_written_mended(tmp_path):
    """Lone backslashes and bare nan: the copy is valid JSON."""
    path = tmp_path / "rank0.json"
    text = builder().json().replace('"aten::mm"', '"C:\\dir"').replace('"External id": 1', '"External id": nan')
    path.write_text(text)
    events = json.loads(written(path))["traceEvents"]
    assert events[1]["name"] == "C:\\dir"
    assert events[6]["args"]["External id"] is None


def test_damage_is_named(tmp_path):
    """With the place, as by the loader."""
    path = tmp_path / "rank0.json"
    path.write_text(builder().json()[:-300])
    with pytest.raises(TraceFileError, match="ends early"):
        written(path)
    with pytest.raises(TraceFileError, match="ends early"):
        read_arguments(path)


def test_no_events(tmp_path):
    """An empty array is one, and so is the copy."""
    path = tmp_path / "rank0.json"
    path.write_text('{"traceEvents": []}')
    assert json.loads(written(path)) == {"rank": 7, "traceEvents": []}
    out = io.BytesIO()
    rewrite(path, out, {}, more=[b'{"ph":"C"}'])
    assert json.loads(out.getvalue()) == {"traceEvents": [{"ph": "C"}]}


@pytest.mark.parametrize(
    ("given", "text"), [(0, "0.000"), (1, "0.001"), (-1500, "-1.500"), (10**18 + 7, "1000000000000000.007")]
)
def test_micros(given, text):
    assert micros(given) == text


def test_fields_of_events_without_arguments():
    """Arguments that are none are replaced."""
    assert json.loads(with_fields(b'{"name":"a"}', {"x": 1})) == {"name": "a", "args": {"x": 1}}
    assert json.loads(with_fields(b'{"args": null}', {"x": 1})) == {"args": {"x": 1}}
