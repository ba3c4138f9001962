"""Values of unusual types: what they come to, and that they cost neither the event nor its neighbours."""

from __future__ import annotations

import json
import math

import msgspec
import pytest
from builder import TraceBuilder

from htareport.reading.text.decode import Reader
from htareport.rows import columns
from htareport.trace import RankTrace

NAN = float("nan")


def loaded(write, *events, **metadata):
    rows = [{"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": 1, "dur": 1}] * 2
    return RankTrace.load(0, write("trace.json", json.dumps({**metadata, "traceEvents": [*rows, *events, *rows]})))


def kernel(correlation=None, **args):
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 10, "dur": 5}
    return event | {"args": {"device": 0, "stream": 7, "correlation": correlation, **args}}


def launch(correlation, name="cudaLaunchKernel", ts=5):
    event = {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": 2}
    return event | {"args": {"correlation": correlation}}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (17, 17),
        ("17", 17),
        ("0x11", 17),
        ("017", 17),
        (17.0, 17),
        (17.5, -1),
        ("17.0", -1),
        ("x", -1),
        ("9" * 5000, -1),
        (True, -1),
        (None, -1),
        ([1], -1),
        (2**63 - 1, 2**63 - 1),
        (2**63, -1),
        (2**64 - 1, -1),
        (-(2**70), -1),
        (10**30, -1),
        (1e300, -1),
        (0, 0),
    ],
)
def test_integers(written, value, write):
    """Numbers as text, floats without fraction; what is no integer of 63 bits is none, and links to nothing."""
    trace = loaded(write, launch(written), kernel(written))
    assert trace.events["kernel"]["correlation"].tolist() == [value]
    assert trace.events["cuda_runtime"]["correlation"].tolist() == [value]
    assert trace.events["kernel"]["correlation"].dtype == "int64"
    assert trace.device_events["launch"].tolist() == [0 if value > 0 else -1]
    assert len(trace.events["cpu_op"]) == 4


def test_large_correlations_do_not_meet_in_a_float(write):
    """2^53 and 2^53 + 1 are two ids, and so are their texts."""
    first, second = 2**53, 2**53 + 1
    trace = loaded(write, launch(first, "a"), launch(second, "b"), kernel(str(second)), kernel(first), kernel(None))
    names = trace.launches["name"].tolist()
    assert [names[row] if row >= 0 else "" for row in trace.device_events["launch"]] == ["b", "a", ""]


@pytest.mark.parametrize(
    ("written", "value"), [(0.5, 0.5), ("0.5", 0.5), (2, 2.0), (None, NAN), ("N/A", NAN), ([], NAN), (True, NAN)]
)
def test_floats(written, value, write):
    """Bandwidth as text, as integer, and not at all."""
    copy = kernel(1, **{"memory bandwidth (GB/s)": written, "bytes": "8"}) | {"cat": "gpu_memcpy"}
    row = loaded(write, copy).events["gpu_memcpy"].iloc[0]
    assert row["bandwidth"] == value or (math.isnan(value) and math.isnan(row["bandwidth"]))
    assert row["bytes"] == 8


@pytest.mark.parametrize(
    ("written", "ns"),
    [
        ("1712195495519689.047", 1712195495519689047),
        ('"1712195495519689.047"', 1712195495519689047),
        ("0.0005", 0),
        ("0.0015", 2),
        ("7.00250", 7002),
        ("7.00350", 7004),
        ("1e3", 1_000_000),
        ("12", 12_000),
        ("-3.5", -3500),
    ],
)
def test_time_stamps(written, ns, write):
    """Exact from the text; more than three decimals are rounded half to even."""
    text = f'{{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": {written}, "dur": 1.25}}'
    events = RankTrace.load(0, write("trace.json", f'{{"traceEvents": [{text}]}}')).events["cpu_op"]
    assert events[["ts", "dur"]].dtypes.tolist() == ["int64", "int64"]
    assert events[["ts", "dur"]].to_numpy().tolist() == [[ns, 1250]]


