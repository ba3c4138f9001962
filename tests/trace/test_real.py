"""Real traces against Python's own JSON parser and decimals, in every value of time, name and thread."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path

import pytest

from htareport.trace import RankTrace, Trace

TRACES = Path(__file__).parents[3] / "shared" / "traces"
LARGEST = 1_300_000  # Bytes on disk.


def files():
    found = sorted(path for path in TRACES.rglob("*.json*") if path.stat().st_size < LARGEST) if TRACES.exists() else []
    largest = {path.parent: path for path in sorted(found, key=lambda path: path.stat().st_size)}  # One per folder.
    quick = [path for path in largest.values() if path.suffix != ".gz" or path.stat().st_size < LARGEST // 3]
    return quick or [
        pytest.param(TRACES, marks=pytest.mark.skip(reason="the real traces beside the checkout are absent"))
    ]


def check(path, rows_of, rows_by_json):
    """Compare one file; a trace without events has nothing to compare."""
    data = path.read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    trace = RankTrace.load(0, path)
    found, expected = rows_of(trace), rows_by_json(text)
    counts = {category: len(rows) for category, rows in expected.items()}
    npu = found.pop("Ascend Hardware", [])
    for category in [category for category in found if category.endswith(" (no work)")]:
        npu += found.pop(category)
    assert {category: len(rows) for category, rows in found.items()} | (
        {"": counts.get("", 0)} if npu else {}
    ) == counts
    assert all(rows == expected[category] for category, rows in found.items() if category)
    assert sorted(found.get("", []) + npu, key=str) == sorted(expected.get("", []), key=str)
    check_links(trace, text)
    return trace


def check_links(trace, text):
    """The sum of all correlation ids and bytes of the device's rows."""
    raw = json.loads(text, parse_float=Decimal)
    events = raw["traceEvents"] if isinstance(raw, dict) else raw
    for category in ("kernel", "gpu_memcpy", "cuda_runtime"):
        if category in trace.events:
            rows = [e.get("args") or {} for e in events if e.get("cat") == category and e.get("ph") == "X"]
            assert trace.events[category]["correlation"].sum() == sum(int(row.get("correlation", -1)) for row in rows)


@pytest.mark.parametrize("path", files(), ids=lambda path: path.parent.name)
def test_like_json(path, rows_of, rows_by_json):
    """Every row in file order, none more and none less, and nothing to warn of while reading."""
    if path.name == "execution_details.json":
        pytest.skip("no trace")
    trace = check(path, rows_of, rows_by_json)
    assert not trace.loaded.warnings


def test_folders():
    """Every folder opens with the ranks that it has."""
    if not TRACES.exists():
        pytest.skip("the real traces beside the checkout are absent")
    ranks = {folder.name: list(Trace.open(folder).files) for folder in sorted(TRACES.iterdir()) if folder.is_dir()}
    assert ranks["dlrm_8rank_v100"] == list(range(8))
    assert ranks["cpu_gloo_rank34"] == [34]
    assert ranks["profiler_cycles_a100"] == [0]
    assert all(ranks.values())
