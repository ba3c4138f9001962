"""Keys that stand twice in an object: the last counts, and where the values differ it is said."""

from __future__ import annotations

import json

import mutants
import pytest
from builder import TraceBuilder

from htareport.reading.text.decode import Reader
from htareport.reading.text.load import read_file
from htareport.reading.text.repair.repeated_keys import REPEATED
from htareport.trace import RankTrace

KERNEL = (
    '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": %d, "dur": 1, "dur": 2, '
    '"args": {"device": 0, "stream": 7, "correlation": %d, "correlation": %d}}'
)
OPERATOR = '{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": %d, "dur": 3}'


def slip(path):
    """The slip about repeated keys, None if there is none."""
    return read_file(path, Reader()).repairs.slips.get(REPEATED)


def test_differing_values(write):
    """Of an event and of its arguments; counted, with place and line, as any slip."""
    lines = [*[OPERATOR % at for at in range(5)], KERNEL % (9, 3, 4), KERNEL % (12, 5, 5)]
    text = '{"traceEvents": [\n' + ",\n".join(lines) + "\n]}"
    path = write("rank0.json", text)
    found = slip(path)
    assert (found.count, found.byte, found.line) == (3, text.index('{"ph": "X", "cat": "kernel"'), 7)
    trace = RankTrace.load(0, path)
    assert trace.device_events["dur"].tolist() == [2000, 2000]
    assert trace.device_events["correlation"].tolist() == [4, 5]
    assert f"repaired: 3 {REPEATED} (the first at byte {found.byte}, line 7)" in trace.warnings[0]


@pytest.mark.parametrize("count", [2000, 6000])
def test_wherever_a_kind_of_events_begins(count, write, chunks_of):
    """Far behind the first events, too, and in everything that follows."""
    chunks_of(4000)
    lines = [*[OPERATOR % at for at in range(count)], *[KERNEL % (at, 1, 2) for at in range(100)]]
    found = slip(write("rank0.json", '{"traceEvents": [\n' + ",\n".join(lines) + "\n]}"))
    assert (found.count, found.line) == (200, count + 2)


def test_equal_values_are_no_news(write):
    """Kineto has written some arguments twice."""
    same = KERNEL.replace('"dur": 1, ', '"dur": 2, ') % (1, 4, 4)
    assert slip(write("rank0.json", f'{{"a": 1, "traceEvents": [{same}], "a": 1}}')) is None
    for layout in mutants.LAYOUTS:
        assert slip(write("rank0.json", mutants.original(layout).text)) is None


def test_events_that_are_read_one_by_one(write):
    """Where a slip of another kind is mended."""
    bare = OPERATOR.replace('"a"', '"say "a""') % 1
    text = "[" + ",\n".join([bare, KERNEL % (9, 3, 4), bare]) + "]"
    found = slip(write("rank0.json", text))
    assert (found.count, found.byte, found.line) == (2, text.index('{"ph": "X", "cat": "kernel"'), 2)


@pytest.mark.parametrize("keys", ['"a": 1, "a": 2', '"b": {"rank": 0, "rank": 1}', '"a": 1, "b": 2, "a": [2]'])
def test_metadata(keys, write):
    """Before and behind the events."""
    events = json.dumps(TraceBuilder(None).kernel("k", 1, 2).events, default=float)
    for text in (f'{{{keys}, "traceEvents": {events}}}', f'{{"traceEvents": {events}, {keys}}}'):
        found = slip(write("rank0.json", text))
        assert found.count == 1
        assert text.startswith(('"a"', '"rank"'), found.byte)


def test_on_the_command_line(write, cli):
    """A warning, and a row in trace quality."""
    write("rank0.json", "[" + KERNEL % (9, 3, 4) + "]")
    ran = cli("report", "rank0.json", "-o", "a.md", "--only", "trace_quality")
    assert ran.status == 0
    assert f"repaired: 2 {REPEATED} (the first at byte 1, line 1)" in ran.err
