"""One rank of the job: host threads that launch work, streams that run it in order, and the rows a profiler sees.

Times are whole nanoseconds since the profiler's base time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from math import ceil, prod
from typing import Any, TypeAlias

from simulation.kernels import Kernel

Shapes: TypeAlias = Sequence[Sequence[int]]
Args: TypeAlias = Mapping[str, Any]

SMS = 132
WARPS_PER_SM = 64
COMPUTE_STREAM, NCCL_STREAM = 7, 20
CALLS = {  # CUPTI's numbers of the runtime calls.
    "cudaLaunchKernel": 211,
    "cudaLaunchKernelExC": 430,
    "cudaMemcpyAsync": 41,
    "cudaMemsetAsync": 51,
    "cudaEventRecord": 135,
    "cudaStreamWaitEvent": 147,
    "cudaStreamSynchronize": 131,
    "cudaDeviceSynchronize": 165,
}


@dataclass(slots=True)
class Row:
    """One event; `flow` is a phase (s or f), a number and a category."""

    cat: str
    name: str
    pid: int
    tid: int
    start: int
    end: int = 0
    args: dict[str, Any] = field(default_factory=dict)
    flow: tuple[str, int, str] | None = None


@dataclass(slots=True)
class Thread:
    """A host thread: its clock, its rows in order of start, and the rows still open."""

    tid: int
    now: int = 0
    rows: list[Row] = field(default_factory=list)
    open: list[Row] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Collective:
    """An all-reduce that is launched and waits for the other ranks."""

    row: Row
    earliest: int
    bytes: int


class Rank:
    """Runs one rank's share of the job. `slowness` stretches its kernels, `clock_ns` shifts its clock."""

    def __init__(self, number: int, world_size: int, slowness: float, clock_ns: int) -> None:
        self.number, self.world_size, self.slowness, self.clock_ns = number, world_size, slowness, clock_ns
        self.random = random.Random(f"rank {number}")  # noqa: S311  invented jitter, the same in every run
        self.pid = 41_200 + 13 * number
        self.main, self.autograd = Thread(self.pid), Thread(self.pid + 220)
        self.thread = self.main
        self.main.now = 1_000_000 + clock_ns
        self.streams = {COMPUTE_STREAM: 0, NCCL_STREAM: 0}  # When the last work on each ends.
        self.device_rows: list[Row] = []
        self.waiting: list[Collective] = []
        self.ids, self.sequence = count(1), count(8_200)
        self.correlations = count(70_001 + 4_000 * number)

    # Host

    def spend(self, us: float) -> None:
        """Let the current thread work, give or take a fifth."""
        self.thread.now += round(1000 * us * self.random.uniform(0.8, 1.2))

    @contextmanager
    def op(
        self, name: str, shapes: Shapes = (), us: float = 2.0, cat: str = "cpu_op", args: Args | None = None
    ) -> Iterator[Row]:
        """Run an operator or annotation on the current thread; what happens inside nests in it."""
        thread, number = self.thread, next(self.ids)
        fixed: dict[str, Any] = {"External id": number, "Record function id": 0}
        row = Row(cat, name, self.pid, thread.tid, thread.now, args={**fixed, **(args or {}), **_shape_args(shapes)})
        row.args["Ev Idx"] = number - 1
        thread.rows.append(row)
        thread.open.append(row)
        self.spend(us)
        yield row
        self.spend(us / 3)
        thread.open.pop()
        row.end = thread.now

    def call(self, name: str, us: float) -> Row:
        """Make a call of the CUDA runtime."""
        number = next(self.correlations)
        args = {**self._external_id(), "cbid": CALLS[name], "correlation": number}
        row = Row("cuda_runtime", name, self.pid, self.thread.tid, self.thread.now, args=args)
        self.spend(us)
        row.end = self.thread.now
        self.device_rows.append(row)
        self.thread.now += 150
        return row

    def synchronize(self, call: str = "cudaStreamSynchronize") -> None:
        """Block the current thread until the compute stream is done."""
        row = self.call(call, 3)
        row.end = max(row.end, self.streams[COMPUTE_STREAM] + 2_500)
        self.thread.now = row.end + 400

    # Device

    def launch(self, kernel: Kernel) -> Row:
        """Launch a kernel on the compute stream."""
        call = self.call("cudaLaunchKernel", 4.2)
        jitter = self.random.gauss(1, 0.012)
        row = self._device_row("kernel", kernel.name, _kernel_args(kernel))
        return self._enqueue(row, call, kernel.us * self.slowness * max(0.97, jitter))

    def copy(self, kind: str, size: int, gigabytes_per_second: float) -> Row:
        """Launch a copy such as "HtoD (Pinned -> Device)"."""
        call = self.call("cudaMemcpyAsync", 5.5)
        us = 1.1 + size / gigabytes_per_second / 1e3 * self.random.uniform(0.98, 1.05)
        return self._enqueue(self._device_row("gpu_memcpy", f"Memcpy {kind}", {"bytes": size}), call, us)

    def memset(self, size: int) -> Row:
        """Launch a memset."""
        call = self.call("cudaMemsetAsync", 4.0)
        return self._enqueue(
            self._device_row("gpu_memset", "Memset (Device)", {"bytes": size}), call, 1.2 + size / 2.4e6
        )

    def all_reduce(self, elements: int, dtype: str) -> None:
        """Launch an all-reduce of what the compute stream has made by then; `finish` ends it on all ranks."""
        ready = self.streams[COMPUTE_STREAM]
        args = {
            "Collective name": "allreduce",
            "In msg nelems": elements,
            "Out msg nelems": elements,
            "Group size": self.world_size,
            "dtype": dtype,
            "In split size": "[]",
            "Out split size": "[]",
            "Process Group Name": "0",
            "Process Group Description": "default_pg",
            "Process Group Ranks": str(list(range(self.world_size))),
        }
        with (
            self.op("record_param_comms", [[elements]], args={**args, "Rank": self.number}),
            self.op("nccl:all_reduce", [[elements]], us=6, cat="user_annotation"),
        ):
            self.call("cudaEventRecord", 1.3)
            self.call("cudaStreamWaitEvent", 1.0)
            call = self.call("cudaLaunchKernelExC", 8.0)
            kernel = _all_reduce_kernel(elements, dtype)
            row = self._device_row("kernel", kernel.name, {**_kernel_args(kernel), **args}, NCCL_STREAM)
            self._enqueue(row, call, 0)
            self.call("cudaEventRecord", 1.2)
        self.waiting.append(Collective(row, ready, elements * (2 if dtype == "BFloat16" else 4)))

    def wait_for_nccl(self) -> None:
        """Let the compute stream wait for the communication stream; the host goes on."""
        self.call("cudaStreamWaitEvent", 1.1)
        self.streams[COMPUTE_STREAM] = max(self.streams[COMPUTE_STREAM], self.streams[NCCL_STREAM] + 1_800)

    def gpu_annotations(self) -> list[Row]:
        """Make the device twins of the annotations: on each stream, from the first to the last of their rows."""
        launches = {row.args["correlation"]: row for row in self.device_rows if row.cat == "cuda_runtime"}
        works = [(row, launches[row.args["correlation"]]) for row in self.device_rows if row.cat != "cuda_runtime"]
        twins = []
        for host in (row for thread in (self.autograd, self.main) for row in thread.rows):
            if host.cat != "user_annotation":
                continue
            own = [work for work, call in works if call.tid == host.tid and host.start <= call.start < host.end]
            for stream in sorted({row.tid for row in own}):
                start = min(row.start for row in own if row.tid == stream) - 1
                end = max(row.end for row in own if row.tid == stream) + 1
                args = {"External id": host.args["External id"]}
                twins.append(Row("gpu_user_annotation", host.name, self.number, stream, start, end, args))
        return twins

    def _device_row(self, cat: str, name: str, args: Args, stream: int = COMPUTE_STREAM) -> Row:
        place = {"device": self.number, "context": 1, "stream": stream, "correlation": 0}
        queued = {"queued": 0} if cat == "kernel" else {}
        return Row(cat, name, self.number, stream, 0, args={**self._external_id(), **queued, **place, **args})

    def _enqueue(self, row: Row, call: Row, us: float) -> Row:
        """Place a row behind its launch and, on the compute stream, behind the work before it."""
        row.start = call.end + round(self.random.uniform(900, 2_600))
        if row.tid == COMPUTE_STREAM:
            row.start = max(row.start, self.streams[row.tid] + round(self.random.uniform(700, 1_300)))
            row.end = self.streams[row.tid] = row.start + round(1000 * us)
        if "bytes" in row.args:
            row.args["memory bandwidth (GB/s)"] = row.args["bytes"] / (row.end - row.start)
        number = row.args["correlation"] = call.args["correlation"]
        call.flow, row.flow = ("s", number, "ac2g"), ("f", number, "ac2g")
        self.device_rows.append(row)
        return row

    def _external_id(self) -> dict[str, int]:
        """Link to the innermost operator; annotations do not count."""
        operators = [row for row in self.thread.open if row.cat == "cpu_op"]
        return {"External id": operators[-1].args["External id"]} if operators else {}


