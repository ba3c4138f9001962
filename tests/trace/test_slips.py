"""Slips of trace writers: mended, counted and named with file and place; what is fine beside them stays as it is."""

from __future__ import annotations

import json
import re

import pytest

from htareport.errors import TraceFileError
from htareport.reading.text.decode import Reader
from htareport.reading.text.load import read_file
from htareport.trace import RankTrace

EVENT = '{"ph": "X", "cat": "%s", "name": "%s", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {%s}}'
LAYOUTS = pytest.mark.parametrize("layout", ["kineto", "compact", "spaced", "lines", "array"])
WHOLE = 128 << 10  # A chunk that holds all that is written here.
ANYWHERE = pytest.mark.parametrize(
    ("layout", "size"),
    [
        *((layout, 200) for layout in ("kineto", "compact", "spaced", "lines", "array")),
        *((layout, WHOLE) for layout in ("kineto", "array")),
        *(pytest.param(layout, WHOLE, marks=pytest.mark.slow) for layout in ("compact", "spaced", "lines")),
    ],
)


def trace_of(events, layout):
    """The bytes of a trace; names may hold bytes, as latin-1."""
    separator, end = {"kineto": (",\n  ", "\n  "), "spaced": (", ", ""), "lines": (",\n", "\n")}.get(layout, (",", ""))
    lines = [event[:-1] + "\n  }" if layout == "kineto" else event for event in events]
    array = f"[{end}{separator.join(lines)}{end}]"
    text = array if layout == "array" else f'{{"schemaVersion": 1, "traceEvents": {array}, "traceName": "x"}}'
    return text.encode("latin-1")


def kernels(layout, name, args=""):
    """A slip in every seventh event."""
    return [event(layout, "kernel", *((name, args) if n % 7 == 3 else ("fine", f'"stream": {n}'))) for n in range(40)]


def event(layout, *parts):
    """A compact one has no blanks but in its names and arguments."""
    template = EVENT.replace('": ', '":').replace(', "', ',"') if layout == "compact" else EVENT
    return template % parts


