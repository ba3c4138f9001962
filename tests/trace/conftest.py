"""What the tests of the loader share: a trace with everything in it, and the events of a file by plain JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from builder import TraceBuilder

from htareport.rank.window import Window
from htareport.reading.sources import heads
from htareport.reading.text import load, split, unpack
from htareport.trace import RankTrace

NASTY = [
    'say "hi"', '{"device": "cpu"}', 'a}, {"ph": "X"', "back\\slash", "}],", "[[[", "{{{", '\\"', "tab\there", "новый",
    "emoji 😀", '"traceEvents": [', "\u2028", "end\\", "}, {", "},{", "line\nbreak", "", "nan", ": inf,", "\u0000", "]",
]  # fmt: skip
NESTED = [{"ph": "X", "a": 1}, {"ph": "Y", "b": [{"c": 2}, {"d": [[], {}]}]}]
NOT_ROWS = {"ac2g", "fwdbwd", "cpu_instant_event", "Trace"}  # Categories that are counted only.

Rows = dict[str, list[tuple[Any, ...]]]


@pytest.fixture
def builder() -> TraceBuilder:
    """A small trace with all that Kineto writes, and names that a splitter may stumble over."""
    made = TraceBuilder(rank=3, world_size=8, base_ns=0, devices=2)
    made.event({"ph": "M", "name": "process_name", "pid": 1003, "tid": 0, "ts": 0, "args": {"name": "python"}})
    for number in range(2):
        made.step(number, 1000 + 1000 * number, "999.999")
    for number, name in enumerate(NASTY):
        at = 1000 + 20 * number
        made.cpu_op(name, at, "9.875", **({"kwargs": NESTED, "Input Dims": [[8, 16], []]} if number % 3 == 0 else {}))
        made.kernel(name, f"{at + 12}.{number:03d}", "6.5", launch=(at + 1, 2), grid=[1, 2, 3])
        made.event({"ph": "s", "id": number, "pid": 1003, "tid": 1003, "ts": at, "cat": "ac2g", "name": "ac2g"})
        made.event({"ph": "C", "name": "GPU", "pid": "counter", "tid": 0, "ts": at, "args": {"v": number}})
    made.memcpy("HtoD (Pinned -> Device)", 1500, 8, bytes=4096, bandwidth=0.512, launch=(1490, 3))
    made.memset(1520, 1, bytes=64, stream=9)
    made.graph_launch(1600, 5, [("graphed", 1610, 4), ("graphed", 1620, 4)])
    made.collective("ncclDevKernel_AllReduce_Sum", "allreduce", 1700, 30, launch=(1690, 2))
    made.gpu_annotation("ProfilerStep#0", 1000, 1000)
    made.python_function("train.py(1): step", 1000, 900)
    made.complete("cuda_sync", "Stream Sync", 0, 7, (1750, 5), {"stream": 7})
    made.event({"ph": "i", "s": "t", "name": "[memory]", "cat": "cpu_instant_event", "pid": 1003, "tid": 1, "ts": 1})
    return made.event({"ph": "X", "cat": "Trace", "name": "Iteration", "pid": "Traces", "tid": "t", "ts": 1, "dur": 9})


@pytest.fixture
def write(tmp_path) -> Callable[..., Path]:
    """A function that writes a file of this name and content."""

    def written(name: str, data: bytes | str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    return written


@pytest.fixture
def chunks_of(monkeypatch) -> Callable[[int], None]:
    """A function that sets the sizes in which text is read and cut."""

    def set_sizes(size: int) -> None:
        for module in (split, load, heads):
            monkeypatch.setattr(module, "CHUNK", size)
        monkeypatch.setattr(unpack, "BLOCK", size)
        monkeypatch.setattr(unpack, "READ", max(size // 2, 512))

    return set_sizes


def nanoseconds(value: Any) -> int | None:
    """What a value of the file is in ns, going by Python's decimals."""
    try:
        return int((Decimal(value) * 1000).to_integral_value())
    except (ArithmeticError, TypeError, ValueError):
        return None


@pytest.fixture
def rows_by_json() -> Callable[..., Rows]:
    """A function that gives the rows of a JSON text by category: name, ts, dur (ns), pid, tid."""

    def rows(text: str | bytes) -> Rows:
        trace = json.loads(text, parse_float=Decimal)
        found: Rows = {}
        base = trace.get("baseTimeNanoseconds", 0) if isinstance(trace, dict) else 0
        for event in trace["traceEvents"] if isinstance(trace, dict) else trace:
            if not isinstance(event, dict) or event.get("ph") != "X" or event.get("cat") in NOT_ROWS:
                continue
            ts, dur = nanoseconds(event.get("ts")), nanoseconds(event.get("dur"))
            if ts is not None and dur is not None and dur >= 0:
                row = (str(event.get("name", "")), ts + base, dur, event.get("pid", -1), event.get("tid", -1))
                found.setdefault(event.get("cat") or "", []).append(row)
        return found

    return rows


@pytest.fixture
def rows_of() -> Callable[[RankTrace], Rows]:
    """A function that gives the rows of a loaded trace in the same form."""

    def rows(trace: RankTrace) -> Rows:
        columns = ("name", "ts", "dur", "pid", "tid")
        return {
            category: list(zip(*(trace.events[category][column].tolist() for column in columns), strict=True))
            for category in trace.events
        }

    return rows


@pytest.fixture(name="load")
def load_fixture(tmp_path) -> Callable[..., RankTrace]:
    """A function that writes a builder's trace, or several captures of a rank, and loads it."""

    def loaded(*builders: TraceBuilder, rank: int = 0, window: Window | None = None) -> RankTrace:
        stamps = range(10**10, 10**10 + len(builders))
        paths = [b.write(tmp_path / f"h.{n}.pt.trace.json") for n, b in zip(stamps, builders, strict=True)]
        return RankTrace.load(rank, paths[0] if len(paths) == 1 else paths, window or Window())

    return loaded


@pytest.fixture
def row() -> Callable[..., dict[str, Any]]:
    """A function that gives a complete event; a category of None is left out."""

    def event(cat: str | None, name: str, ts: Any = 10, dur: Any = 5, pid: Any = 0, tid: Any = 7, **args: Any) -> Any:
        made = {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}
        return made if cat is None else {"cat": cat, **made}

    return event
