"""Calls that wait until the device is empty: which rule says so, and how much it could save."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from htareport.rank.host_rows import times
from htareport.rules.host.sync import CopiesBack, DataShapes, ScalarReadback, SyncDrains, WholeDevice

RULES = [SyncDrains(), ScalarReadback(), DataShapes(), CopiesBack(), WholeDevice()]
SYNC = "cudaStreamSynchronize"


def drained(operators=(), call=SYNC, waits=190, tid=None):
    """The device runs from 10 to 200; a call waits for it until 210; the next launch is at 300, its work starts at 310.

    The gap of 110 is late until the launch returns, at 305: 105.
    """
    trace = TraceBuilder().step(1, 0, 1000).kernel("a", 10, 190, launch=(0, 5))
    for name in operators:
        trace.cpu_op(name, 20, 200)
    return trace.runtime(call, 210 - waits, waits, tid=tid).kernel("b", 310, 100, launch=(300, 5))


@pytest.mark.parametrize(
    ("operators", "call", "code"),
    [
        (("aten::item", "aten::_local_scalar_dense"), SYNC, "H5"),
        (("aten::_local_scalar_dense",), "hipStreamSynchronize", "H5"),
        (("aten::index", "aten::nonzero"), SYNC, "H6"),
        (("aten::repeat_interleave", "aten::item"), SYNC, "H6"),
        ((), "cudaDeviceSynchronize", "H8"),
        ((), "hipDeviceSynchronize", "H8"),
        ((), SYNC, "H4"),
        (("aten::mm",), "cudaEventSynchronize", "H4"),
    ],
)
def test_each_gap_has_one_rule(saved, operators, call, code):
    assert saved(RULES, drained(operators, call)) == {code: 105}


def test_no_more_than_what_the_host_has_waited(saved):
    """A call that waited for 30: without it the host would be 30 ahead, not 110."""
    assert saved(RULES, drained(waits=30)) == {"H4": 30}


def test_a_kind_that_takes_too_little_is_told_with_all(saved):
    """`.item()` takes 3 of the step of 1000, until the launch returns at 413; the other call 105: 108 together."""
    trace = drained().cpu_op("aten::item", 405, 6).runtime(SYNC, 406, 5).kernel("c", 414, 10, launch=(412, 1))
    assert saved(RULES, trace) == {"H4": 108}


def test_a_call_that_waits_while_there_is_more_to_do_is_free(saved):
    trace = drained(("aten::item",)).kernel("c", 200, 105, launch=(15, 2))
    assert saved(RULES, trace) == {}


def test_a_call_on_another_thread_holds_nobody_up(saved):
    assert saved(RULES, drained(tid=77)) == {}


def copied(call, back="DtoH (Device -> Pageable)", sync=None):
    """The device runs from 10 to 200 and copies until 220; the next launch is at 300, its work starts at 310."""
    trace = TraceBuilder().step(1, 0, 1000).kernel("a", 10, 190, launch=(0, 5)).cpu_op("aten::copy_", 18, 240)
    trace.memcpy(back, 200, 20, bytes=4, launch=call)
    if sync:
        trace.runtime(SYNC, *sync)
    return trace.kernel("b", 310, 100, launch=(300, 5))


def test_a_blocking_copy_to_the_host(findings):
    """The call returns at 225, behind the copy; from 220 to 305 the host is late."""
    told = findings(RULES, copied((20, 205)))
    assert {code: each.saving_ns for code, each in told.items()} == {"H7": 85_000}
    assert "`aten::copy_` 1×" in told["H7"].evidence


def test_a_copy_and_a_wait_for_it(saved):
    assert saved(RULES, copied((20, 5), sync=(26, 199))) == {"H7": 85}


def test_a_copy_that_does_not_block(saved):
    assert saved(RULES, copied((20, 5))) == {}


def test_a_wait_for_a_copy_to_the_device(saved):
    """Pageable memory: PyTorch waits for the stream."""
    assert saved(RULES, copied((20, 5), "HtoD (Pageable -> Device)", sync=(26, 199))) == {"H4": 85}


def test_launches_that_wait_for_their_kernels(findings):
    """Ten kernels of 50, each launched for 60: nine gaps of 50, late all the time."""
    trace = TraceBuilder().step(1, 0, 1000)
    for start in range(0, 1000, 100):
        trace.kernel("a", start + 5, 50, launch=(start, 60))
    told = findings(RULES, trace)
    assert list(told) == ["H8"]
    assert told["H8"].saving_ns == 450_000
    assert "CUDA_LAUNCH_BLOCKING" in told["H8"].advice


def test_short_kernels_say_nothing_about_launches(saved):
    trace = TraceBuilder().step(1, 0, 1000)
    for start in range(0, 1000, 100):
        trace.kernel("a", start + 5, 5, launch=(start, 60))
    assert saved(RULES, trace) == {}


def test_the_line_of_python_is_named(findings):
    trace = drained(("aten::item",)).python_function("train.py(12): step", 0, 900)
    trace.python_function("torch/_tensor.py(1): item", 20, 200, 2).python_function("<built-in method item>", 20, 199, 3)
    assert "`train.py(12): step`" in findings(RULES, trace)["H5"].evidence


def test_what_is_not_in_each_step_is_told_in_one_digit():
    """Five times in six steps; and 164 times in three."""
    assert times([("a", 5), ("b", 164)], 6) == "`a` 0.8×, `b` 27.3×"


def test_only_who_trains_has_losses(findings):
    trace = drained(("aten::item",))
    assert "loss" not in findings(RULES, trace)["H5"].advice + findings(RULES, trace)["H5"].snippet
    assert "losses" in findings(RULES, trace.cpu_op("Optimizer.step#SGD.step", 500, 10))["H5"].advice


def test_two_devices_count_by_half(saved):
    """The other device is never idle: what one loses is half per device."""
    trace = drained(("aten::item",)).kernel("x", 0, 1000, device=1, launch=(1, 1))
    trace.metadata["deviceProperties"].append(trace.metadata["deviceProperties"][0] | {"id": 1})
    assert saved(RULES, trace) == {"H5": 52.5}