@pytest.mark.parametrize("written", [None, "x", [1, 2], {"a": 1, "b": [2, 3]}, "1,5", True, "", 10**30, [], "9" * 30])
@pytest.mark.parametrize("key", ["ts", "dur"])
def test_what_is_no_time_is_counted(key, written, write):
    """The event is set aside and named; those before and behind keep their own stamps."""
    odd = {"ph": "X", "cat": "cpu_op", "name": "odd", "pid": 1, "tid": 1, "ts": 7, "dur": 8, key: written}
    trace = loaded(write, odd, {**odd, "name": "next", "ts": 50, "dur": 60})
    assert trace.events["cpu_op"]["name"].tolist() == ["op", "op", "next", "op", "op"]
    assert trace.events["cpu_op"]["ts"].tolist() == [1000, 1000, 50_000, 1000, 1000]
    assert trace.events["cpu_op"]["dur"].tolist() == [1000, 1000, 60_000, 1000, 1000]
    text = "trace.json: events with impossible times set aside: 1 host event without a start or duration"
    assert trace.warnings == (text,)


def test_a_missing_time_is_counted_whatever_else_is_unusual(write):
    """Also where the name is no text, so that the event is read the slow way."""
    odd = [{"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 7} for name in ("a", 5)]
    assert "2 host events without a start or duration" in loaded(write, *odd).warnings[0]


@pytest.mark.parametrize(
    ("event", "name"),
    [
        ({"name": None}, ""),
        ({"name": 5}, "5"),
        ({"name": ["a"]}, "['a']"),
        ({"name": "x", "args": None}, "x"),
        ({"name": "x", "args": []}, "x"),
        ({"name": "x", "args": "text"}, "x"),
        ({"name": "x", "pid": None, "tid": [1]}, "x"),
        ({"name": "x", "pid": "GPU 0 Counters", "tid": 2.5}, "x"),
        ({"name": "x", "pid": {"a": 1}, "tid": True}, "x"),
        ({"name": "x", "pid": 10**40}, "x"),
    ],
)
def test_any_name_arguments_and_threads(event, name, write):
    """They cost nothing but themselves, on the host and on the device."""
    base = {"ph": "X", "pid": 0, "tid": 7, "ts": 10, "dur": 5, "name": ""}
    trace = loaded(
        write, *({"cat": cat, **base, **event} for cat in ("cpu_op", "kernel", "cuda_runtime", "gpu_memcpy"))
    )
    assert trace.events["cpu_op"]["name"].tolist() == ["op", "op", name, "op", "op"]
    assert trace.device_events["name"].tolist() == [name, name]
    assert len(trace.devices) == 1
    assert trace.launches["name"].tolist() == [name]


def test_phases_other_than_complete(write):
    """B, E, C, i and events without a phase are counted; none of them becomes a row, whatever its category."""
    event = {"cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 1}
    trace = loaded(write, *({"ph": phase, **event} for phase in "BECi"), event, {"name": "none", "ts": 1, "dur": 1})
    assert list(trace.events) == ["cpu_op"]
    assert len(trace.device_events) == 0
    assert trace.loaded.counts["kernel"] == 5
    assert trace.loaded.counts["ph "] == 1


def test_unknown_categories(write):
    """New ones are host rows; those of a runtime are launches; neither loses an event."""
    events = [{"ph": "X", "cat": f"new_{n % 3}", "name": "a", "pid": 1, "tid": 1, "ts": n, "dur": 1} for n in range(30)]
    trace = loaded(write, *events, launch(5) | {"cat": "mtia_new_runtime"}, kernel(5))
    assert [len(trace.events[f"new_{n}"]) for n in range(3)] == [10, 10, 10]
    assert trace.device_events["launch"].tolist() == [0]


def test_a_thousand_categories(write):
    """A file that means something else by categories still loads, and loses no event."""
    events = [
        {"ph": "X", "cat": f"cat {n}", "name": "a", "pid": 1, "tid": 1, "ts": n, "dur": 1, "args": {}}
        for n in range(1000)
    ]
    trace = loaded(write, *events, kernel(5))
    assert len(trace.events) == 1005
    assert len(list(trace.events)) < 300
    assert len(trace.device_events) == 1


@pytest.mark.parametrize("base", [None, "x", [1], 10**30, -(10**19), 2**63, True, 1.5e30, {"a": 1}])
def test_a_base_time_that_is_none(base, write):
    """It counts as 0, and the file is named unless the key is not there at all."""
    trace = loaded(write, kernel(1), baseTimeNanoseconds=base)
    assert trace.start_ns == 1000
    assert any("baseTimeNanoseconds" in text for text in trace.warnings) == (base is not None)


@pytest.mark.parametrize(("base", "start"), [(10**18 + 1, 10**18 + 1001), (str(10**18 + 1), 10**18 + 1001), (-5, 995)])
def test_base_time(base, start, write):
    """Is added to every stamp, exactly."""
    assert loaded(write, kernel(1), baseTimeNanoseconds=base).start_ns == start


@pytest.mark.parametrize("field", ["x", [], None, 5, [{"rank": 1}], {"rank": None}, {"rank": "x"}, {"rank": -1}])
@pytest.mark.parametrize("key", ["distributedInfo", "deviceProperties"])
def test_metadata_of_any_shape(key, field, write):
    """They are no rank and no device then, and nothing fails."""
    trace = loaded(write, kernel(1), **{key: field})
    assert trace.device_name(0) == ""


def test_duplicate_keys(write):
    """The last value counts, as in Python."""
    text = '{"ph": "X", "cat": "cpu_op", "name": "a", "name": "b", "pid": 1, "tid": 1, "ts": 1, "ts": 2, "dur": 3}'
    events = RankTrace.load(0, write("trace.json", f'{{"traceEvents": [{text}]}}')).events["cpu_op"]
    assert events[["name", "ts"]].to_numpy().tolist() == [["b", 2000]]


def test_lanes(write):
    """Device and stream by the arguments, else by process and thread; one lane for however they were written."""
    text_lane = kernel(1, device="0", stream="7") | {"pid": 5}
    queue = kernel(1) | {"args": {"device": 1, "sycl queue": "0x12"}}
    stream_id = kernel(1) | {"args": {"device": 2, "Stream Id": 4}}
    thread = kernel(1) | {"args": {}, "pid": 3, "tid": "stream 7"}
    events = loaded(write, kernel(1), text_lane, queue, stream_id, thread).device_events
    lanes = [(0, 7), (0, 7), (1, "0x12"), (2, 4), (3, "stream 7")]
    assert list(zip(events["device"], events["stream"], strict=True)) == lanes
    assert events["lane"].tolist()[0] == events["lane"].tolist()[1]
    assert events["lane"].nunique() == 4


def test_devices_of_any_type(write):
    """Numbers first, then names."""
    odd = [kernel(1, device=device) for device in ("GPU", 1, None, 2.0, "0")]
    trace = loaded(write, *odd, kernel(1) | {"pid": None, "args": None})
    assert list(trace.devices) == [0, 1, 2, "GPU", "None"]
    assert loaded(write, kernel(1)).devices.keys() == {0}


def test_builder_and_loader_agree(write):
    """What the other tests build on: one kernel, to the ns."""
    path = TraceBuilder().kernel("k", "1.001", "2.002", launch=(0, 1)).write(write("x", "").parent / "t.json")
    trace = RankTrace.load(0, path)
    event = trace.device_events.iloc[0]
    assert (event["ts"] - trace.start_ns, event["dur"], event["end"] - trace.start_ns) == (1001, 2002, 3003)


def test_a_view_that_somebody_holds(monkeypatch):
    """A profiler that samples our frames, as that of dask's workers does, keeps what is in them for a while."""
    held, original = [], columns.thousandths
    monkeypatch.setattr(columns, "thousandths", lambda text: held.append(memoryview(text)) or original(text))
    times = columns.Times()
    for token in (b"1.5", b"2"):
        times.extend([token])
        times.flush()
    assert times.values.tolist() == [1500, 2000]


def test_events_that_somebody_holds(monkeypatch, chunks_of, load):
    """They refer to the text, which then cannot move: the rest of the file is read from a copy."""
    held, original = [], Reader.feed

    def feed(self, chunk):
        held.append(msgspec.json.decode(chunk, type=list[msgspec.Raw]))
        return original(self, chunk)

    monkeypatch.setattr(Reader, "feed", feed)
    chunks_of(4096)
    trace = TraceBuilder()
    for number in range(100):
        trace.kernel(f"k{number}", 10 * number, 5)
    assert load(trace).device_events["name"].tolist() == [f"k{number}" for number in range(100)]
    assert len(held) > 1
