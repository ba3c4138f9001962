"""Damaged files: mended where the slip is a known one, else an error that names the place; never anything else."""

from __future__ import annotations

import gzip
import json
import random
import re

import pytest
from builder import TraceBuilder

from htareport.errors import TraceFileError
from htareport.trace import RankTrace

EVENT = '{"ph": "X", "cat": "kernel", "name": "%s", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {%s}}'


def trace_of(*events, layout="kineto"):
    separator, end = {"kineto": (",\n  ", "\n  "), "compact": (", ", ""), "lines": (",\n", "\n")}[layout]
    lines = [event[:-1] + "\n  }" if layout == "kineto" else event for event in events]
    return f'{{"schemaVersion": 1, "traceEvents": [{end}{separator.join(lines)}{end}], "traceName": "x"}}'


@pytest.mark.parametrize("layout", ["kineto", "compact", "array", "indent"])
@pytest.mark.parametrize("size", [200, pytest.param(128 << 10, marks=pytest.mark.slow)])
def test_cut_off_anywhere(layout, size, builder, write, chunks_of):
    """The error says that it ends early, at its last byte and line; or that nothing of a trace is there yet."""
    text = builder.json(layout).encode()
    chunks_of(size)
    some = random.Random(1).sample(range(1, len(text)), 30)  # noqa: S311  the same in every run
    cuts = {*some, *range(len(text) - 20, len(text)), 1, 2}
    for cut in sorted(cuts):
        cut_text = text[:cut]
        if cut_text.rstrip() == text.rstrip():
            continue
        with pytest.raises(TraceFileError) as raised:
            RankTrace.load(0, write("cut.json", cut_text))
        place = re.match(r"the file ends early, at byte (\d+) \(line (\d+)\)", str(raised.value))
        assert place, cut
        assert abs(int(place[1]) - cut) <= 1
        assert abs(int(place[2]) - 1 - cut_text.count(b"\n")) <= 1


def test_cut_off_gzip(builder, write):
    """The error says so, and where in the content."""
    packed = gzip.compress(builder.json().encode())
    for cut in range(30, len(packed), 97):
        with pytest.raises(TraceFileError, match=r"the gzip data end early, at byte \d+ of the content"):
            RankTrace.load(0, write("cut.json.gz", packed[:cut]))


@pytest.mark.parametrize("layout", ["kineto", "compact", "lines"])
@pytest.mark.parametrize("size", [200, 128 << 10])
@pytest.mark.parametrize(
    ("event", "offset"),
    [
        (EVENT % ("a", '"x" }'), len(EVENT % ("a", '"x" ')) - 2),
        ('{"ph" "X"}', 6),
        (EVENT % ('lost, "tid": 1', ""), (EVENT % ('lost, "tid": 1', "")).index('"tid": 1')),
        (EVENT % ("a", '"x": 1 "y": 2'), (EVENT % ("a", '"x": 1 "y": 2')).index('"y"')),
        ('{"ph": ]}', 7),
        (EVENT % ("a", '"x": tru'), (EVENT % ("a", '"x": tru')).index("tru")),
    ],
)
def test_damage_has_a_place(event, offset, layout, size, write, chunks_of):
    """Byte and line of the fault; a byte off is near enough."""
    fine = EVENT % ("fine", '"stream": 7')
    text = trace_of(*[fine] * 20, event, *[fine] * 20, layout=layout)
    path = write("damaged.json", text)
    chunks_of(size)
    with pytest.raises(TraceFileError, match="not valid JSON at byte") as raised:
        RankTrace.load(0, path)
    place = re.search(r"byte (\d+) \(line (\d+)\)", str(raised.value))
    at = text.index(event[:-1]) + offset
    assert place
    assert abs(int(place[1]) - at) <= 3
    assert abs(int(place[2]) - text[:at].count("\n") - 1) <= 1


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no traceEvents"),
        (b" \n\t", "no traceEvents"),
        (b"hello world\n" * 50, "no traceEvents"),
        (bytes(2000), "no traceEvents"),
        (b"\x1f\x8b", "gzip"),
        (b"\x1f\x8b\x08\0garbage", "gzip"),
        (b"PK\x03\x04garbage", "damaged archive"),
        (b"\x28\xb5\x2f\xfdgarbage", "zstd"),
        (b'{"a": [1, 2]}', "no traceEvents"),
        (b'{"traceEvents": null}', "no traceEvents"),
        (b'{"traceEvents": {"a": 1}}', "no traceEvents"),
        (b'{"traceEvents": []}}', "not valid JSON"),
        (b'{"traceEvents": [] "a": 1}', "not valid JSON"),
        (b'{"traceEvents": [], "a": 1', "ends early"),
        (b'{"traceEvents": [', "ends early"),
        (b'["a", {"ph": "X"}] garbage', "text behind the array"),
        (b'{"traceEvents": [}', "not valid JSON"),
        (b'{"traceEvents": [1 2 {"ph": "X"}]}', "not valid JSON"),
        (b'{"traceEvents": [{"ph": "X", "args": ' + b"[" * 10**5 + b"]" * 10**5 + b"}]}", "recursion"),
        (b'{"traceEvents": [' + b"[" * 10**5 + b"]" * 10**5 + b"]}", "recursion"),
        (b'{"traceEvents": [' + b"[" * 10**5, "ends early|not valid JSON"),
        (b'{"a": ' + b"[" * 10**5 + b"]" * 10**5 + b', "traceEvents": []}', "metadata"),
        (b'{"traceEvents": [{"ph": "X", "args": {"a": 1e999}}]}', "out of range"),
        (b'{"traceEvents": [{"ph": "X", "args": {"a": ' + b"9" * 5000 + b"}}]}", "out of range"),
    ],
)
def test_no_trace(data, reason, write):
    """The reason fits in a sentence."""
    with pytest.raises(TraceFileError, match=reason) as raised:
        RankTrace.load(0, write("t.json", data))
    assert len(str(raised.value)) < 250


