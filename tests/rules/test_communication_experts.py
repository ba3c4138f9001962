"""All-to-alls in which ranks send or receive unequal amounts."""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from rules.parallel import GEMM, US, one, plain

ALL_TO_ALL = "ncclDevKernel_SendRecv(ncclDevComm*, unsigned long, ncclWork*)"


def exchanging(received, *, sent=(100, 100, 100, 100), dur=500, calls=4, missing=()):
    """Four ranks that exchange elements four times in a step of 10 ms, with nothing beside it."""
    traces = []
    for rank in range(4):
        trace = TraceBuilder(rank, 4).step(1, 0, 10_000)
        for number in range(calls):
            trace.kernel(GEMM, 2000 * number, 500, launch=(2 * number, 1))
            trace.collective(
                ALL_TO_ALL, "all_to_allv", 2000 * number + 500, dur, nelems=sent[rank], out_nelems=received[rank],
                launch=(2 * number + 1, 1),
            )  # fmt: skip
        traces.append(trace.kernel(GEMM, 9000, 100, launch=(50, 1)))
    return [trace for rank, trace in enumerate(traces) if rank not in missing]


def test_a_full_rank(tmp_path):
    """Rank 2 receives 200 of 400 elements, where 100 would be its share: half of 4 × 500 µs."""
    found = one(tmp_path, exchanging((50, 50, 200, 100)), "N15", "N1")
    assert found.title == "All-to-alls of default_pg are uneven: the fullest rank moves 2 times the mean"
    assert found.saving_ns == 1000 * US
    assert plain(found.evidence) == (
        "4 calls among 4 ranks; of all elements arrive: rank 2 50.0 %, rank 3 25.0 %, rank 0 12.5 %, rank 1 12.5 % "
        "(even: 25.0 %)."
    )


def test_a_rank_that_sends_more(tmp_path):
    """On the way back the full rank sends twice the mean."""
    found = one(tmp_path, exchanging((100, 100, 100, 100), sent=(50, 50, 200, 100)), "N15", "N1")
    assert found.saving_ns == 1000 * US


@pytest.mark.parametrize(
    "traces",
    [
        exchanging((90, 90, 125, 95)),
        exchanging((50, 50, 200, 100), missing=(3,)),
        exchanging((50, 50, 200, 100), dur=49),
        exchanging((-1, -1, -1, -1)),
    ],
    ids=["25 %", "a rank missing", "2 %", "sizes unknown"],
)
def test_no_full_rank(tmp_path, traces):
    assert one(tmp_path, traces, "N15", "N1") is None
