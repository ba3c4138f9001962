"""Communication on the host, and outdated ways of running in parallel."""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from rules.parallel import GEMM, US, findings, one, plain

from htareport.report.findings import Severity


def waiting(name, *, backend="nccl", devices=1):
    """A step of 1000 µs: the host is in something from 110 to 310, and launches the next kernel at 320."""
    trace = TraceBuilder(0, 2, devices=devices).step(1, 0, 1000).kernel(GEMM, 0, 100, launch=(0, 5))
    trace.cpu_op(name, 110, 200).kernel(GEMM, 330, 100, launch=(320, 5), device=devices - 1)
    info = trace.metadata["distributedInfo"]
    info["backend"] = backend
    for group in info["pg_config"]:
        group["backend_config"] = f"cpu:{backend},cuda:{backend}"
    return trace


@pytest.mark.parametrize("name", ["c10d::barrier", "gloo:all_gather", "all_gather_object"])
def test_the_host_communicates(tmp_path, name):
    found = one(tmp_path, [waiting(name)], "N19")
    assert found.saving_ns == 200 * US
    assert f"`{name}` 1×" in found.evidence
    assert plain(found.title) == "The GPU is idle for 200 µs per step while the host communicates"


def test_the_host_does_something_else(tmp_path):
    assert one(tmp_path, [waiting("aten::all_reduce")], "N19") is None


def test_data_parallel(tmp_path):
    """One process, two devices."""
    trace = waiting("Broadcast", devices=2).kernel(GEMM, 100, 50, device=0, launch=(10, 5))
    found = one(tmp_path, [trace], "N21")
    assert found.title == "DataParallel drives 2 GPUs from one process"
    assert "`Broadcast`" in found.evidence
    assert (found.severity, found.saving_ns) == (Severity.MEDIUM, None)


def test_gloo(tmp_path):
    found = one(tmp_path, [waiting("gloo:all_reduce", backend="gloo")], "N21")
    assert found.title == "GPUs communicate through gloo, on the host"


def test_up_to_date(tmp_path):
    """NCCL with gloo beside it is common; so are scatter operators on one device."""
    assert not findings(tmp_path / "a", [waiting("gloo:all_reduce")], "N21").findings
    assert not findings(tmp_path / "b", [waiting("Scatter")], "N21").findings
