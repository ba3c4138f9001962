"""Hand-made traces for tests: a few events on paper values, written as Kineto would write them.

    TraceBuilder(rank=0).step(1, 0, 100).kernel("gemm", 20, 30, launch=(5, 4)).write(tmp_path / "rank0.json")

Times are µs since `base_ns` and reach the file as exact decimal text; they never pass through float arithmetic.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from gzip import compress
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

Micros: TypeAlias = int | float | str | Decimal
Span: TypeAlias = tuple[Micros, Micros]  # Start and duration.
Layout: TypeAlias = Literal["kineto", "compact", "indent", "array"]

BASE_NS = 1_750_000_000_000_000_000
_MILLI = Decimal("0.001")
_NUMBER = re.compile(r'"@number (\S+)@"')


class TraceBuilder:
    """The events of one rank. Host rows stand under `pid`, on the thread `pid` unless `tid` says otherwise.

    `rank=None` leaves out distributedInfo, as in a trace of a single process. `metadata` adds top-level keys or, with
    the value None, takes one away. Every method that adds an event returns the builder.
    """

    def __init__(
        self, rank: int | None = 0, world_size: int = 1, base_ns: int = BASE_NS, devices: int = 1, **metadata: Any
    ) -> None:
        self.rank, self.world_size = rank, world_size
        self.pid = 1000 + (rank or 0)
        self.events: list[dict[str, Any]] = []
        self._correlation = 0
        self.metadata: dict[str, Any] = {
            "schemaVersion": 1,
            "deviceProperties": [_device(each) for each in range(devices)],
            "cuda_runtime_version": 12080,
            "record_shapes": 1,
        }
        if rank is not None:
            self.metadata["distributedInfo"] = _distributed(rank, world_size)
        self.metadata |= {"displayTimeUnit": "ms", "baseTimeNanoseconds": base_ns} | metadata
        self.metadata = {name: value for name, value in self.metadata.items() if value is not None}

    def event(self, event: Mapping[str, Any]) -> Self:
        """Add a row as it is. A Decimal is written as its exact text."""
        self.events.append(dict(event))
        return self

    def complete(self, cat: str, name: str, pid: int, tid: int, span: Span, args: Mapping[str, Any]) -> Self:
        """Add a row of phase X; the other methods are short forms of this one."""
        times = {"ts": _micros(span[0]), "dur": _micros(span[1])}
        row = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, **times}
        return self.event({**row, "args": dict(args)} if args else row)

    # Host

    def cpu_op(self, name: str, start: Micros, dur: Micros, tid: int | None = None, **args: Any) -> Self:
        """Add an operator."""
        return self.complete("cpu_op", name, self.pid, self._tid(tid), (start, dur), args)

    def annotation(self, name: str, start: Micros, dur: Micros, tid: int | None = None, **args: Any) -> Self:
        """Add a user annotation on the host."""
        return self.complete("user_annotation", name, self.pid, self._tid(tid), (start, dur), args)

    def step(self, number: int, start: Micros, dur: Micros) -> Self:
        """Add the host row of a profiler step."""
        return self.annotation(f"ProfilerStep#{number}", start, dur)

    def python_function(
        self, name: str, start: Micros, dur: Micros, python_id: int = 1, parent: int | None = None
    ) -> Self:
        """Add a frame of the Python stack."""
        args = {"Python parent id": parent, "Python id": python_id}
        return self.complete("python_function", name, self.pid, self.pid, (start, dur), args)

    def runtime(
        self, name: str, start: Micros, dur: Micros, correlation: int = 0, tid: int | None = None, **args: Any
    ) -> Self:
        """Add a call of the CUDA runtime."""
        args = {"correlation": correlation, **args}
        return self.complete("cuda_runtime", name, self.pid, self._tid(tid), (start, dur), args)

    # Device: `launch` is start and duration of the runtime call; without it the row has no launch in the trace.

    def kernel(
        self, name: str, start: Micros, dur: Micros, stream: int = 7, device: int = 0,
        launch: Span | None = None, launch_name: str = "cudaLaunchKernel", **args: Any,
    ) -> Self:  # fmt: skip
        """Add a kernel, and its launch."""
        return self._device_row("kernel", name, (start, dur), stream, device, launch, launch_name, args)

    def memcpy(
        self, kind: str, start: Micros, dur: Micros, bytes: int | None = None,  # noqa: A002  Kineto's name
        bandwidth: float | None = None, stream: int = 7, device: int = 0, launch: Span | None = None, **args: Any,
    ) -> Self:  # fmt: skip
        """Add a copy of a kind such as "HtoD (Pinned -> Device)", bandwidth in GB/s."""
        args = {**_moved(bytes, bandwidth), **args}
        return self._device_row(
            "gpu_memcpy", f"Memcpy {kind}", (start, dur), stream, device, launch, "cudaMemcpyAsync", args
        )

    def memset(
        self, start: Micros, dur: Micros, bytes: int | None = None, bandwidth: float | None = None,  # noqa: A002
        stream: int = 7, device: int = 0, launch: Span | None = None, **args: Any,
    ) -> Self:  # fmt: skip
        """Add a memset."""
        args = {**_moved(bytes, bandwidth), **args}
        return self._device_row(
            "gpu_memset", "Memset (Device)", (start, dur), stream, device, launch, "cudaMemsetAsync", args
        )

    def graph_launch(
        self, start: Micros, dur: Micros, kernels: Sequence[tuple[str, Micros, Micros]],
        stream: int = 7, device: int = 0,
    ) -> Self:  # fmt: skip
        """Add a CUDA graph launch and its kernels (name, start, duration), all of one correlation."""
        correlation = self._next_correlation()
        self.runtime("cudaGraphLaunch", start, dur, correlation)
        for name, *span in kernels:
            args = {"device": device, "stream": stream, "correlation": correlation}
            self.complete("kernel", name, device, stream, (span[0], span[1]), args)
        return self

    def collective(
        self, name: str, collective: str, start: Micros, dur: Micros, group: Sequence[int] | None = None,
        nelems: int = 1024, out_nelems: int | None = None, dtype: str = "Float", group_name: str = "0",
        stream: int = 20, device: int = 0, launch: Span | None = None, **args: Any,
    ) -> Self:  # fmt: skip
        """Add an NCCL kernel with the arguments that PyTorch gives it; the group defaults to all ranks."""
        ranks = list(range(self.world_size) if group is None else group)
        args = {
            "Collective name": collective,
            "In msg nelems": nelems,
            "Out msg nelems": nelems if out_nelems is None else out_nelems,
            "Group size": len(ranks),
            "dtype": dtype,
            "Process Group Name": group_name,
            "Process Group Description": "default_pg" if group_name == "0" else f"group_{group_name}",
            "Process Group Ranks": str(ranks),
            **args,
        }
        return self._device_row("kernel", name, (start, dur), stream, device, launch, "cudaLaunchKernelExC", args)

    def gpu_annotation(self, name: str, start: Micros, dur: Micros, stream: int = 7, device: int = 0) -> Self:
        """Add the device twin of a user annotation."""
        return self.complete("gpu_user_annotation", name, device, stream, (start, dur), {})

    # What takes options of the profiler

    def memory(
        self, at: Micros, size: int, address: int, allocated: int | None = None, reserved: int | None = None,
        device: int | None = 0, tid: int | None = None,
    ) -> Self:  # fmt: skip
        """Add a [memory] row: bytes allocated, or freed where negative; on the CPU with the device None."""
        where = {"Device Type": 0, "Device Id": -1} if device is None else {"Device Type": 1, "Device Id": device}
        totals = {"Total Allocated": allocated, "Total Reserved": reserved}
        args = {**where, "Addr": address, "Bytes": size, **{k: v for k, v in totals.items() if v is not None}}
        row = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": self.pid}
        return self.event({**row, "tid": self._tid(tid), "ts": _micros(at), "args": args})

    def profiler_range(self, name: str, start: Micros, dur: Micros, counters: Mapping[str, float]) -> Self:
        """Add a kernel's row of CUPTI's range profiler."""
        return self.complete("cuda_profiler_range", name, 0, 0, (start, dur), counters)

    # Output

    def to_dict(self) -> dict[str, Any]:
        """Return the trace as data, times as Decimal."""
        return {**self.metadata, "traceEvents": self.events, "traceName": f"rank{self.rank or 0}.json"}

    def json(self, layout: Layout = "kineto") -> str:
        """Return the text: as Kineto breaks lines, on one line, indented, or only the array of events."""
        match layout:
            case "compact":
                return _dumps(self.to_dict(), separators=(",", ":"))
            case "indent":
                return _dumps(self.to_dict(), indent=2)
            case "array":
                return _dumps(self.events)
        head = "".join(f'  "{name}": {_dumps(value)},\n' for name, value in self.metadata.items())
        rows = ",\n".join(map(_kineto_row, self.events))
        return f'{{\n{head}  "traceEvents": [\n{rows}\n  ],\n  "traceName": "rank{self.rank or 0}.json"\n}}'

    def write(self, path: Path, layout: Layout = "kineto", *, gzip: bool = False) -> Path:
        """Write the file, making its folder; return its path."""
        data = self.json(layout).encode()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(compress(data, mtime=0) if gzip else data)
        return path

    def _device_row(
        self, cat: str, name: str, span: Span, stream: int, device: int,
        launch: Span | None, launch_name: str, args: Mapping[str, Any],
    ) -> Self:  # fmt: skip
        args = {"device": device, "stream": stream, "correlation": self._next_correlation(), **args}
        if launch:
            self.runtime(launch_name, *launch, args["correlation"])
        return self.complete(cat, name, device, stream, span, args)

    def _next_correlation(self) -> int:
        self._correlation += 1
        return self._correlation

    def _tid(self, tid: int | None) -> int:
        return self.pid if tid is None else tid


def _device(number: int) -> dict[str, Any]:
    name = "NVIDIA H100 80GB HBM3"
    return {"id": number, "name": name, "totalGlobalMem": 85_017_624_576, "computeMajor": 9, "numSms": 132}


def _distributed(rank: int, world_size: int) -> dict[str, Any]:
    ranks = list(range(world_size))
    group = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": world_size}
    info = {"backend": "nccl", "rank": rank, "world_size": world_size, "pg_count": 1}
    return {**info, "pg_config": [{**group, "ranks": ranks}], "nccl_version": "2.27.3"}


def _moved(size: int | None, bandwidth: float | None) -> dict[str, Any]:
    args = {"bytes": size, "memory bandwidth (GB/s)": bandwidth}
    return {name: value for name, value in args.items() if value is not None}


def _micros(value: Micros) -> Decimal:
    """Give three decimals at least, as Kineto writes; digits beyond them stay."""
    exact = Decimal(str(value))
    padded = exact.quantize(_MILLI)
    return padded if padded == exact else exact


def _dumps(value: Any, **options: Any) -> str:
    # JSON has no hook that writes a number's text, so a marked string stands in for it.
    text = json.dumps(value, default=lambda number: f"@number {number:f}@", **options)
    return _NUMBER.sub(r"\1", text)


def _kineto_row(event: Mapping[str, Any]) -> str:
    broken_after = {"X": "tid", "s": "ts", "f": "ts"}.get(event.get("ph", ""), "")
    pairs = [f'"{name}": {_dumps(value)}' for name, value in event.items() if name != "args"]
    cut = list(event).index(broken_after) + 1 if broken_after in event else len(pairs)
    lines = [", ".join(part) for part in (pairs[:cut], pairs[cut:]) if part]
    if "args" in event:
        args = ", ".join(f'"{name}": {_dumps(value)}' for name, value in event["args"].items())
        lines.append(f'"args": {{\n      {args}\n    }}')
    return "  {\n    " + ",\n    ".join(lines) + "\n  }"
