"""What is device work, of which class, and what launched it."""

from __future__ import annotations

import pytest
from builder import BASE_NS, TraceBuilder

COMM = [
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ncclKernel_Broadcast_RING_LL_Sum",
    "void rcclGenericKernel<1, false>()", "Hccl_all_reduce", "hcom_allReduce__123_0_1", "oneccl_allreduce_f32",
    "void deep_ep::intranode::dispatch<8>(int*)", "dpsk::ep::combine", "vllm::cross_device_reduce_2stage<half, 4>",
    "void tensorrt_llm::kernels::oneShotAllReduceKernel<half>", "flashinfer::allreduce_fusion_kernel_oneshot",
    "nvshmemi_transfer", "void c10d::symmetric_memory::two_shot_all_reduce", "multimem_all_reduce_kernel",
    "NCCLDEVKERNEL_AllReduce", "nccldevkernel_allreduce",
]  # fmt: skip
COMPUTE = [
    "void SyncBatchNorm_forward", "cutlass_dmask_kernel", "void at::native::reduce_kernel<512, 1>",
    "triton_broadcast_0", "void BatchMemcpyKernel<1>",
]  # fmt: skip
MEMORY = [
    "Memcpy HtoD (Pinned -> Device)",
    "Memset (Device)",
    "__amd_rocclr_copyBuffer",
    "dma_copy",
    "MEMCPY_ASYNC",
    "MEMORY_COPY_HOST_TO_DEVICE",
]


@pytest.mark.parametrize(
    ("names", "kind"), [(COMM, "comm"), (COMPUTE, "compute"), (MEMORY, "memory")], ids=["comm", "compute", "memory"]
)
@pytest.mark.parametrize("category", ["kernel", "Kernel", "mtia_ccp_events"])
def test_class_by_name(names, kind, category, load, row):
    """Where neither the category nor the kernel's own arguments say it."""
    builder = TraceBuilder()
    for name in names:
        builder.event(row(category, name))
    assert load(builder).device_events["kind"].tolist() == [kind] * len(names)


def test_class_by_category_then_argument_then_name(load, row):
    """The category of copies wins over all; the collective of the kernel over its name, if it is not empty."""
    builder = TraceBuilder()
    for category in ("gpu_memcpy", "gpu_memset", "Memcpy", "Memset"):
        builder.event(row(category, "ncclKernel", ts=1, **{"Collective name": "allreduce"}))
    for ts, collective in ((2, "allreduce"), (3, ""), (4, None)):
        builder.event(row("kernel", "Memcpy DtoD", ts=ts, **{"Collective name": collective}))
    assert load(builder).device_events["kind"].tolist() == ["memory"] * 4 + ["comm", "memory", "memory"]


def test_what_is_no_device_work(load, row):
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


def test_npu_rows_have_no_category(load, row):
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


def test_launch_links(load, row):
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
def test_launches_of_any_runtime(category, load, row):
    """And of no other category."""
    builder = TraceBuilder().event(row("kernel", "k", correlation=3)).event(row("cpu_op", "op", ts=1, correlation=3))
    trace = load(builder.event(row(category, "launch", ts=2, correlation=3)))
    assert trace.launches["name"].tolist() == ["launch"]
    assert trace.device_events["launch"].tolist() == [0]


def test_correlations_count_within_a_capture(load, row):
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
        "rank 6: 1 kernel starts before its launch (by up to 2.50\u202fµs); the launch delay counts as 0 there",
    )
    lost = load(TraceBuilder().runtime("cudaLaunchKernel", 20, 1, 77))
    assert "GPU activity is missing: 1 launch has no device event" in lost.warnings[0]
