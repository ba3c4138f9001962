"""A full queue of launches, and what it means for advice about the host."""

from __future__ import annotations

from builder import TraceBuilder

from htareport.rules.host.idle import HostBound
from htareport.rules.host.launch import LaunchBound
from htareport.rules.host.queue import FullQueue

QUEUE = 20  # Of a small device.


def ahead(kernels=60, idle=0, *, blocked=True):
    """Kernels of 100 µs back to back; each launch takes 5 until 20 are queued, then it waits for one to start.

    Behind them the device is idle, and a last kernel is launched when all that has passed.
    """
    trace, host = TraceBuilder(), 0
    for number in range(kernels):
        start = 10 + 100 * number
        begun = 10 + 100 * max(number - QUEUE, 0)  # There is room again once this one has started.
        end = max(host + 5, begun + 1) if blocked and number > QUEUE else host + 5
        trace.kernel("gemm", start, 100, launch=(host, end - host))
        host = end
    last = 10 + 100 * kernels + idle
    return trace.kernel("gemm", last, 50, launch=(last - 10, 5)).step(1, 0, last + 50)


def test_launches_that_wait_for_room(findings):
    """The first 22 launches take 5 or 6 µs, each of the other 38 takes 100: until another kernel starts."""
    told = findings([FullQueue(queue=QUEUE)], ahead())["H24"]
    assert (told.severity, told.saving_ns) == ("low", None)
    assert "38 launch calls per step wait for 3.80\u202fms" in told.evidence
    assert "behind some 20 launches in the queue" in told.evidence
    assert all(span.end - span.start > 90_000 for span in told.spans)


def test_a_host_that_is_ahead_without_waiting(findings):
    assert findings([FullQueue(queue=QUEUE)], ahead(blocked=False)) == {}


def test_a_queue_that_is_never_full(findings):
    assert findings([FullQueue()], ahead()) == {}


def test_launches_that_all_take_long(findings):
    """None waits for room: the others take as long."""
    trace = TraceBuilder().step(1, 0, 8000)
    for number in range(60):
        trace.kernel("gemm", 120 * number + 90, 120, launch=(95 * number, 90))
    assert findings([FullQueue(queue=5)], trace) == {}
    assert "H24" in findings([FullQueue(queue=5, ratio=0.5)], trace)


def test_a_full_buffer_that_the_driver_reports(findings):
    trace = ahead(blocked=False).complete("overhead", "Command Buffer Full", -1, 0, (1000, 2000), {})
    told = findings([FullQueue()], trace)["H24"]
    assert "The driver reports a full command buffer for 2.00\u202fms per step" in told.evidence
    assert [(span.start, span.end) for span in told.spans] == [(1_000_000, 3_000_000)]
    assert findings([FullQueue(least=0.5)], trace) == {}


def test_advice_to_be_faster_is_for_information_while_the_host_is_ahead(findings):
    """The host waits for 3.8 ms and the device for 2: it is fast enough, but something made it stop."""
    alone = findings([HostBound()], ahead(idle=2000))["H1"]
    assert alone.severity == "high"
    told = findings([HostBound(), FullQueue(queue=QUEUE)], ahead(idle=2000))
    assert told["H1"].severity == "low"
    assert "For information: the host waits 3.80\u202fms per step for room in its queue" in told["H1"].evidence
    assert told["H1"].saving_ns == alone.saving_ns
    longer = findings([HostBound(), FullQueue(queue=QUEUE)], ahead(idle=6000))
    assert (longer["H1"].severity, "H24" in longer) == ("high", True)


def test_advice_about_gaps_themselves_stays(findings):
    """Small kernels one by one behind the full queue: what they cost is time of the step, however far ahead it was."""
    trace = ahead(kernels=40)
    begin = 10 + 100 * 40
    for number in range(40):
        trace.kernel("relu", begin + 300 + 60 * number, 5, launch=(begin + 290 + 60 * number, 5))
    told = findings([LaunchBound(), FullQueue(queue=QUEUE)], trace.step(2, begin + 50, 3000))
    assert told["H2"].severity == "high"


def test_why_a_busy_device_needs_no_faster_host(findings):
    told = findings([HostBound(idle=0.01), FullQueue(queue=QUEUE)], ahead(idle=500))
    assert "idle for only 7.77" in told["H1"].evidence
    assert "and the host waits 3.80\u202fms per step for room in its queue" in told["H1"].evidence
