"""Many small collectives: what could go in one, bursts, and SyncBatchNorm."""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from rules.parallel import ALL_REDUCE, GEMM, US, findings, one, plain


def burst(calls=10, length=20, gap=0, nelems=1000, *, between=False, group_name="0", devices=8, operator=""):
    """A step of 1000 µs: gemm 0-100, `calls` all-reduces from 100 on, gemm at the end; all launched in 0-60."""
    trace = TraceBuilder(0, 2, devices=devices).step(1, 0, 1000).kernel(GEMM, 0, 100, launch=(0, 1))
    if operator:
        trace.cpu_op(operator, 2, 58)
    start = 100
    for number in range(calls):
        trace.collective(ALL_REDUCE, "allreduce", start, length, nelems=nelems, group_name=group_name,
                         launch=(2 + 2 * number, 1),
                         **({"Process Group Description": group_name} if group_name != "0" else {}))  # fmt: skip
        start += length + gap
        if between:
            trace.kernel(GEMM, start, 5, launch=(3 + 2 * number, 1))
            start += 5
    return trace.kernel(GEMM, start, 100, launch=(60, 1))


def test_small_messages(tmp_path):
    """Nine of ten need not be: the first shows no sign that it could go with another, one of the others stays."""
    found = one(tmp_path, [burst()], "N9")
    assert found.saving_ns == 8 * 20 * US
    assert plain(found.title) == "9 small collectives per step could go in one: 160 µs"
    assert "They move 3.91 KiB in 20.0 µs (medians), mostly all_reduce · default_pg" in plain(found.evidence)


def test_only_what_moves_bytes(tmp_path):
    """One takes 100 µs, for it waits; it could save 20 as the others."""
    trace = burst()
    last = [event for event in trace.events if event["name"] == ALL_REDUCE][-1]
    last["dur"] += 80
    trace.events[-1]["ts"] += 80
    assert one(tmp_path, [trace], "N9").saving_ns == 8 * 20 * US


@pytest.mark.parametrize(
    "options",
    [
        {"calls": 8},  # Seven that could go together.
        {"nelems": 100_000},  # 391 KiB.
        {"between": True},  # Compute may need each.
        {"group_name": "mesh_tp"},
        {"operator": "SyncBatchNorm"},
    ],
)
def test_no_small_messages(tmp_path, options):
    assert one(tmp_path, [burst(**options)], "N9") is None


def test_between_hosts_messages_are_small_up_to_a_mebibyte(tmp_path):
    """A group of two ranks, on a host with one device."""
    assert one(tmp_path, [burst(nelems=100_000, devices=1)], "N9").saving_ns == 160 * US


def test_gaps_in_a_burst(tmp_path):
    """Nine gaps of 5 µs; the collectives themselves are N9's. In the first step none."""
    found = one(tmp_path, [burst(gap=5)], "N10")
    assert found.saving_ns == 45 * US
    assert "10 per step come in bursts, up to 10 in a row: all_reduce · default_pg." in found.evidence


@pytest.mark.parametrize("options", [{"gap": 0}, {"gap": 5, "calls": 6}, {"gap": 5, "between": True}])
def test_no_burst(tmp_path, options):
    assert one(tmp_path, [burst(**options)], "N10") is None


def test_sync_batch_norm(tmp_path):
    """20 of 15 µs each, in the operators of the layers."""
    found = one(tmp_path, [burst(calls=25, length=15, nelems=64, operator="SyncBatchNorm")], "N18")
    assert found.saving_ns == 25 * 15 * US
    assert plain(found.title) == "SyncBatchNorm communicates 25 times per step: 375 µs"
    assert not findings(tmp_path / "few", [burst(calls=19, operator="SyncBatchNorm")], "N18").findings
