"""The example traces: laid out as Kineto does, made again by their script, and without anything impossible."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from htareport.rules import discover
from htareport.run.runner import analyze

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted((EXAMPLES / "traces").iterdir())
DEVICE = {"kernel", "gpu_memcpy", "gpu_memset"}
US = Decimal(1)


def text_of(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode()


@pytest.fixture(scope="module")
def traces() -> list[dict[str, Any]]:
    return [json.loads(text_of(path), parse_float=Decimal) for path in FILES]


def device_rows(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in trace["traceEvents"] if row.get("cat") in DEVICE]


def launches(trace: dict[str, Any]) -> dict[int, dict[str, Any]]:
    return {row["args"]["correlation"]: row for row in trace["traceEvents"] if row.get("cat") == "cuda_runtime"}


def end(row: dict[str, Any]) -> Decimal:
    return row["ts"] + row["dur"]


def test_there_are_four_small_files():
    """One file per rank, less than 1 MB in all."""
    assert [path.name for path in FILES] == [f"rank{n}.pt.trace.json.gz" for n in range(4)]
    assert sum(path.stat().st_size for path in FILES) < 1_000_000


def test_the_script_makes_them_again(tmp_path):
    """Two runs give the same bytes, and the text of the files in the repository (zlib's versions pack differently)."""
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        subprocess.run([sys.executable, EXAMPLES / "make_traces.py", folder], check=True, capture_output=True)
    for path in FILES:
        first, second = (folder / path.name for folder in folders)
        assert first.read_bytes() == second.read_bytes()
        assert text_of(first) == text_of(path)


def test_metadata_is_that_of_a_distributed_job(traces):
    """Each file tells its rank, the job's size, base time and GPU."""
    for number, trace in enumerate(traces):
        info = trace["distributedInfo"]
        assert (info["rank"], info["world_size"], info["backend"]) == (number, 4, "nccl")
        assert trace["schemaVersion"] == 1
        assert trace["baseTimeNanoseconds"] > 10**18
        assert {device["name"] for device in trace["deviceProperties"]} == {"NVIDIA H100 80GB HBM3"}
        assert list(trace)[-1] == "traceName"


def test_lines_are_broken_as_kineto_breaks_them():
    """Complete events take a line of names, one of times with three decimals, and their arguments."""
    text = text_of(FILES[0])
    names = r'\n  \{\n    "ph": "X", "cat": "\w+", "name": "[^"]+", "pid": \d+, "tid": \d+,'
    times = r'\n    "ts": \d+\.\d{3}, "dur": \d+\.\d{3},'
    args = r'\n    "args": \{\n      .+\n    \}\n  \},'
    rows = re.findall(names + times + args, text)
    assert len(rows) == text.count('"ph": "X"') - 1  # Without the profiler's own span.


def test_streams_run_their_work_in_order(traces):
    """No two rows of a stream overlap."""
    for trace in traces:
        for stream in (7, 20):
            rows = sorted((row for row in device_rows(trace) if row["tid"] == stream), key=lambda row: row["ts"])
            assert rows
            assert all(end(before) <= after["ts"] for before, after in pairwise(rows))


def test_work_starts_after_its_launch(traces):
    """Every device row has its launch, which starts before it."""
    for trace in traces:
        calls = launches(trace)
        assert all(calls[row["args"]["correlation"]]["ts"] < row["ts"] for row in device_rows(trace))


def test_host_rows_nest(traces):
    """On a thread, a row either lies within another or apart from it."""
    for trace in traces:
        rows = [row for row in trace["traceEvents"] if row.get("cat") in {"cpu_op", "user_annotation", "cuda_runtime"}]
        for thread in {row["tid"] for row in rows}:
            open_ends: list[Decimal] = []
            mine = (row for row in rows if row["tid"] == thread)
            for row in sorted(mine, key=lambda row: (row["ts"], -row["dur"])):
                while open_ends and open_ends[-1] <= row["ts"]:
                    open_ends.pop()
                assert not open_ends or end(row) <= open_ends[-1]
                open_ends.append(end(row))


def test_flows_link_launches_to_device_rows(traces):
    """Each launch starts an arrow that ends at its device row."""
    for trace in traces:
        flows = [row for row in trace["traceEvents"] if row.get("cat") == "ac2g"]
        starts = {row["id"] for row in flows if row["ph"] == "s"}
        assert starts == {row["id"] for row in flows if row["ph"] == "f"}
        assert starts == {row["args"]["correlation"] for row in device_rows(trace)}


def test_all_reduces_end_together(traces):
    """An all-reduce ends on all ranks within 50 µs, after the last rank has begun it."""
    parts = [[row for row in device_rows(trace) if row["tid"] == 20] for trace in traces]
    for rows in zip(*parts, strict=True):
        assert len({row["args"]["In msg nelems"] for row in rows}) == 1
        assert max(map(end, rows)) - min(map(end, rows)) < 50 * US
        assert max(row["ts"] for row in rows) < min(map(end, rows))


def test_one_rank_is_late(traces):
    """Rank 2 begins the all-reduces of the layers' gradients last, so the others wait in them."""
    size = max(row["args"].get("In msg nelems", 0) for row in device_rows(traces[0]))  # The embeddings' come at once.
    parts = [[row for row in device_rows(t) if 1 < row["args"].get("In msg nelems", 0) < size] for t in traces]
    for rows in zip(*parts, strict=True):
        assert max(range(4), key=lambda rank: rows[rank]["ts"]) == 2


def test_one_step_waits_for_the_loader(traces):
    """In step 12 the loader takes 25 ms on every rank, and the GPU has nothing to do."""
    for trace in traces:
        loads = [row for row in trace["traceEvents"] if row["name"].startswith("enumerate(DataLoader)")]
        assert [row["dur"] > 20_000 * US for row in loads] == [False, False, True, False]
        assert not [row for row in device_rows(trace) if loads[2]["ts"] < row["ts"] < end(loads[2])]


def test_steps_end_with_a_synchronization(traces):
    """No device work crosses the end of a step."""
    for trace in traces:
        steps = [row for row in trace["traceEvents"] if row.get("cat") == "user_annotation" and "Step#" in row["name"]]
        assert [row["name"] for row in steps] == [f"ProfilerStep#{n}" for n in range(10, 14)]
        for step in steps:
            assert all(end(row) < end(step) for row in device_rows(trace) if row["ts"] < end(step))


def test_the_late_rank_has_its_cause():
    """Lateness that others hide does not count: kernels that take longer by more than is waited for explain it."""
    found = {
        each.code: each for each in analyze(EXAMPLES / "traces", analyses=[], rules=discover())["findings"].findings
    }
    assert found["N4"].ranks == found["N5"].ranks == (2,)
    assert "its kernels take 1.09" in found["N5"].title
    assert re.search(r"holds up the others for ([\d.]+)", found["N5"].evidence)[1] in found["N4"].title
    assert found["H14"].step_ns == found["N4"].step_ns == pytest.approx(81.6e6, abs=1e5)  # The mean, of 75 and 101.
    assert found["H14"].step_ns - found["H14"].without_ns < found["H14"].saving_ns + 1