@ANYWHERE
class TestMended:
    """In any layout, and wherever the text is cut while it is read."""

    @pytest.mark.parametrize(
        ("name", "meant", "what", "count"),
        [
            (r"C:\Users\me\train.py(3): f", r"C:\Users\me" + "\train.py(3): f", "lone backslashes", 2),
            (r"C:\users\x", r"C:\users\x", "lone backslashes", 2),
            (r"\q\\w\"", '\\q\\w"', "lone backslashes", 1),
            (r"a\xb", r"a\xb", "lone backslashes", 1),
            ("C:\\dir\\", "C:\\dir\\", "lone backslashes", 2),
            (r"a\ud800b", "a\ufffdb", "lone surrogates", 1),
            (r"a\ud83d\ude00b\udc00", "a😀b\ufffd", "lone surrogates", 1),
            ('say "hi"', 'say "hi"', "stray quotes", 2),
            ('5" pipe', '5" pipe', "stray quotes", 1),
            ('guards {"device": "cpu"}', 'guards {"device": "cpu"}', "stray quotes", 4),
            ('{"a": "b", "c": 1, "d": ["e"]}', '{"a": "b", "c": 1, "d": ["e"]}', "stray quotes", 10),
            ("line\none\ttwo\x01", "line\none\ttwo\x01", "control characters", 3),
            ("gr\xfc\xdfe", "gr\ufffd\ufffde", "bytes that are not UTF-8", 2),
        ],
    )
    def test_names(self, name, meant, what, count, layout, size, write, chunks_of):
        """The name is what was meant, and the events around it keep theirs."""
        data = trace_of(kernels(layout, name), layout)
        path = write("windows.json", data)
        chunks_of(size)
        trace = RankTrace.load(0, path)
        assert trace.device_events["name"].tolist() == [meant if n % 7 == 3 else "fine" for n in range(40)]
        (warning,) = trace.warnings
        assert warning.startswith(f"windows.json: repaired: {6 * count} {what} (the first at byte ")
        assert abs(int(re.search(r"byte (\d+)", warning)[1]) - data.index(name.encode("latin-1"))) <= len(name)

    @pytest.mark.parametrize(
        "token", ["nan", "-nan", "NaN", "inf", "-inf", "Infinity", "-Infinity", "-nan(ind)", "N/A", ""]
    )
    def test_numbers(self, token, layout, size, write, chunks_of):
        """They are missing values, and counted; text of that name stays text."""
        text = '"memory bandwidth (GB/s)": %s, "bytes": %s, "stream": 7'
        events = [event(layout, "gpu_memcpy", "nan", text % ("2.5", n)) for n in range(30)]
        events[5] = event(layout, "gpu_memcpy", ": inf, nan", text % (token, token))
        data = trace_of(events, layout)
        path = write("rank0.json", data)
        chunks_of(size)
        trace = RankTrace.load(0, path)
        table = trace.events["gpu_memcpy"]
        assert table["bandwidth"].isna().tolist() == [n == 5 for n in range(30)]
        assert table["bytes"].tolist() == [-1 if n == 5 else n for n in range(30)]
        assert table["name"].tolist() == [": inf, nan" if n == 5 else "nan" for n in range(30)]
        (warning,) = trace.warnings
        what = "values that are no numbers" if token else "missing values"
        at = data.index(b'"memory bandwidth', data.index(b": inf, nan")) + len('"memory bandwidth (GB/s)":')
        assert re.fullmatch(rf"rank0\.json: repaired: 2 {what} \(the first at byte \d+, line \d+\)", warning)
        assert 0 <= int(re.search(r"byte (\d+)", warning)[1]) - at <= 1

    @pytest.mark.parametrize(
        ("args", "count"), [('"x": 1,', 6), ('"x": [1, 2, ]', 6), (', "x": 1', 6), ('"x": 1,, "y": 2', 6)]
    )
    def test_commas_within_events(self, args, count, layout, size, write, chunks_of):
        """Those that separate nothing are dropped."""
        path = write("a.json", trace_of(kernels(layout, "comma", args), layout))
        chunks_of(size)
        trace = RankTrace.load(0, path)
        assert trace.device_events["name"].tolist() == ["comma" if n % 7 == 3 else "fine" for n in range(40)]
        assert trace.warnings[0].startswith(f"a.json: repaired: {count} stray or missing commas (the first at byte ")

    @pytest.mark.parametrize(("old", "new"), [("},", "},,"), ("},", "}"), ("}]", "},]"), ("}\n  ]", "},\n  ]")])
    def test_commas_between_events(self, old, new, layout, size, write, chunks_of):
        """One too many, or one that is not there."""
        text = trace_of(kernels(layout, "comma", '"x": 1'), layout).decode()
        at = text.rfind(old)
        if at < 0 or (old == "},") == (layout == "kineto"):
            pytest.skip("there is no such place in this layout")
        path = write("a.json", text[:at] + new + text[at + len(old) :])
        chunks_of(size)
        trace = RankTrace.load(0, path)
        assert len(trace.device_events) == 40
        assert trace.warnings[0].startswith("a.json: repaired: 1 stray or missing comma (the first at byte ")

    def test_all_at_once(self, layout, size, write, chunks_of):
        """Of several slips in one event each is counted."""
        events = kernels(layout, 'a "b" \\q \x07 \xff', '"x": , "y": nan, "z": ["say "no"",],')
        path = write("a.json", trace_of(events, layout))
        chunks_of(size)
        trace = RankTrace.load(0, path)
        assert trace.device_events["name"].tolist()[3] == 'a "b" \\q \x07 \ufffd'
        counts = {what: int(n) for n, what in re.findall(r"(\d+) ([a-z][A-Za-z 8-]+) \(", trace.warnings[0])}
        assert counts == {
            "bytes that are not UTF-8": 6, "control characters": 6, "lone backslashes": 6, "missing values": 6,
            "stray or missing commas": 12, "stray quotes": 24, "values that are no numbers": 6,
        }  # fmt: skip

    def test_a_good_file_is_never_mended(self, layout, size, write, chunks_of):
        """The slow road is for those that need it."""
        names = ['say \\"hi\\"', r"C:\\dir\\", "nan, inf", "}, {", '}, {\\"ph\\": \\"X\\"', "\xc3\xbc", r"\u00e9\n"]
        args = '"x": [{"ph": 1}, {"name": "b"}], "y": {}, "z": [], "Infinity": -1.5e-3'
        events = [event(layout, category, name, args) for name in names for category in ("kernel", "cpu_op", "new")] * 5
        path = write("a.json", trace_of(events, layout))
        chunks_of(size)
        content = read_file(path, Reader())
        assert content.repairs.entered == 0
        assert content.repairs.slips == {}


