"""Write the example traces: four ranks, four steps, one late rank (2) and one step (12) that waits for the data loader.

    python examples/make_traces.py [FOLDER]

Nothing in them is measured. A small simulation of a data-parallel training job decides when things happen, so that
causes and effects fit together; the files are laid out as Kineto writes them. Every run gives the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from simulation.job import CLOCKS_NS, SLOW_RANK, SLOWNESS, train
from simulation.rank import COMPUTE_STREAM, NCCL_STREAM, Rank, Row

RANKS, STEPS = 4, 4
BASE_NS = 1_761_900_000_000_000_000
UPTIME_US = 4_217_305_881  # Between the base time, which is when the machine was started, and the profiler's start.
FOLDER = Path(__file__).parent / "traces"
# Kineto joins pieces of metadata that each began on a line of its own; these keys began one.
PIECES = {"cbid", "queued", "stream", "bytes", "registers per thread", "shared memory", "blocks per SM", "warps per SM",
          "grid", "block", "est. achieved occupancy %"}  # fmt: skip


def simulate(steps: int = STEPS) -> list[Rank]:
    """Run the job."""
    ranks = [Rank(n, RANKS, SLOWNESS if n == SLOW_RANK else 1.0, CLOCKS_NS[n]) for n in range(RANKS)]
    train(ranks, steps)
    return ranks


def trace_text(rank: Rank) -> str:
    """Return one rank's file."""
    return "".join((_head(rank), *_events(rank), _tail(rank)))


def write(folder: Path) -> list[Path]:
    """Write all files; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for rank in simulate():
        path = folder / f"rank{rank.number}.pt.trace.json.gz"
        # No time stamp in the archive, so that the same trace gives the same bytes.
        path.write_bytes(gzip.compress(trace_text(rank).encode(), compresslevel=9, mtime=0))
        paths.append(path)
    return paths


def _head(rank: Rank) -> str:
    devices = ",".join(map(_device, range(rank.world_size)))
    group = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": rank.world_size}
    info = {"backend": "nccl", "rank": rank.number, "world_size": rank.world_size, "pg_count": 1}
    info |= {"pg_config": [{**group, "ranks": list(range(rank.world_size))}], "nccl_version": "2.27.3"}
    metadata = {
        "cupti_version": 26,
        "cuda_runtime_version": 12080,
        "cuda_driver_version": 12080,
        "distributedInfo": info,
        "record_shapes": 1,
        "trace_id": f"5D0C8E4EA9F143B2B7C6A1E39F2D47{rank.number:02X}",
    }
    lines = "".join(f'  "{name}": {json.dumps(value)},\n' for name, value in metadata.items())
    start = f'{{\n  "schemaVersion": 1,\n  "deviceProperties": [{devices}\n  ],\n{lines}'
    return f'\n{start}  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": {BASE_NS},\n  "traceEvents": ['


def _device(number: int) -> str:
    return f"""
    {{
      "id": {number}, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85017624576,
      "computeMajor": 9, "computeMinor": 0,
      "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,
      "regsPerBlock": 65536, "warpSize": 32,
      "sharedMemPerBlock": 49152, "numSms": 132
    , "regsPerMultiprocessor": 65536, "sharedMemPerBlockOptin": 232448, "sharedMemPerMultiprocessor": 233472
    }}"""


def _events(rank: Rank) -> Iterator[str]:
    """Yield events in Kineto's order: operators by thread, runtime calls with their device rows, annotations, names."""
    for row in (*rank.autograd.rows, *rank.main.rows, *_by_launch(rank.device_rows), *rank.gpu_annotations()):
        yield _complete(row)
        if row.flow:
            yield _flow(row)
    yield from _names(rank)


def _by_launch(rows: Iterable[Row]) -> list[Row]:
    # Device rows come before their launch: CUPTI hands them over in buffers of their own.
    return sorted(rows, key=lambda row: (row.args["correlation"], row.cat == "cuda_runtime"))


