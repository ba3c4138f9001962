"""Lanes, classes, launches, steps, windows, captures and set-aside rows of hand-made traces."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from builder import BASE_NS, TraceBuilder

from htareport.trace import Capability, RankTrace, Trace, Window
from htareport.trace.host import nearest
from htareport.trace.summary import facts_of, job_meta

TODAY = 1_750_000_000_123_456_789  # More digits than a float holds.


@pytest.fixture
def load(tmp_path):
    """A function that writes a builder's trace, or several captures of a rank, and loads it."""

    def loaded(*builders, rank=0, window=None):
        stamps = range(10**10, 10**10 + len(builders))
        paths = [b.write(tmp_path / f"h.{n}.pt.trace.json") for n, b in zip(stamps, builders, strict=True)]
        return RankTrace.load(rank, paths[0] if len(paths) == 1 else paths, window or Window())

    return loaded


def row(cat, name, ts=10, dur=5, pid=0, tid=7, **args):
    event = {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}
    return event if cat is None else {"cat": cat, **event}


# --- classes ------------------------------------------------------------------------------------

COMM = [
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ncclKernel_Broadcast_RING_LL_Sum",
    "void rcclGenericKernel<1, false>()", "Hccl_all_reduce", "hcom_allReduce__123_0_1", "oneccl_allreduce_f32",
    "void deep_ep::intranode::dispatch<8>(int*)", "dpsk::ep::combine", "vllm::cross_device_reduce_2stage<half, 4>",
    "void tensorrt_llm::kernels::oneShotAllReduceKernel<half>", "flashinfer::allreduce_fusion_kernel_oneshot",
    "nvshmemi_transfer", "void c10d::symmetric_memory::two_shot_all_reduce", "multimem_all_reduce_kernel",
]  # fmt: skip
COMPUTE = [
    "void SyncBatchNorm_forward", "cutlass_dmask_kernel", "void at::native::reduce_kernel<512, 1>",
    "triton_broadcast_0", "void BatchMemcpyKernel<1>",
]  # fmt: skip
MEMORY = ["Memcpy HtoD (Pinned -> Device)", "Memset (Device)", "__amd_rocclr_copyBuffer", "dma_copy", "MEMCPY_ASYNC"]


@pytest.mark.parametrize(
    ("names", "kind"), [(COMM, "comm"), (COMPUTE, "compute"), (MEMORY, "memory")], ids=["comm", "compute", "memory"]
)
@pytest.mark.parametrize("category", ["kernel", "Kernel", "mtia_ccp_events"])
def test_class_by_name(names, kind, category, load):
    """Where neither the category nor the kernel's own arguments say it."""
    builder = TraceBuilder()
    for name in names:
        builder.event(row(category, name))
    assert load(builder).device_events["kind"].tolist() == [kind] * len(names)


def test_class_by_category_then_argument_then_name(load):
    """The category of copies wins over all; the collective of the kernel over its name, if it is not empty."""
    builder = TraceBuilder()
    for category in ("gpu_memcpy", "gpu_memset", "Memcpy", "Memset"):
        builder.event(row(category, "ncclKernel", ts=1, **{"Collective name": "allreduce"}))
    for ts, collective in ((2, "allreduce"), (3, ""), (4, None)):
        builder.event(row("kernel", "Memcpy DtoD", ts=ts, **{"Collective name": collective}))
    assert load(builder).device_events["kind"].tolist() == ["memory"] * 4 + ["comm", "memory", "memory"]


def test_what_is_no_device_work(load):
    """Other categories are not, whatever their stream; records and waits are not either, but stay host rows."""
    builder = TraceBuilder().kernel("k", 10, 5)
    others = ["cpu_op", "gpu_user_annotation", "cuda_sync", "cuda_event", "cuda_profiler_range", "overhead", "new"]
    for category in others:
        builder.event(row(category, "ncclKernel", device=0, stream=7, correlation=1))
    builder.event(row("mtia_ccp_events", "event_wait", ts=2, stream=7)).event(row("kernel", "event_record", ts=3))
    trace = load(builder)
    assert trace.device_events["name"].tolist() == ["k"]
    assert set(trace.events) == {*others, "kernel", "kernel (no work)", "mtia_ccp_events (no work)"}
    assert trace.start_ns == BASE_NS + 2000
    assert len(trace.events) == 10
    assert "device" not in trace.events["kernel (no work)"]


