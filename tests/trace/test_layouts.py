"""Every way to write the same JSON gives the same events, wherever the text is cut."""

from __future__ import annotations

import json
import re

import pytest

from htareport.errors import TraceFileError
from htareport.trace import RankTrace

SIZES = [200, *(pytest.param(size, marks=pytest.mark.slow) for size in (1000, 5000)), 128 << 10]
OBJECTS = [{"a": n, "name": "x", "ph": "X", "list": [{"b": 1}]} for n in range(1000)]


def kineto_2026(text: str) -> str:
    """One key per line, and an empty line before the first event."""
    trace = json.loads(text)
    events = ",\n".join(
        "  {\n" + ",\n".join(f'    "{key}": {json.dumps(value)}' for key, value in event.items()) + "\n  }"
        for event in trace.pop("traceEvents")
    )
    head = "".join(f'  "{key}": {json.dumps(value)},\n' for key, value in trace.items())
    return f'{{\n{head}  "traceEvents": [\n    \n{events}\n  ]\n}}\n'


def reordered(trace, *, first: bool, **more):
    rest = {key: value for key, value in trace.items() if key != "traceEvents"} | more
    events = {"traceEvents": trace["traceEvents"]}
    return events | rest if first else rest | events


LAYOUTS = {
    "kineto": lambda text: text,
    "kineto 2026": kineto_2026,
    "compact": lambda text: json.dumps(json.loads(text), separators=(",", ":")),
    "compact with blanks": lambda text: json.dumps(json.loads(text)),
    "not escaped": lambda text: json.dumps(json.loads(text), ensure_ascii=False),
    **{f"indent {n!r}": lambda text, n=n: json.dumps(json.loads(text), indent=n) for n in (0, 1, 2, 4, "\t")},
    "sorted": lambda text: json.dumps(json.loads(text), sort_keys=True),
    "sorted, indent 2": lambda text: json.dumps(json.loads(text), sort_keys=True, indent=2),
    "array": lambda text: json.dumps(json.loads(text)["traceEvents"]),
    "array, sorted": lambda text: json.dumps(json.loads(text)["traceEvents"], sort_keys=True),
    "array, indent 2": lambda text: " \n" * 40 + json.dumps(json.loads(text)["traceEvents"], indent=2),
    "events first": lambda text: json.dumps(reordered(json.loads(text), first=True), indent=2),
    "events last": lambda text: json.dumps(reordered(json.loads(text), first=False)),
    "objects before": lambda text: json.dumps(reordered(json.loads(text), first=False, zz=OBJECTS), indent=1),
    "objects behind": lambda text: json.dumps(reordered(json.loads(text), first=True, zz=OBJECTS), indent=1),
    "objects behind, compact": lambda text: json.dumps(reordered(json.loads(text), first=True, zz=OBJECTS)),
    "one event a line": lambda text: (
        '{"traceEvents": [\n' + ",\n".join(map(json.dumps, json.loads(text)["traceEvents"])) + "\n]}"
    ),
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "BOM": lambda text: "\ufeff" + text,
    "blanks": lambda text: re.sub(r'"traceEvents":', '"traceEvents"  :\n', " \n" * 50 + text + "\n" * 50),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout(layout, size, builder, write, chunks_of, rows_of, rows_by_json):
    """The rows are those of a JSON parser, the repairs none, and the rank is found where there is one."""
    text = LAYOUTS[layout](builder.json())
    path = write("trace.json", text)
    chunks_of(size)
    trace = RankTrace.load(3, path)
    assert rows_of(trace) == rows_by_json(text.lstrip("\ufeff"))
    assert not trace.loaded.warnings
    assert len(trace.device_events) == 27
    assert trace.loaded.counts["ac2g"] == 22
    if not layout.startswith(("array", "one event")):
        assert trace.captures[0].meta["distributedInfo"]["rank"] == 3
        assert trace.device_name(0) == "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("indent", [None, 1])
def test_things_that_are_no_events(indent, size, write, chunks_of, rows_of):
    """Numbers, texts, lists and nulls in the array are passed over; the events around them are all there."""
    event = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 2, "ts": 3, "dur": 4}
    others = [1, "}, {", None, [], [event, [{}]], True, {}, -1.5e3]
    events = [other for n in range(40) for other in (event | {"ts": n}, others[n % len(others)])]
    path = write("trace.json", json.dumps({"schemaVersion": 1, "traceEvents": events}, indent=indent))
    chunks_of(size)
    assert rows_of(RankTrace.load(0, path)) == {"cpu_op": [("a", n * 1000, 4000, 1, 2) for n in range(40)]}


@pytest.mark.parametrize(
    "text", ['{"traceEvents": []}', '{"traceEvents":[ \n ] , "a": {"b": []}}', '{"traceEvents": [1, "x"]}']
)
def test_no_events(text, write):
    """An empty trace is one without events."""
    trace = RankTrace.load(0, write("trace.json", text))
    assert len(trace.events) == 0
    assert (trace.start_ns, trace.end_ns, len(trace.device_events), len(trace.steps)) == (None, None, 0, 0)
    assert not trace.capabilities
    assert trace.warnings == (
        "trace.json: no event of any duration is in it, so it adds nothing to the numbers of its rank",
    )


@pytest.mark.parametrize("indent", [None, 2])
def test_an_event_larger_than_any_window(indent, write, chunks_of, rows_of):
    """It may be first, in the middle, and last."""
    event = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 2, "ts": 3, "dur": 4}
    large = event | {"name": "b", "args": {"list": [{"key": [n]} for n in range(3000)]}}
    path = write("trace.json", json.dumps({"traceEvents": [large, event, event, large, event, large]}, indent=indent))
    chunks_of(200)
    assert [row[0] for row in rows_of(RankTrace.load(0, path))["cpu_op"]] == list("baabab")


def test_gets_faster_again_after_unusual_chunks(builder, write, chunks_of, rows_of, rows_by_json):
    """Unusual values in one chunk do not change what is read from the others."""
    for n in range(300):
        builder.cpu_op("plain", 5000 + n, 1)
        if n % 50 == 0:
            builder.event({"ph": "X", "cat": "cpu_op", "name": 7, "pid": 1.0, "tid": None, "ts": n, "dur": 1})
    path = write("trace.json", builder.json("compact"))
    chunks_of(1000)
    found = rows_of(RankTrace.load(0, path))["cpu_op"]
    expected = rows_by_json(builder.json("compact"))["cpu_op"]
    assert [row[:3] for row in found] == [row[:3] for row in expected]


def test_the_key_of_the_events_is_told_from_what_looks_like_it(write):
    """A string that looks like the key is none; a nested or second key of that name is an error, not a silent loss."""
    event = {"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 1}
    text = json.dumps({"x": '"traceEvents": [', "traceEvents": [event]})
    assert len(RankTrace.load(0, write("good.json", text)).events) == 1
    for number, start in enumerate(('{"x": {"traceEvents": []}, ', '{"traceEvents": [], ')):
        with pytest.raises(TraceFileError, match="traceEvents stands in it twice, or inside another object"):
            RankTrace.load(0, write(f"{number}.json", f'{start}"traceEvents": [{json.dumps(event)}]}}'))
