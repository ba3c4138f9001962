"""TraceBuilder writes what it is told, exactly."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal

import pytest
from builder import TraceBuilder


def sample() -> TraceBuilder:
    return TraceBuilder(rank=1, world_size=2).step(3, 0, 100).kernel("gemm", "20.0005", 30.1, launch=(5, 4))


@pytest.mark.parametrize("layout", ["kineto", "compact", "indent"])
def test_layouts_hold_the_same_trace(layout):
    """Layouts differ in white space only."""
    assert json.loads(sample().json(layout), parse_float=Decimal) == json.loads(
        sample().json("compact"), parse_float=Decimal
    )


def test_array_holds_the_events():
    """The array is what traceEvents holds elsewhere."""
    assert json.loads(sample().json("array")) == json.loads(sample().json())["traceEvents"]


def test_times_are_exact_text():
    """Three decimals, more where more were given; no digit is lost."""
    text = sample().json()
    assert '"ts": 20.0005, "dur": 30.100' in text
    assert '"ts": 5.000, "dur": 4.000' in text


def test_launch_and_kernel_share_their_correlation():
    """A kernel with a launch is linked to it."""
    rows = json.loads(sample().json())["traceEvents"]
    launch, kernel = rows[1:]
    assert launch["cat"] == "cuda_runtime"
    assert launch["args"]["correlation"] == kernel["args"]["correlation"] > 0


def test_gzip_gives_the_same_bytes_again(tmp_path):
    """Files carry no time stamp of their making."""
    first, second = (sample().write(tmp_path / name / "rank1.json.gz", gzip=True) for name in "ab")
    assert first.read_bytes() == second.read_bytes()
    assert gzip.decompress(first.read_bytes()).decode() == sample().json()
