"""Times set straight, rows set aside, and the files of a rank as captures."""

from __future__ import annotations

import pytest
from builder import BASE_NS, TraceBuilder

TODAY = 1_750_000_000_123_456_789  # More digits than a float holds.


def test_impossible_times_are_set_aside(load):
    """Each is counted under its first reason, on the host and on the device, and is in no table."""
    builder = TraceBuilder(base_ns=0)
    hour, week = 3600 * 10**6, 7 * 86_400 * 10**6
    for at in (2 * hour, 2 * hour + 50):
        builder.kernel("good", at + 10, 5, launch=(at, 2)).cpu_op("good", at, week)
    builder.kernel("ends before", 2 * hour, "-0.001").kernel("long", 2 * hour, f"{week}.001").kernel("zero", 0, 1)
    builder.cpu_op("zero and negative", 0, -5).cpu_op("zero", 0, 5).cpu_op("zero", 0, 5)
    trace = load(builder)
    assert set(trace.device_events["name"]) == {"good"}
    assert set(trace.events["cpu_op"]["name"]) == {"good"}
    assert trace.start_ns == 2 * hour * 1000
    (warning,) = trace.loaded.warnings
    assert warning == (
        "h.10000000000.pt.trace.json: events with impossible times set aside: 1 device event at time 0, "
        "1 device event ending before the start, 1 device event longer than seven days, "
        "2 host events at time 0, 1 host event ending before the start"
    )


def test_zero_is_a_time_where_others_are_near(load):
    """A stamp of 0 is impossible only in a file whose other stamps are above an hour."""
    trace = load(TraceBuilder(base_ns=0).kernel("zero", 0, 1).kernel("k", 10, 1))
    assert len(trace.device_events) == 2
    assert not trace.loaded.warnings


def test_stamps_are_exact(load):
    """Absolute or with a base time, to the ns, also at the limit of what counts as a time."""
    far = 4 * 10**18
    for base in (0, TODAY, far):
        stamps = ["0.001", "1712195495519689.047", "3999999999999999.999", "4000000000000000.001"]
        builder = TraceBuilder(base_ns=base)
        for stamp in stamps:
            builder.cpu_op(stamp, stamp, "0.003")
        events = load(builder).events["cpu_op"]
        assert events["ts"].tolist() == [base + n for n in (1, 1712195495519689047, 3999999999999999999)]
        assert events["dur"].tolist() == [3] * 3


def test_captures_are_pooled(load):
    """In order of time, whatever the order of their names; the time between them belongs to none."""
    trace = load(*(TraceBuilder().kernel(f"k{n}", at, 10).cpu_op("op", at, 50) for n, at in enumerate((2000, 0, 1000))))
    assert [capture.name for capture in trace.captures] == [f"h.{10**10 + n}.pt.trace.json" for n in (1, 2, 0)]
    assert trace.device_events["name"].tolist() == ["k1", "k2", "k0"]
    assert trace.device_events["capture"].tolist() == [0, 1, 2]
    assert [union.tolist() for union in trace.busy_by_capture(trace.device_events)] == [
        [[BASE_NS + at * 1000, BASE_NS + at * 1000 + 10_000]] for at in (0, 1000, 2000)
    ]
    assert trace.events["cpu_op"]["capture"].tolist() == [0, 1, 2]
    assert (trace.start_ns, trace.end_ns) == (BASE_NS, BASE_NS + 2_050_000)
    assert not trace.warnings


def test_captures_that_overlap(load):
    """The first by name is used, the other named; touching is not overlapping."""
    trace = load(*(TraceBuilder().kernel(f"k{n}", at, 10) for n, at in enumerate((100, 105, 110, 95))))
    assert trace.device_events["name"].tolist() == ["k0", "k2"]
    name = "h.{}.pt.trace.json".format
    reason = f"overlaps in time with {name(10**10)} of the same rank"
    assert trace.problems == ((name(10**10 + 1), reason), (name(10**10 + 3), reason))
    assert trace.loaded.counts == {"kernel": 2}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, None),
        ({"at": 3_700 * 10**6}, "are 1.0 hours apart"),
        ({"devices": 2}, "have different devices"),
        ({"cuda_runtime_version": 12040}, "have different software versions"),
        ({"base_ns": 0, "at": BASE_NS // 1000 + 1000}, "count time from different bases"),
    ],
)
def test_captures_that_look_like_two_runs(change, reason, load):
    """A warning asks whether they are."""
    at = change.pop("at", 1000) if change else 1000
    trace = load(TraceBuilder().kernel("a", 0, 10), TraceBuilder(**change).kernel("b", at, 10))
    assert len(trace.device_events) == 2
    if reason is None:
        assert not trace.warnings
    else:
        assert f" of one rank, {reason}: two runs?" in trace.warnings[0]


def test_captures_with_different_categories_and_arguments(load):
    """What only one of them has is kept, and the rows of collectives are counted on."""
    first = TraceBuilder().kernel("a", 0, 1).memset(5, 1, bytes=3)
    second = TraceBuilder().collective("nccl", "allreduce", 1000, 1, nelems=2).kernel("b", 1005, 1)
    third = TraceBuilder().cpu_op("op", 2000, 1).collective("nccl", "broadcast", 2005, 1, nelems=3)
    trace = load(first, second, third)
    found = trace.device_events.merge(trace.collectives, on=["source", "row"])
    assert found["in_nelems"].tolist() == [2, 3]
    assert trace.device_events["name"].tolist() == ["a", "Memset (Device)", "nccl", "b", "nccl"]
