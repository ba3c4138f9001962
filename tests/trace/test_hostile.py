"""Input made to hurt, and input damaged at random: bounded time, and never an error of another kind."""

from __future__ import annotations

import gzip
import random
import time

import pytest

from htareport.errors import HtaReportError
from htareport.rows.options import ReadOptions
from htareport.trace import RankTrace, Trace

EVENT = '{"ph": "X", "cat": "kernel", "name": "%s", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {%s}}'


def hostile():
    event = EVENT % ("a", '"stream": 7')
    size = 750_000
    yield "one line", "[" + ",".join([event] * 10_000) + "]"
    yield "one line, nested", "[" + ",".join([EVENT % ("a", '"x": [{"a": 1}, {"b": 2}]')] * 8_000) + "]"
    yield "one large event", "[" + event + "," + EVENT % ("b", '"x": [' + '{"a": 1}, ' * (size // 10) + "{}]") + "]"
    yield "one large name", "[" + EVENT % ("b" * size, "") + "]"
    yield "name of backslashes", "[" + EVENT % ("\\\\" * (size // 2), "") + "]"
    yield "name of lone backslashes", "[" + EVENT % ("\\q" * (size // 20), "") + "]"
    yield "name of brackets", "[" + EVENT % ("}, {]" * (size // 5), "") + "]"
    yield "name of namespaces", "[" + EVENT % ("tensorrt_llm::" * (size // 14), "") + "]"
    yield "blanks", "[" + " " * size + event + "\n" * size + "," + " " * size + event + "]"
    yield "commas", "[" + event + "," * size + "]"
    yield "numbers", "[" + "1," * (size // 2) + event + "]"
    yield "closing brackets", '{"traceEvents": [], "distributedInfo": {"a": [' + "{}," * (size // 3) + "{}]}"
    yield "opening brackets", "[" + event + "," + "{" * size
    yield "open string", "[" + event + ',{"a": "' + "}, {" * (size // 4)
    yield "quotes", "[" + event + "," + '"' * size + "]"
    yield "nested objects", "[" + event + "," + '{"a":' * (size // 5) + "1" + "}" * (size // 5) + "]"
    yield "keys", '{"traceEvents"' * (size // 14)
    yield "unique names", "[" + ",".join(EVENT % (n, "") for n in range(10_000)) + "]"
    yield "unique lanes", "[" + ",".join(EVENT % ("a", f'"stream": "{n}"') for n in range(10_000)) + "]"
    rest = '"name": "a", "ts": 1, "dur": 1}'
    yield "unique categories", "[" + ",".join(f'{{"ph": "X", "cat": "{n}", {rest}' for n in range(10_000)) + "]"
    yield "unique phases", "[" + ",".join(f'{{"ph": "{n}", {rest}' for n in range(10_000)) + "]"
    yield "names of processes", "[" + ",".join(f'{{"ph": "M", "pid": {n}, {rest}' for n in range(10_000)) + "]"
    yield (
        "events without lines",
        '{"traceEvents": [\n' + "},\n{".join(['{"ph": "X"'] + ['"a": [{"ph": "X"'] * 15_000) + "}]}",
    )


def broken():
    event = EVENT % ("a", '"stream": 7')
    size = 3_000_000
    yield "bare quotes", "[" + EVENT % ('"a ' * (size // 9), "") + "," + event + "]"
    yield "bare quotes before blanks", "[" + ",".join([EVENT % ('"' + " " * 300, "")] * (size // 3 // 400)) + "]"
    yield "quotes that seem to end", "[" + EVENT % ('", "x": ' * (size // 3 // 8), "") + "," + event + "]"
    yield "brackets that seem to end", "[" + EVENT % ('"}, {"ph": ' * (size // 3 // 11), "") + "," + event + "]"
    yield "backslashes that seem to end", "[" + EVENT % ('\\", "ts": ' * (size // 3 // 10), "") + "," + event + "]"
    yield "lost brackets", "[" + ",".join(['{"ph": "X", "name": "a", "args": {"b": 1}'] * (size // 3 // 41)) + "]"
    yield "lost quotes", "[" + ",".join(['{"ph": "X", "name": "a, "ts": 1}'] * (size // 3 // 32)) + "]"
    yield "slips in every event", "[" + ",".join([EVENT % ('say "a"', '"x": , "y": nan,')] * 5_000) + "]"
    yield "nothing but missing values", "[" + EVENT % ("a", '"x": ,' * (size // 3 // 6)) + "]"
    yield "control characters", "[" + EVENT % ("\1" * (size // 3), "") + "," + event + "]"


BROKEN = {"numbers", "opening brackets", "open string", "quotes", "nested objects", *dict(broken())}
CASES = [(name, text, False) for name, text in hostile()]
CASES += [(f"{name}, salvaged", text, True) for name, text in (*broken(), *hostile()) if name in BROKEN]


@pytest.mark.parametrize(
    ("text", "salvage"),
    [pytest.param(*case, id=name, marks=[pytest.mark.slow] * case[-1]) for name, *case in CASES],
)
def test_hostile_input_takes_no_longer_than_its_size(text, salvage, write):
    """Time is bounded, quadratic behaviour would take a minute; the outcome is a trace or an error for the user."""
    path, start, reason = write("t.json", text), time.process_time(), ""
    try:
        files = next(iter(Trace.open(path).files.values()))
        assert RankTrace.load(0, files, options=ReadOptions(salvage=salvage)).warnings is not None
    except HtaReportError as error:
        reason = str(error)
    assert len(reason) < 400
    assert time.process_time() - start < (6 if salvage else 3)


def mutated(data, random_):
    """The bytes with a few of them cut, flipped, deleted or inserted."""
    data = bytearray(data)
    for _ in range(random_.choice([1, 1, 2, 5])):
        at = random_.randrange(len(data)) if data else 0
        match random_.randrange(5):
            case 0:
                del data[at:]
            case 1 if data:
                data[at] ^= 1 << random_.randrange(8)
            case 2:
                del data[at : at + random_.randrange(20)]
            case 3:
                data[at:at] = random_.choice(
                    [b'"', b"\\", b"{", b"}", b"[", b"]", b",", b"\0", b"\xff", b"nan", b"}, {"]
                )
            case _:
                start = random_.randrange(len(data)) if data else 0
                data[at:at] = data[start : start + random_.randrange(300)]
    return bytes(data)


@pytest.mark.parametrize(
    ("packed", "count"), [(False, 40), *(pytest.param(each, 100, marks=pytest.mark.slow) for each in (False, True))]
)
@pytest.mark.parametrize("layout", ["kineto", "compact", "array"])
def test_fuzz(layout, packed, count, builder, write, chunks_of):
    """Whatever is wrong with the bytes: a trace whose tables can be made, or an error for the user."""
    chunks_of(600)
    text, loaded = builder.json(layout).encode(), 0
    random_ = random.Random(f"{layout} {packed}")  # noqa: S311  the same in every run
    for _ in range(count):
        data = mutated(gzip.compress(text, 1) if packed else text, random_)
        path = write("rank0.pt.trace.json", data)
        try:
            trace = RankTrace.load(0, next(iter(Trace.open(path).files.values())))
        except HtaReportError:
            continue
        loaded += 1
        assert len(trace.device_events) <= len(trace.events)
        assert [len(trace.events[category]) for category in trace.events]
        assert isinstance(trace.warnings, tuple)
        assert len(trace.steps) < 10
        assert len(trace.collectives) < 10
    assert packed or loaded > count // 25
