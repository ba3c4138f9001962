"""Counter tracks on paper values."""

from __future__ import annotations

import json

import jsonschema
import pytest
from builder import BASE_NS, TraceBuilder
from export_content import SCHEMA, content, sections_of

from htareport.export.counters import counter_events, write_counters
from htareport.export.files import CopyFolder
from htareport.trace import RankTrace


@pytest.fixture
def copy(tmp_path, two_steps):
    source = two_steps.write(tmp_path / "traces" / "rank0.json")
    return write_counters(RankTrace.load(0, source), CopyFolder(tmp_path / "out", [source]))[0]


def tracks(path) -> dict:
    found: dict = {}
    for event in content(path)["traceEvents"]:
        if event["ph"] == "C":
            ((key, value),) = event["args"].items()
            found.setdefault((event["name"], event.get("id"), key, event["pid"]), []).append((event["ts"], value))
    return found


def test_values(copy):
    """+1 at the start of a launch, -1 at that of its work; GB/s from start to end of a copy."""
    assert tracks(copy) == {
        ("Queue Length", "7", "Queue Length", 0): [(5, 1), (30, 0), (105, 1), (130, 0)],
        ("Queue Length", "9", "Queue Length", 0): [(85, 1), (90, 0), (185, 1), (190, 0)],
        ("Memcpy HtoD", None, "Memcpy BW", 0): [(90, 8.0), (95, 0.0), (190, 8.0), (195, 0.0)],
    }


def test_schema(copy, two_steps):
    """What is added is as the Trace Event Format has it, what was there is untouched."""
    made = content(copy)
    assert made["htareportCopy"] == {"with": "counters", "rank": 0}
    assert made["baseTimeNanoseconds"] == BASE_NS
    events = made["traceEvents"]
    assert len(events) == len(two_steps.events) + 12
    for event in events[len(two_steps.events) :]:
        jsonschema.validate(event, SCHEMA)
    assert [event["name"] for event in events[: len(two_steps.events)]] == [e["name"] for e in two_steps.events]


def test_it_reads_again_with_the_same_numbers(tmp_path, copy):
    """Every section, to the bit."""
    one, other = (sections_of(tmp_path / name) for name in ("traces", "out"))
    assert one == other


@pytest.mark.parametrize(("options", "names"), [
    ({"queues": True, "bandwidth": False}, {"Queue Length"}),
    ({"queues": False, "bandwidth": True}, {"Memcpy HtoD"}),
    ({"queues": False, "bandwidth": False}, set()),
])  # fmt: skip
def test_choice(tmp_path, two_steps, options, names):
    trace = RankTrace.load(0, two_steps.write(tmp_path / "rank0.json"))
    assert {json.loads(event)["name"] for event in counter_events(trace, 0, **options)} == names


def test_exact_stamps(tmp_path):
    """Nanoseconds that no float holds stand in the text; the base time of the file is not added."""
    trace = TraceBuilder(0).kernel("gemm", "1682725898237042.991", 5, launch=("1682725898237040.003", 1))
    loaded = RankTrace.load(0, trace.write(tmp_path / "rank0.json"))
    first, second = counter_events(loaded, 0, queues=True, bandwidth=True)
    assert b'"ts":1682725898237040.003,' in first
    assert b'"ts":1682725898237042.991,' in second


def test_several_files_and_devices(tmp_path):
    """Each file gets its own points; streams of one number on two devices are two tracks, by process."""
    files = []
    for number in range(2):
        trace = TraceBuilder(0, base_ns=BASE_NS + number * 10**9, devices=2)
        trace.kernel("a", 10, 5, device=0, launch=(1, 1)).kernel("b", 12, 5, device=1, launch=(3, 1))
        files.append(trace.write(tmp_path / "traces" / f"rank0_{number}.json"))
    copies = write_counters(RankTrace.load(0, files), CopyFolder(tmp_path / "out", files))
    assert [path.name for path in copies] == ["rank0_0_with_counters.json", "rank0_1_with_counters.json"]
    for path in copies:
        assert tracks(path) == {
            ("Queue Length", "7", "Queue Length", 0): [(1, 1), (10, 0)],
            ("Queue Length", "7", "Queue Length", 1): [(3, 1), (12, 0)],
        }
