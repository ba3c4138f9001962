"""HTA's names for queues: devices and captures are told apart."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from htareport.hta import TraceAnalysis


def one_waiting(trace: TraceBuilder, at: float, device: int = 0) -> TraceBuilder:
    """One kernel that is launched 10 µs before it starts, so that a queue of 1 lasts all the time."""
    return trace.kernel("k", at + 10, 5, device=device, launch=(at, 2))


def test_equal_streams_of_two_devices(tmp_path):
    """Each has its own queue: mean 1, and 10 µs at the limit of 1."""
    trace = one_waiting(one_waiting(TraceBuilder(0, devices=2), 0), 500, device=1)
    analysis = TraceAnalysis(trace_files={0: str(trace.write(tmp_path / "rank0.json"))})
    summary = analysis.get_queue_length_summary()
    assert summary["queue_length", "mean"].to_dict() == {(0, "0/7"): 1, (0, "1/7"): 1}
    full = analysis.get_time_spent_blocked_on_full_queue(analysis.get_queue_length_time_series(), 1)
    assert full.set_index("stream")["duration_at_max_queue_length"].to_dict() == pytest.approx({"0/7": 10, "1/7": 10})


def test_time_between_captures_is_outside(tmp_path):
    """10 µs of length 1 in each capture, and nothing of the 9 ms between them."""
    for name, at in (("one", 0), ("two", 9000)):
        one_waiting(TraceBuilder(0), at).write(tmp_path / f"rank0.{name}.pt.trace.json")
    summary = TraceAnalysis(trace_dir=tmp_path).get_queue_length_summary()
    assert summary["queue_length", "mean"].to_dict() == {(0, 7): 1}