def test_metadata_are_mended_too(write):
    """Around the events, before and behind, whatever the slip; what is fine stays."""
    text = (
        r"""{"path": "C:\Users", "deviceProperties": [{"id": 0, "name": "A", "x": inf}], "traceEvents": [], "y": nan}"""
    )
    trace = RankTrace.load(0, write("a.json", text))
    assert trace.device_name(0) == "A"
    assert trace.captures[0].meta["path"] == r"C:\Users"
    at = {what: text.index(what) for what in ("\\U", "inf")}
    assert trace.warnings[0] == (
        f"a.json: repaired: 1 lone backslash (the first at byte {at[chr(92) + 'U']}, line 1), "
        f"2 values that are no numbers (the first at byte {at['inf']}, line 1)"
    )
    log = '{"INFO": ["wait for "rank" 3", "b"], "pg": ,"traceEvents": [\n],\n "c": "d\ne", "traceName": "x" ,}'
    trace = RankTrace.load(0, write("a.json", log))
    assert trace.captures[0].meta == {"INFO": ['wait for "rank" 3', "b"], "pg": None, "c": "d\ne", "traceName": "x"}
    warning = trace.warnings[0]
    assert "2 stray quotes" in warning
    assert "1 missing value" in warning
    assert f"1 control character (the first at byte {log.index('d' + chr(10)) + 1}, line 3)" in warning


@pytest.mark.parametrize(
    "broken",
    [
        '"name": "lost, "pid": 0, "tid": 7, "ts": 1',
        '"cat": "lost, "name": "a", "pid": 0, "tid": 7, "ts": 1',
        '"cat": "kernel", "name": "a", "pid": 0, "tid": 7, "t',
        '"cat": "kernel", "name": "a"ts": 1',
        '"name": "a", "ts": 1 "dur": 2',
        '"name": "a", "ts": 1, "args": {"Collective name": "lost, "In msg nelems": 2, "dtype": "Float"',
    ],
)
def test_nothing_is_made_up(broken, write):
    """An event that has lost a piece is damaged, not mended into another one."""
    event = '{"ph": "X", ' + broken + ', "dur": 5, "args": {"stream": 7}}'
    good = EVENT % ("kernel", "fine", "")
    with pytest.raises(TraceFileError, match=r"not valid JSON at byte \d+ \(line 1\)"):
        RankTrace.load(0, write("a.json", f"[{good},{event},{good}]"))


def test_of_two_values_of_a_key_the_last_counts(write):
    """As Python has it."""
    args = '"args": {"stream": 7, "stream": 8}'
    event = f'{{"ph": "X", "cat": "kernel", "name": "a", "name": "b", "ts": 9, "ts": 1, "dur": 2, {args}}}'
    trace = RankTrace.load(0, write("a.json", f"[{event}]"))
    (row,) = trace.device_events.to_dict("records")
    assert (row["name"], row["ts"], row["stream"]) == ("b", 1000, 8)
    assert json.loads(event)["name"] == "b"


@LAYOUTS
def test_slips_cost_no_other_event(layout, write, rows_of, rows_by_json):
    """Mended by hand or by the program, the rows are the same."""
    events = [
        EVENT % ("cpu_op", f'op "{n}"' if n % 3 else f"op {n}", '"x": ' + ("" if n % 5 else "1")) for n in range(2000)
    ]
    by_hand = [
        event.replace('"op "', '"op \\"').replace('"", "pid"', '\\"", "pid"').replace('"x": }', '"x": null}')
        for event in events
    ]
    mended = RankTrace.load(0, write("a.json", trace_of(events, layout)))
    assert rows_of(mended) == rows_by_json(trace_of(by_hand, layout))


@pytest.mark.parametrize(
    "layout", ["kineto", *(pytest.param(each, marks=pytest.mark.slow) for each in ("compact", "array"))]
)
def test_slips_at_every_place_where_a_chunk_may_end(layout, write, chunks_of):
    """A stretch of text that ends within a number or a string is not taken for damaged."""
    events = [event(layout, "kernel", f'say "{n}"', '"x": [1.5, -2e-3, true, null]') for n in range(12)]
    path = write("a.json", trace_of(events, layout))
    for size in range(60, 125):
        chunks_of(size)
        assert RankTrace.load(0, path).device_events["name"].tolist() == [f'say "{n}"' for n in range(12)]