def finish(ranks: Sequence[Rank], bytes_per_second: float) -> None:
    """End the waiting all-reduces: each starts when its rank is ready and ends on all ranks when the last has come."""
    for parts in zip(*(rank.waiting for rank in ranks), strict=True):
        for rank, part in zip(ranks, parts, strict=True):
            free = rank.streams[NCCL_STREAM] + 1_400
            part.row.start = max(part.row.start, part.earliest + 1_900, free)
        size = len(ranks)
        transfer = 14e-6 + 2 * (size - 1) / size * parts[0].bytes / bytes_per_second
        arrivals = [part.row.start - rank.clock_ns for rank, part in zip(ranks, parts, strict=True)]
        end = max(arrivals) + round(1e9 * transfer)
        for rank, part in zip(ranks, parts, strict=True):
            part.row.end = end + rank.clock_ns + round(rank.random.uniform(0, 4_000))
            rank.streams[NCCL_STREAM] = part.row.end
    for rank in ranks:
        rank.waiting.clear()


def _all_reduce_kernel(elements: int, dtype: str) -> Kernel:
    short = {"BFloat16": "bf16", "Float": "f32"}[dtype]
    name = f"ncclDevKernel_AllReduce_Sum_{short}_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    return Kernel(name, 0, (16 if elements > 1 else 1, 1, 1), (640, 1, 1), 96, 84_256)


def _kernel_args(kernel: Kernel) -> dict[str, Any]:
    blocks = prod(kernel.grid)
    warps = blocks * ceil(prod(kernel.block) / 32) / SMS
    return {
        "registers per thread": kernel.registers,
        "shared memory": kernel.shared,
        "blocks per SM": round(blocks / SMS, 6),
        "warps per SM": round(warps, 6),
        "grid": list(kernel.grid),
        "block": list(kernel.block),
        "est. achieved occupancy %": min(100, int(100 * warps / WARPS_PER_SM)),
    }


def _shape_args(shapes: Shapes) -> dict[str, Any]:
    if not shapes:
        return {}
    strides = [[prod(shape[i + 1 :]) for i in range(len(shape))] for shape in shapes]
    return {
        "Concrete Inputs": [""] * len(shapes),
        "Input type": ["c10::BFloat16"] * len(shapes),
        "Input Strides": strides,
        "Input Dims": [list(shape) for shape in shapes],
    }
