"""All-to-alls in which ranks send or receive unequal amounts."""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from rules.parallel import ALL_REDUCE, GEMM, US, findings, one, plain

from htareport.rules.communication import experts

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


@pytest.mark.replayed
def test_a_full_rank(tmp_path):
    """Rank 2 receives 200 of 400 elements, where 100 would be its share: half of 4 × 500 µs."""
    found = one(tmp_path, exchanging((50, 50, 200, 100)), "N15", "N1")
    assert found.title == "All-to-alls of default_pg are uneven: the fullest rank moves 2 times the mean"
    assert found.saving_ns == found.step_ns - found.without_ns == 1000 * US
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


@pytest.mark.replayed
def test_ranks_that_have_room_for_different_numbers_of_calls(tmp_path, monkeypatch):
    """The two calls that all ranks send stand for the four that there are."""
    room = iter((4, 2, 3, 4))
    monkeypatch.setattr(experts, "at_most", lambda rows, there: min(rows, there, next(room)))
    found = one(tmp_path, exchanging((50, 50, 200, 100)), "N15", "N1")
    assert found.saving_ns == found.step_ns - found.without_ns == 1000 * US
    assert found.evidence.startswith("4 calls among 4 ranks")


@pytest.mark.replayed
def test_ranks_without_exchanges_count_for_the_step(tmp_path):
    """Ranks 4 and 5 exchange nothing, but what becomes of the step is asked of all ranks together."""
    traces = [TraceBuilder(rank, 6).step(1, 0, 10_000) for rank in range(6)]
    for trace, received in zip(traces, (50, 50, 200, 100), strict=False):
        for number in range(4):
            trace.kernel(GEMM, 1000 * number, 500, launch=(2 * number, 1))
            trace.collective(
                ALL_TO_ALL, "all_to_allv", 1000 * number + 500, 500, group=range(4), group_name="1", nelems=100,
                out_nelems=received, launch=(2 * number + 1, 1),
            )  # fmt: skip
    for rank, trace in enumerate(traces):
        trace.kernel(GEMM, 4000, 1000 if rank < 4 else 3000, launch=(60, 1))
        arrives = 5000 if rank < 4 else 7000
        trace.collective(ALL_REDUCE, "allreduce", arrives, 7500 - arrives, launch=(70, 1))
        trace.kernel(GEMM, 7500, 2500, launch=(80, 1))
    found = {each.code: each for each in findings(tmp_path, traces, "N15", "N1").findings}
    assert "N15" not in found  # Ranks 4 and 5 come last as before.
    assert found["N1"].without_ns is not None