def _complete(row: Row) -> str:
    line = f'"ph": "X", "cat": "{row.cat}", "name": "{row.name}", "pid": {row.pid}, "tid": {row.tid},'
    times = f'"ts": {_micros(row.start)}, "dur": {_micros(row.end - row.start, offset=0)}'
    return f'\n  {{\n    {line}\n    {times},\n    "args": {{\n      {_args(row)}\n    }}\n  }},'


def _args(row: Row) -> str:
    host = row.cat in {"cpu_op", "user_annotation"}
    text = ""
    for name, value in row.args.items():
        if text.startswith('"External id"') and text.count(":") == 1:
            text += "," if host else ",      "
        elif text:
            text += ",      " if name in PIECES else ", "
        text += f'"{name}": {json.dumps(value)}'
    return text


def _flow(row: Row) -> str:
    assert row.flow  # noqa: S101  for the type checker; the caller looked
    phase, number, name = row.flow
    binding = ', "bp": "e"' if phase == "f" else ""
    first = f'"ph": "{phase}", "id": {number}, "pid": {row.pid}, "tid": {row.tid}, "ts": {_micros(row.start)},'
    return f'\n  {{\n    {first}\n    "cat": "{name}", "name": "{name}"{binding}\n  }},'


def _names(rank: Rank) -> Iterator[str]:
    """Name the processes and threads."""
    processes = [(rank.pid, "python", "CPU", rank.pid)]
    processes += [(gpu, "python", f"GPU {gpu}", 5_000_000 + gpu) for gpu in range(rank.world_size)]
    for pid, name, labels, order in processes:
        for key, label, value in (("process_name", "name", name), ("process_labels", "labels", labels),
                                  ("process_sort_index", "sort_index", order)):  # fmt: skip
            yield _metadata(key, pid, 0, label, value)
    threads = [(rank.number, stream, f"stream {stream} ") for stream in (COMPUTE_STREAM, NCCL_STREAM)]
    threads += [(rank.pid, tid, f"thread {tid} (python)") for tid in (rank.autograd.tid, rank.main.tid)]
    for pid, tid, name in threads:
        yield _metadata("thread_name", pid, tid, "name", name)
        yield _metadata("thread_sort_index", pid, tid, "sort_index", tid)


def _metadata(name: str, pid: int, tid: int, key: str, value: Any) -> str:
    first = f'"name": "{name}", "ph": "M", "ts": {_micros(0)}, "pid": {pid}, "tid": {tid},'
    return f'\n  {{\n    {first}\n    "args": {{\n      "{key}": {json.dumps(value)}\n    }}\n  }},'


def _tail(rank: Rank) -> str:
    end = rank.main.now + 350_000
    start = _micros(0)
    return f"""
  {{
    "ph": "X", "cat": "Trace", "ts": {start}, "dur": {_micros(end, offset=0)},
    "pid": "Spans", "tid": "PyTorch Profiler",
    "name": "PyTorch Profiler (0)",
    "args": {{
      "Op count": 0
    }}
  }},
  {{
    "name": "process_sort_index", "ph": "M", "ts": {start},
    "pid": "Spans", "tid": 0,
    "args": {{
      "sort_index": 536870912
    }}
  }},
  {{
    "name": "Iteration Start: PyTorch Profiler", "ph": "i", "s": "g",
    "pid": "Traces", "tid": "Trace PyTorch Profiler", "ts": {start}
  }},
  {{
    "name": "Record Window End", "ph": "i", "s": "g",
    "pid": "", "tid": "", "ts": {_micros(end + 40_000)}
  }}
  ],
  "traceName": "traces/rank{rank.number}.pt.trace.json"
}}"""


def _micros(ns: int, offset: int = UPTIME_US) -> str:
    return f"{offset + ns // 1000}.{ns % 1000:03}"


def main() -> None:
    """Write the traces and say where."""
    parser = argparse.ArgumentParser(description="Write the example traces.")
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    for path in write(parser.parse_args().folder):
        print(f"{path}  {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
