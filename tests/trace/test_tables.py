"""The tables of a loaded rank."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from builder import TraceBuilder

from htareport.rank.capability import Capability
from htareport.rank.host_calls import nearest
from htareport.rank.summary import facts_of, job_meta
from htareport.rank.window import Window
from htareport.trace import RankTrace, Trace

TODAY = 1_750_000_000_123_456_789  # More digits than a float holds.


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


def test_arguments_kept_as_codes_of_text(load):
    """Types of all operators, values of their inputs where they say what is computed, grids of kernels."""
    args = {"Input Dims": [[2, 3]], "Input type": ["float"], "Concrete Inputs": ["0.125"]}
    builder = TraceBuilder().cpu_op("aten::mul", 0, 5, **args).cpu_op("aten::convolution", 10, 5, **args)
    trace = load(builder.cpu_op("aten::empty", 20, 1).kernel("k", 30, 5, grid=[4, 1, 1]).kernel("l", 40, 5))
    strings = [*trace.loaded.strings, None]  # What -1 stands for.
    found = trace.loaded.tables["cpu_op"]
    assert [strings[code] for code in found["types"]] == ['["float"]', '["float"]', None]
    assert [strings[code] for code in found["inputs"]] == [None, '["0.125"]', None]
    assert [strings[code] for code in trace.loaded.tables["kernel"]["grid"]] == ["[4, 1, 1]", None]
    assert not {"types", "inputs", "grid", "block", "registers", "shared_memory", "occupancy"} & {
        *trace.events["cpu_op"],
        *trace.events["kernel"],
    }


def test_shapes_are_there(load):
    """Where the profiler was asked for them."""
    assert Capability.SHAPES in load(TraceBuilder().cpu_op("aten::mul", 0, 5, **{"Input Dims": [[2]]})).capabilities
    assert Capability.SHAPES not in load(TraceBuilder().cpu_op("aten::mul", 0, 5)).capabilities


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
    assert [trace.busy_by_capture(events, *kinds)[0].tolist() for kinds in ((), ("compute",), ("comm", "memory"))] == [
        [[0, 20_000]], [[0, 10_000]], [[5_000, 20_000]]]  # fmt: skip


@pytest.mark.parametrize(
    ("builder", "capabilities"),
    [
        (TraceBuilder(), set()),
        (TraceBuilder().cpu_op("a", 0, 1), {Capability.HOST_OPS}),
        (TraceBuilder().step(1, 0, 1).kernel("k", 0, 1), {Capability.GPU, Capability.STEPS, Capability.ANNOTATIONS}),
        (TraceBuilder().memset(0, 1), {Capability.GPU, Capability.COPIES}),
        (TraceBuilder().complete("cuda_sync", "Stream Sync", 0, 7, (1, 1), {}), {Capability.SYNC}),
        (TraceBuilder().complete("cuda_profiler_range", "k", 0, 7, (1, 1), {}), {Capability.CUPTI}),
        (
            TraceBuilder().event({"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": 1}),
            {Capability.MEMORY},
        ),
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


def test_whole_arguments(load, row):
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
    host, with_python = trace.host.frame(), trace.host_with_python
    rows = list(zip(host["name"], host["level"], host["depth"], strict=True))
    thread = rows[:5] if rows[0][0] == "forward" else rows[1:]
    assert thread == [
        ("forward", "annotation", 0), ("aten::linear", "operator", 1), ("aten::mm", "operator", 2),
        ("cudaLaunchKernel", "call", 3), ("behind", "operator", 0),
    ]  # fmt: skip
    assert [trace.launches["name"].iloc[at] for at in host["launch"] if at >= 0] == ["cudaLaunchKernel"]
    around = {level: nearest(trace.host, level) for level in ("annotation", "operator")}
    launch = host.index[host["level"] == "call"][0]
    assert [host["name"].iloc[around[level][launch]] for level in around] == ["forward", "aten::mm"]
    assert with_python.names([with_python["parent"].max()]).tolist() == ["aten::mm"]
    assert len(with_python) == len(host) + 1
    some = np.array([3, 0, -1])
    for name in host:  # Taken for some rows, in whatever order.
        assert trace.host.frame(some)[name].tolist() == host[name].iloc[some].tolist()
    assert len(load(TraceBuilder().kernel("k", 1, 1)).host) == 0


def test_the_nearest_row_of_a_level_is_found_through_any_depth(load):
    """Three thousand operators within an annotation: thrice as many as Python calls into each other."""
    builder = TraceBuilder(base_ns=0).annotation("outer", 0, 9_000)
    for n in range(3_000):
        builder.cpu_op("op", n + 1, 8_700 - 2 * n)
    host = load(builder).host
    assert nearest(host, "annotation").tolist() == [-1] + [0] * 3_000
    assert host["depth"].tolist() == list(range(3_001))


def test_a_loaded_rank_can_be_sent_to_another_process(load):
    """With its derived tables."""
    trace = load(TraceBuilder().step(1, 0, 50).kernel("k", 10, 5, launch=(1, 2)))
    assert len(trace.device_events) == 1
    assert pickle.loads(pickle.dumps(trace)).device_events.equals(trace.device_events)  # noqa: S301  our own bytes


def test_facts_and_meta(load):
    """Plain values that JSON can hold."""
    trace = load(TraceBuilder(base_ns=TODAY, world_size=4).step(3, 0, 50).kernel("k", 10, 5, launch=(1, 2)))
    facts = facts_of(trace)
    assert (facts.num_events, facts.num_device_events, (*facts.steps,), facts.world_size) == (3, 1, (3,), 4)
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


@pytest.mark.parametrize(
    ("capability", "options"),
    [
        (Capability.SYNC, ["enable_cuda_sync_events=True"]),
        (Capability.CUPTI, ["profiler_metrics=[…]", "profiler_measure_per_kernel=True"]),
    ],
)
def test_what_is_missing_comes_with_the_call_that_records_it(capability, options):
    """Whole, to be copied: from which module, and every argument that it takes."""
    assert f"experimental_config=torch.profiler._ExperimentalConfig({', '.join(options)})" in capability