def test_the_metadata_have_a_place_too(write):
    """Before and behind the events."""
    for text in ('{"a": x,\n"traceEvents": []}', '{"traceEvents": [\n],\n"a": x, "b": 1234567890}'):
        at = text.index("x")
        with pytest.raises(TraceFileError, match=rf"at byte {at} \(line {text[:at].count(chr(10)) + 1}\)"):
            RankTrace.load(0, write("t.json", text))


def test_the_rest_of_a_rank_is_used(tmp_path):
    """Of several files of a rank, a damaged one costs only itself, whichever it is."""
    for bad in range(3):
        folder = tmp_path / str(bad)
        for n in range(3):
            TraceBuilder(rank=0).kernel(f"k{n}", 1000 * n, 10).write(folder / f"host_1.{10**10 + n}.pt.trace.json")
        path = sorted(folder.iterdir())[bad]
        path.write_bytes(path.read_bytes()[:-40])
        trace = RankTrace.load(0, sorted(folder.iterdir()))
        assert trace.device_events["name"].tolist() == [f"k{n}" for n in range(3) if n != bad]
        assert [name for name, _ in trace.problems] == [path.name]
        assert trace.loaded.counts["kernel"] == 2


def test_no_file_of_a_rank_can_be_used(write):
    """Each is named with its reason; a single one gives the reason alone."""
    paths = [write(f"{n}.json", "{") for n in range(2)]
    early = r"the file ends early, at byte 1 \(line 1\): no traceEvents in it"
    with pytest.raises(TraceFileError, match=rf"^0\.json: {early}; 1\.json: {early}$"):
        RankTrace.load(0, paths)
    with pytest.raises(TraceFileError, match=rf"^{early}$"):
        RankTrace.load(0, paths[0])
    with pytest.raises(TraceFileError, match="No such file"):
        RankTrace.load(0, paths[0].parent / "gone.json")
    with pytest.raises(TraceFileError, match="no file"):
        RankTrace.load(0, [])


def test_json_is_what_python_says_it_is(write, rows_of, rows_by_json):
    """Characters that only look like line breaks, and escapes of every kind."""
    names = ["\u2028\u2029\x85", "\ufeff", "\u00e9", "\U0001f600", "/\b\f\n\r\t", "\x7f"]
    events = [{"ph": "X", "cat": "cpu_op", "name": n, "pid": 1, "tid": 1, "ts": 1, "dur": 1} for n in names]
    for ascii_only in (True, False):
        text = json.dumps({"traceEvents": events}, ensure_ascii=ascii_only)
        assert rows_of(RankTrace.load(0, write("t.json", text))) == rows_by_json(text)
