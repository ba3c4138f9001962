"""What fills idle time: gaps of a device split by time over what the host does."""

import pytest
from builder import TraceBuilder

from htareport.analyses.time.idle_causes import IdleCauses
from htareport.report import Status

US = 1000


def times(section):
    return {cause: time / US for cause, time in section.table("causes").set_index("cause")["time"].items()}


def test_one_gap_of_everything(run):
    """Gap 10 to 100, next launch 80 to 84: loader to 40, within it a sync; bare Python to 50; an operator.

    In the operator there is a cudaMalloc; its launch call lasts until 84, and the kernel starts 16 later.
    """
    trace = TraceBuilder().kernel("a", 0, 10, launch=(1, 2))
    trace.cpu_op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 5, 35)
    trace.runtime("cudaStreamSynchronize", 20, 5)
    trace.cpu_op("aten::mm", 50, 40).runtime("cudaMalloc", 60, 8)
    trace.kernel("b", 100, 10, launch=(80, 4))
    section = run(IdleCauses(), trace)
    expected = {"data loading": 30, "nothing recorded": 10, "operators": 22, "memory allocation": 8}
    assert times(section) == expected | {"launch calls": 4, "kernel start": 16}
    names = section.table("names").set_index("name")["time"].to_dict()
    assert names["aten::mm"] == 22 * US
    assert names["cudaMalloc"] == 8 * US
    assert section.fact("idle_cause_share").value == pytest.approx(30 / 90)
    assert section.fact("idle_cause_share").label == "of idle is data loading"


def test_a_launch_in_time(run):
    """The kernel waits: until 30 µs that is its start, beyond it waits for something on the device."""
    trace = TraceBuilder().kernel("a", 0, 50, launch=(1, 2)).kernel("b", 79, 10, launch=(5, 2))
    trace.kernel("c", 150, 10, launch=(8, 2))
    assert times(run(IdleCauses(), trace)) == {"wait on the device": 61, "kernel start": 29}


def test_without_launches_nothing_is_said(run):
    section = run(IdleCauses(), TraceBuilder().kernel("a", 0, 10).kernel("b", 30, 10))
    assert times(section) == {"no launch recorded": 20}
    assert section.fact("idle_cause_share") is None


def test_other_threads_count_where_the_launching_one_does_nothing(run):
    """The backward pass launches from a thread of its own; what the main thread does before is the cause."""
    trace = TraceBuilder().kernel("a", 0, 10, launch=(1, 2)).cpu_op("loss", 12, 20)
    trace.cpu_op("MmBackward0", 40, 10, tid=77).runtime("cudaLaunchKernel", 44, 4, correlation=99, tid=77)
    trace.complete("kernel", "b", 0, 7, (60, 5), {"device": 0, "stream": 7, "correlation": 99})
    expected = {"operators": 20 + 4, "nothing recorded": 2 + 8, "launch calls": 4, "kernel start": 12}
    assert times(run(IdleCauses(), trace)) == expected


def test_names_are_those_of_the_innermost(run):
    """Time in an operator within another counts for the inner one; what the outer one does itself for that."""
    trace = TraceBuilder().kernel("a", 0, 10, launch=(1, 2)).cpu_op("outer", 10, 60).cpu_op("inner", 20, 15)
    trace.kernel("b", 80, 5, launch=(60, 10))
    names = run(IdleCauses(), trace).table("names").set_index("name")["time"].to_dict()
    assert names["inner"] == 15 * US
    assert names["outer"] == 35 * US


def test_streams_fill_each_other_s_gaps_and_devices_do_not(run):
    trace = TraceBuilder(devices=2).kernel("a", 0, 10, launch=(1, 1)).kernel("b", 8, 30, stream=9, launch=(2, 1))
    trace.kernel("c", 40, 5, launch=(3, 1)).kernel("x", 0, 5, device=1, launch=(4, 1))
    trace.kernel("y", 45, 5, device=1, launch=(30, 10))
    section = run(IdleCauses(), trace)
    ranks = section.table("ranks").set_index(["device", "cause"])["time"].to_dict()
    assert ranks == {
        (0, "kernel start"): 2 * US, (1, "launch calls"): 10 * US, (1, "nothing recorded"): 25 * US,
        (1, "kernel start"): 5 * US,
    }  # fmt: skip


def test_per_step(run):
    """Two steps, of which the first has a gap of 30 in the loader; the gap across the border counts on both sides."""
    trace = TraceBuilder().step(0, 0, 100).step(1, 100, 100)
    trace.kernel("a", 0, 20, launch=(1, 1)).cpu_op("enumerate(DataLoader)#x.__next__", 20, 30)
    trace.kernel("b", 50, 40, launch=(50, 0)).cpu_op("slow", 90, 40).kernel("c", 130, 50, launch=(130, 0))
    rows = run(IdleCauses(), trace).table("causes").set_index("cause")
    assert rows.loc["data loading", ["time", "per_step"]].tolist() == [30 * US, 15 * US]
    assert rows.loc["operators", ["time", "per_step"]].tolist() == [40 * US, 20 * US]


def test_steps_are_no_cause(run):
    """Nor is their name one of an operator, in traces of before 2022."""
    trace = TraceBuilder().cpu_op("ProfilerStep#3", 0, 100).kernel("a", 0, 10, launch=(1, 1))
    assert times(run(IdleCauses(), trace.kernel("b", 60, 5, launch=(60, 0)))) == {"nothing recorded": 50}


def test_without_device_work(run):
    assert run(IdleCauses(), TraceBuilder().cpu_op("a", 0, 10)).status is Status.NOT_APPLICABLE


def test_a_device_that_is_never_idle(run):
    section = run(IdleCauses(), TraceBuilder().kernel("a", 0, 10, launch=(0, 1)))
    assert section.status is Status.OK
    assert not len(section.table("causes"))
