"""Process groups against their peers, and ranks that run different collectives."""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from rules.parallel import ALL_REDUCE, GEMM, US, findings, one, plain

from htareport.report.findings import Severity


def grouped(lengths, *, nelems=10_000_000, calls=4, missing=()):
    """Two groups of two ranks, (0, 1) and (2, 3): in each step `calls` all-reduces of a group's length, exposed."""
    traces = []
    for rank in range(4):
        group = [0, 1] if rank < 2 else [2, 3]
        trace = TraceBuilder(rank, 4).step(1, 0, 10_000)
        for number in range(calls):
            start = 2000 * number
            trace.kernel(GEMM, start, 500, launch=(2 * number, 1))
            trace.collective(
                ALL_REDUCE, "allreduce", start + 500, lengths[rank // 2], group=group, nelems=nelems, group_name="3",
                launch=(2 * number + 1, 1),
            )  # fmt: skip
        trace.kernel(GEMM, 9000, 100, launch=(50, 1))
        traces.append(trace)
    return [trace for rank, trace in enumerate(traces) if rank not in missing]


def test_a_slow_group(tmp_path):
    """1000 µs for 600: 60 %; 4 × 400 µs longer."""
    found = one(tmp_path, grouped((600, 1000)), "N7", "N1")
    assert found.title == "all_reduce of ranks 2, 3 runs at 60% of the bandwidth of its peers"
    assert found.saving_ns == 1600 * US
    assert found.ranks == (2, 3)
    assert "move 38.1 MiB in 1.00 ms there, in 600 µs in the best group" in plain(found.evidence)


@pytest.mark.parametrize(
    ("lengths", "options"),
    [
        ((800, 1000), {}),  # 80 %.
        ((600, 1000), {"nelems": 1_000_000}),  # 3.8 MiB.
        ((600, 1000), {"calls": 2}),
        ((600, 1000), {"missing": (3,)}),  # The missing one may be late.
    ],
)
def test_no_slow_group(tmp_path, lengths, options):
    assert one(tmp_path, grouped(lengths, **options), "N7", "N1") is None


def test_waiting_is_not_bandwidth(tmp_path):
    """Rank 2 comes 400 µs late: the rest takes as long as on the others."""
    traces = grouped((600, 1000))
    for event in traces[2].events:
        if event["name"] == ALL_REDUCE:
            event["ts"], event["dur"] = event["ts"] + 400, event["dur"] - 400
    assert one(tmp_path, traces, "N7", "N1") is None


def numbered(*ranks):
    """A collective (name, elements) per sequence number on each rank."""
    traces = []
    for rank, calls in enumerate(ranks):
        trace = TraceBuilder(rank, len(ranks)).step(1, 0, 1000)
        for number, (name, nelems) in enumerate(calls):
            trace.collective(ALL_REDUCE, name, 100 * number, 50, nelems=nelems, Seq=number // 2)
        traces.append(trace)
    return traces


SAME = [("allreduce", 1000), ("allreduce", 2000), ("allreduce", 1000), ("allreduce", 3000)]


def test_different_collectives(tmp_path):
    other = [*SAME[:3], ("allreduce", 4000)]
    section = findings(tmp_path, numbered(SAME, other, SAME), "N22")
    [found] = section.findings
    assert found.title == "Ranks run different collectives under the same number, 1 time"
    assert found.severity == Severity.HIGH
    assert "process group default_pg, number 1" in found.evidence
    assert "rank 0 all_reduce of 3.91 KiB" in plain(found.evidence)
    assert "rank 1 all_reduce of 15.6 KiB" in plain(found.evidence)


def test_same_collectives(tmp_path):
    """Several of one number, as coalesced ones have, are no difference; nor is what one rank did not record."""
    assert not findings(tmp_path / "a", numbered(SAME, SAME, SAME[:2]), "N22").findings