def test_npu_rows_have_no_category(load):
    """Those of the process Ascend Hardware are device work; others without a category are host rows."""
    builder = TraceBuilder().event({"ph": "M", "name": "process_name", "pid": 9, "args": {"name": "Ascend Hardware"}})
    builder.event({"ph": "M", "name": "process_name", "pid": [8], "args": {"name": "CPU"}})
    builder.event(row(None, "MatMul", ts=1, pid=9, tid=3)).event(row(None, "host", ts=2, pid=8))
    builder.event(row(None, "EVENT_WAIT", ts=3, pid=9)).event(row(None, "hcom_send", ts=4, pid=9, tid=4))
    builder.event(row(None, "odd", ts=5, pid=9, tid=4, **{"Collective name": "allreduce"}))
    events = load(builder).device_events
    assert events["name"].tolist() == ["MatMul", "hcom_send", "odd"]
    assert events["kind"].tolist() == ["compute", "comm", "comm"]
    assert events[["device", "stream"]].to_numpy().tolist() == [[9, 3], [9, 4], [9, 4]]
    assert events["launch"].tolist() == [-1] * 3


def test_collective_arguments_belong_to_their_rows(load):
    """Also when rows before them were set aside."""
    builder = TraceBuilder(world_size=4)
    for n in range(6):
        builder.kernel("before", 10 * n, -1 if n % 2 else 1)
        args = {"nelems": n, "out_nelems": 4 * n, "group_name": str(n), "Seq": n}
        builder.collective("nccl", "allgather", 10 * n + 5, -1 if n == 3 else 1, **args)
    trace = load(builder)
    table = trace.collectives
    events = trace.device_events.merge(table, on=["source", "row"])
    assert events["name"].tolist() == ["nccl"] * 5
    assert events["seq"].tolist() == events["in_nelems"].tolist() == [0, 1, 2, 4, 5]
    assert ((events["ts"] - trace.start_ns) // 1000).tolist() == [5, 15, 25, 45, 55]
    assert [trace.loaded.strings[code] for code in table["group"]] == ["0", "1", "2", "4", "5"]
    assert {trace.loaded.strings[code] for code in table["group_ranks"]} == {'"[0, 1, 2, 3]"'}
    assert table["group_size"].tolist() == [4] * 5


# --- launches -----------------------------------------------------------------------------------


def test_launch_links(load):
    """One launch, many device events; of several launches of one id the earliest; ids of 0 and below are none."""
    builder = TraceBuilder().graph_launch(10, 5, [("g1", 20, 1), ("g2", 22, 1)])
    builder.runtime("late", 30, 1, 50).runtime("early", 25, 1, 50).runtime("zero", 1, 1, 0).runtime("less", 1, 1, -4)
    builder.event(row("kernel", "twice", ts=40, correlation=50)).event(row("kernel", "zero", ts=41, correlation=0))
    builder.event(row("kernel", "less", ts=42, correlation=-4)).event(row("kernel", "none", ts=43))
    trace = load(builder)
    events, launches = trace.device_events, trace.launches
    assert events["name"].tolist() == ["g1", "g2", "twice", "zero", "less", "none"]
    linked = [launches["name"].iloc[at] if at >= 0 else "" for at in events["launch"]]
    assert linked == ["cudaGraphLaunch", "cudaGraphLaunch", "early", "", "", ""]
    assert launches["name"].tolist() == ["zero", "less", "cudaGraphLaunch", "early", "late"]
    assert launches["graph"].tolist() == [False, False, True, False, False]
    assert (launches["end"] - launches["ts"]).tolist() == launches["dur"].tolist()


@pytest.mark.parametrize(
    "category", ["cuda_runtime", "cuda_driver", "xpu_runtime", "mtia_runtime", "Runtime", "my_Driver"]
)
def test_launches_of_any_runtime(category, load):
    """And of no other category."""
    builder = TraceBuilder().event(row("kernel", "k", correlation=3)).event(row("cpu_op", "op", ts=1, correlation=3))
    trace = load(builder.event(row(category, "launch", ts=2, correlation=3)))
    assert trace.launches["name"].tolist() == ["launch"]
    assert trace.device_events["launch"].tolist() == [0]


def test_correlations_count_within_a_capture(load):
    """Each capture starts its ids anew."""
    captures = [TraceBuilder().kernel(f"k{n}", 1000 * n + 20, 5, launch=(1000 * n, 5)) for n in range(3)]
    captures[1].event(row("kernel", "alone", ts=1500, correlation=9))
    captures[2].runtime("other", 2500, 1, 9)
    trace = load(*captures)
    assert trace.device_events["launch"].tolist() == [0, 1, -1, 2]
    assert trace.launches["capture"].tolist() == [0, 1, 2, 2]


def test_lost_and_early_launches_are_named(load):
    """Launches without device work, and kernels before their launch."""
    builder = TraceBuilder().kernel("early", 10, 5, launch=("12.5", 1)).runtime("cudaLaunchKernel", 20, 1, 77)
    builder.runtime("cudaMemcpyAsync", 22, 1, 78).runtime("cudaStreamSynchronize", 24, 1, 79)
    trace = load(builder, rank=6)
    assert trace.warnings == (
        "rank 6: 2 of 3 launches have no device event in the trace",
        "rank 6: 1 kernels start before their launch (by up to 2.500 µs); their launch delay counts as 0",
    )
    lost = load(TraceBuilder().runtime("cudaLaunchKernel", 20, 1, 77))
    assert "GPU activity is missing: 1 launches have no device event" in lost.warnings[0]


# --- steps and windows --------------------------------------------------------------------------


def test_steps_end_where_the_next_begins(load):
    """Not across a gap in the numbers; stamps stay exact; the twin on the GPU is no step."""
    builder = TraceBuilder(base_ns=TODAY)
    for number, start in ((2, 0), (3, 100), (5, "200.001"), (6, 300)):
        builder.step(number, start, 40).gpu_annotation(f"ProfilerStep#{number}", 1, 900)
    steps = load(builder.annotation("ProfilerStep#x", 1, 1).annotation("my ProfilerStep#9", 1, 1)).steps
    assert steps["number"].tolist() == [2, 3, 5, 6]
    assert (steps["start"] - TODAY).tolist() == [0, 100_000, 200_001, 300_000]
    assert (steps["end"] - TODAY).tolist() == [100_000, 140_000, 300_000, 340_000]
    assert steps["next"].tolist() == [True, False, True, False]
    assert steps.dtypes.astype(str).tolist() == ["int64"] * 4 + ["bool"]


@pytest.mark.parametrize("category", ["user_annotation", "cpu_op", "Operator", "anything"])
def test_steps_of_any_host_category(category, load):
    """The first of several rows of a number counts; numbers beyond 31 bits are none."""
    builder = TraceBuilder(base_ns=0)
    for number, start in ((1, 50), (1, 10), (0, 0), (10**15, 5), (1, 60)):
        builder.event(row(category, f"ProfilerStep#{number}", ts=start, dur=7))
    steps = load(builder).steps
    assert steps[["number", "start", "end"]].to_numpy().tolist() == [[0, 0, 10_000], [1, 10_000, 17_000]]


def test_steps_of_several_captures(load):
    """A step does not last into the next capture, even if its number follows."""
    trace = load(*(TraceBuilder(base_ns=TODAY).step(n, 1000 * n, 100).kernel("k", 1000 * n + 5, 5) for n in range(3)))
    assert (trace.steps["end"] - trace.steps["start"]).tolist() == [100_000] * 3
    assert trace.steps["capture"].tolist() == [0, 1, 2]
    assert trace.device_events["step"].tolist() == [0, 1, 2]
    assert trace.all_step_numbers == (0, 1, 2)


@pytest.fixture
def stepped():
    """Three steps of 100 µs; kernels launched before, in and behind each; the last step loses its work."""
    builder = TraceBuilder()
    for number in range(3):
        builder.step(number, 100 * number, 95)
    builder.kernel("a", 5, 150, launch=(1, 2)).kernel("b", 160, 10, launch=(99, 2)).kernel("c", 171, 9, launch=(100, 2))
    builder.kernel("d", 210, 9, launch=(205, 2)).kernel("no launch", 250, 9)
    return builder.runtime("cudaLaunchKernel", 294, 1, 99)


@pytest.mark.parametrize(
    ("window", "names", "steps"),
    [
        (Window(), ["a", "b", "c", "d", "no launch"], [0, 1, 2]),
        (Window.parse("all"), ["a", "b", "c", "d", "no launch"], [0, 1, 2]),
        (Window.parse("1"), ["c"], [1]),
        (Window.parse("0,2-9"), ["a", "b", "d", "no launch"], [0, 2]),
        (Window.parse("7"), [], []),
        (Window.parse("complete"), ["a", "b", "c"], [0, 1]),
        (Window(without_last_step=True), ["a", "b", "c"], [0, 1]),
    ],
)
def test_windows(window, names, steps, stepped, load):
    """What belongs to a window: the step in which the launch starts counts, without launch the own start."""
    trace = load(stepped, window=window)
    assert trace.device_events["name"].tolist() == names
    assert trace.steps["number"].tolist() == steps
    assert trace.all_step_numbers == (0, 1, 2)
    assert (Capability.STEPS in trace.capabilities) == bool(steps)
    assert load(stepped).narrowed(window).device_events.equals(trace.device_events)


def test_a_window_of_steps_without_steps(load):
    """Then everything is in it; of a single step, nothing is taken away."""
    for builder in (
        TraceBuilder().kernel("k", 10, 5),
        TraceBuilder().step(3, 0, 100).kernel("k", 10, 5, launch=(1, 2)),
    ):
        for window in (Window(without_last_step=True), Window(complete_only=True)):
            assert len(load(builder, window=window).device_events) == 1


# --- times --------------------------------------------------------------------------------------


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
        "h.10000000000.pt.trace.json: events with impossible times set aside: 1 device events at time 0, "
        "1 device events ending before they start, 1 device events longer than seven days, "
        "2 host events at time 0, 1 host events ending before they start"
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


# --- captures -----------------------------------------------------------------------------------


def test_captures_are_pooled(load):
    """In order of time, whatever the order of their names; the time between them belongs to none."""
    trace = load(*(TraceBuilder().kernel(f"k{n}", at, 10).cpu_op("op", at, 50) for n, at in enumerate((2000, 0, 1000))))
    assert [capture.name for capture in trace.captures] == [f"h.{10**10 + n}.pt.trace.json" for n in (1, 2, 0)]
    assert trace.device_events["name"].tolist() == ["k1", "k2", "k0"]
    assert trace.device_events["capture"].tolist() == [0, 1, 2]
    assert [union.tolist() for union in trace.busy(trace.device_events)] == [
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
    reason = f"overlaps in time with {name(10**10)} of the same rank; not used"
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


# --- tables -------------------------------------------------------------------------------------


def test_events_table(load):
    """A mapping of tables by category, whose length is the number of events; times are int64."""
    builder = TraceBuilder(base_ns=TODAY).step(1, 0, 100).kernel("k", "10.001", 5, launch=(1, 2))
    builder.memcpy("HtoD", 20, 1, bytes=2**40, bandwidth=1.5)
    events = load(builder).events
    assert sorted(events) == ["cuda_runtime", "gpu_memcpy", "kernel", "user_annotation"]
    assert len(events) == 4
    kernel = events["kernel"]
    assert {name: str(dtype) for name, dtype in kernel.dtypes.items()} == {
        "name": "category", "ts": "int64", "dur": "int64", "pid": "int64", "tid": "int64", "device": "int64",
        "stream": "int64", "kind": "category", "correlation": "int64", "capture": "int16",
    }  # fmt: skip
    assert kernel[["name", "ts", "dur", "device", "stream", "kind", "correlation"]].to_numpy().tolist() == [
        ["k", TODAY + 10_001, 5000, 0, 7, "compute", 1]
    ]
    assert events["gpu_memcpy"][["bytes", "bandwidth"]].to_numpy().tolist() == [[2**40, 1.5]]
    assert "nothing" not in events
    with pytest.raises(KeyError):
        events["nothing"]


def test_device_events_are_in_order_of_start_and_end(load):
    """Over all categories; source and row lead back to the events table."""
    builder = TraceBuilder().memset(30, 1).kernel("b", 10, 5).memcpy("DtoH", 10, 2).kernel("a", 5, 1)
    trace = load(builder)
    events = trace.device_events
    assert events["name"].tolist() == ["a", "Memcpy DtoH", "b", "Memset (Device)"]
    for event in events.itertuples():
        table = trace.events[list(trace.events)[event.source]]
        assert (table["name"].iloc[event.row], table["ts"].iloc[event.row]) == (event.name, event.ts)
    assert np.issubdtype(events["ts"].dtype, np.int64)


def test_devices(load):
    """One row per device, in order; the name is that of the file, else none."""
    trace = load(TraceBuilder(devices=2).kernel("a", 0, 1, device=1).kernel("b", 1, 1).kernel("c", 2, 1, device=5))
    assert {device: events["name"].tolist() for device, events in trace.devices.items()} == {
        0: ["b"],
        1: ["a"],
        5: ["c"],
    }
    assert [trace.device_name(device) for device in trace.devices] == ["NVIDIA H100 80GB HBM3"] * 2 + [""]


def test_busy(load):
    """Unions of some kinds, or of all."""
    trace = load(TraceBuilder(base_ns=0).kernel("a", 0, 10).memset(5, 10).collective("nccl", "x", 12, 8))
    events = trace.device_events
    assert [trace.busy(events, *kinds)[0].tolist() for kinds in ((), ("compute",), ("comm", "memory"))] == [
        [[0, 20_000]], [[0, 10_000]], [[5_000, 20_000]]]  # fmt: skip


@pytest.mark.parametrize(
    ("builder", "capabilities"),
    [
        (TraceBuilder(), set()),
        (TraceBuilder().cpu_op("a", 0, 1), {Capability.HOST_OPS}),
        (TraceBuilder().step(1, 0, 1).kernel("k", 0, 1), {Capability.GPU, Capability.STEPS, Capability.ANNOTATIONS}),
        (TraceBuilder().memset(0, 1), {Capability.GPU, Capability.COPIES}),
        (TraceBuilder().event(row("cuda_sync", "Stream Sync")), {Capability.SYNC}),
        (TraceBuilder().event(row("cuda_profiler_range", "k")), {Capability.CUPTI}),
        (TraceBuilder().event({**row("cpu_instant_event", "[memory]"), "ph": "i"}), {Capability.MEMORY}),
        (TraceBuilder().kernel("nccl", 2, 1, launch=(0, 1)), {Capability.GPU, Capability.COMM, Capability.LAUNCHES}),
    ],
)
def test_capabilities(builder, capabilities, load):
    """What a trace holds."""
    assert load(builder).capabilities == capabilities


def test_memory_instants(load):
    """A table of their own, as instants are no complete events; those of 2021 have no category."""
    args = {"Bytes": -512, "Addr": 2**64 - 1, "Total Allocated": 2**40, "Device Type": 1, "Device Id": "0"}
    instant = {"ph": "i", "name": "[memory]", "pid": 1, "tid": 2, "ts": "1.001", "s": "t", "args": args}
    builder = TraceBuilder(base_ns=TODAY).event({"cat": "cpu_instant_event", **instant}).event(instant)
    builder.event({**instant, "name": "other"}).event({"cat": "cpu_instant_event", **instant, "args": {}})
    trace = load(builder.cpu_op("op", 5, 1))
    memory = trace.loaded.memory
    assert memory["ts"].tolist() == [TODAY + 1001] * 3
    assert memory["size"].tolist() == [-512, -512, -1]
    assert memory["address"].tolist() == [-1] * 3
    assert memory["device_id"].tolist() == [0, 0, -1]
    assert list(trace.events) == ["cpu_op"]
    assert trace.start_ns == TODAY + 5000
    assert len(load(builder, TraceBuilder(base_ns=TODAY).cpu_op("op", 50, 1)).loaded.memory["ts"]) == 3


def test_whole_arguments(load):
    """Counters have names of their own, so their arguments are kept as text, however the row is read."""
    counters = {"smsp__inst_executed.sum": 7, "b": [1, 2.5]}
    builder = TraceBuilder().event(row("cuda_profiler_range", "k", **counters))
    table = load(builder).events["cuda_profiler_range"]
    odd = load(builder.event(row("cuda_profiler_range", "k", pid=1.5, **counters))).events["cuda_profiler_range"]
    for each in (table, odd):
        texts = [load(builder).loaded.strings[code] if code >= 0 else "" for code in each["args"]]
        assert {json.dumps(json.loads(text)) for text in texts} == {json.dumps(counters)}


def test_copies(load):
    """Device events of the categories of copies, with kind, bytes and bandwidth, in order of start."""
    builder = TraceBuilder().memset(30, 1, bytes=7).memcpy("HtoD (Pinned -> Device)", 10, 2, bytes=2**40, bandwidth=0.5)
    trace = load(builder.kernel("k", 5, 1).memcpy("DtoH (Device -> Pinned)", 20, 1))
    assert trace.copies["bytes"].tolist() == [2**40, -1, 7]
    assert trace.copies["bandwidth"].fillna(-1).tolist() == [0.5, -1, -1]
    assert trace.copies["copy_kind"].is_unique
    assert trace.copies["ts"].is_monotonic_increasing
    assert len(load(TraceBuilder().kernel("k", 1, 1)).copies) == 0


def test_host_tree(load):
    """Annotations around operators around calls; Python functions outermost, and only if asked for."""
    builder = TraceBuilder(base_ns=0).kernel("k", 20, 5, launch=(12, 3)).cpu_op("aten::mm", 11, 5)
    builder.annotation("forward", 10, 10).cpu_op("aten::linear", 10, 10).python_function("f", 10, 10)
    builder.cpu_op("other thread", 11, 5, tid=5).cpu_op("behind", 20, 1)
    trace = load(builder)
    host = trace.host
    rows = list(zip(host["name"], host["level"], host["depth"], strict=True))
    thread = rows[:5] if rows[0][0] == "forward" else rows[1:]
    assert thread == [
        ("forward", "annotation", 0), ("aten::linear", "operator", 1), ("aten::mm", "operator", 2),
        ("cudaLaunchKernel", "call", 3), ("behind", "operator", 0),
    ]  # fmt: skip
    assert [trace.launches["name"].iloc[at] for at in host["launch"] if at >= 0] == ["cudaLaunchKernel"]
    around = {level: nearest(host, level) for level in ("annotation", "operator")}
    launch = host.index[host["level"] == "call"][0]
    assert [host["name"].iloc[around[level][launch]] for level in around] == ["forward", "aten::mm"]
    assert trace.host_with_python["name"].iloc[trace.host_with_python["parent"].max()] == "aten::mm"
    assert len(trace.host_with_python) == len(host) + 1
    assert len(load(TraceBuilder().kernel("k", 1, 1)).host) == 0


def test_the_nearest_row_of_a_level_is_found_through_any_depth(load):
    """Ten thousand operators within an annotation."""
    builder = TraceBuilder(base_ns=0).annotation("outer", 0, 30_000)
    for n in range(10_000):
        builder.cpu_op("op", n + 1, 29_000 - 2 * n)
    host = load(builder).host
    assert nearest(host, "annotation").tolist() == [-1] + [0] * 10_000
    assert host["depth"].tolist() == list(range(10_001))


def test_a_loaded_rank_can_be_sent_to_another_process(load):
    """With its derived tables."""
    trace = load(TraceBuilder().step(1, 0, 50).kernel("k", 10, 5, launch=(1, 2)))
    assert len(trace.device_events) == 1
    assert pickle.loads(pickle.dumps(trace)).device_events.equals(trace.device_events)  # noqa: S301  our own bytes


def test_facts_and_meta(load):
    """Plain values that JSON can hold."""
    trace = load(TraceBuilder(base_ns=TODAY, world_size=4).step(3, 0, 50).kernel("k", 10, 5, launch=(1, 2)))
    facts = facts_of(trace)
    assert (facts.num_events, facts.num_device_events, facts.steps, facts.world_size) == (3, 1, (3,), 4)
    meta = job_meta([facts], [("config.json", "no trace")], Window())
    assert json.loads(json.dumps(meta)) == meta
    assert (meta["zero_ns"], meta["recorded_ns"], meta["start"]) == (TODAY, 50_000, "2025-06-15 15:06:40 UTC")
    assert meta["software"] == {"CUDA runtime": "12.8", "NCCL": "2.27.3"}


def test_trace_opens_what_it_loads(tmp_path):
    """From a folder to the kernels of each rank."""
    for rank in (2, 5):
        TraceBuilder(rank).kernel(f"k{rank}", 1, 2).write(tmp_path / f"{rank}.json.gz", gzip=True)
    trace = Trace.open(tmp_path)
    loaded = {rank: RankTrace.load(rank, path).device_events["name"].tolist() for rank, path in trace.files.items()}
    assert loaded == {2: ["k2"], 5: ["k5"]}
