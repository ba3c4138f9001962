"""What collectives cost, on paper values."""

from __future__ import annotations

import pandas as pd
import pytest
from builder import TraceBuilder

from htareport.analyses.communication.collectives import Collectives
from htareport.rank.collective_calls import call_frames
from htareport.trace import RankTrace

US = 1000
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
SIZE = 250_000  # Elements of 4 bytes: 1 MB.


def ring(rank: int, start: int, dur: int, world_size: int = 2) -> TraceBuilder:
    """One all-reduce of 1 MB."""
    return TraceBuilder(rank, world_size).collective(NCCL, "allreduce", start, dur, nelems=SIZE)


def row_of(section):
    [row] = section.table().to_dict("records")
    return row


def test_wait_and_transfer(run):
    """Rank 0 runs [0, 100], rank 1 [60, 100]: it waits 60 of 140 µs, and 1 MB moves within 40 µs."""
    row = row_of(run(Collectives(), ring(0, 0, 100), ring(1, 60, 40)))
    assert (row["collective"], row["process_group"]) == ("all_reduce", "default_pg")
    assert (row["calls"], row["matched"], row["ranks"], row["group_size"]) == (2, 1, 2, 2)
    assert (row["size"], row["time"], row["transfer"]) == (4 * SIZE, 70 * US, 40 * US)
    assert row["wait_share"] == pytest.approx(60 / 140)
    assert row["algorithm"] == pytest.approx(1e6 / 40e-6)
    assert row["bus"] == pytest.approx(1e6 / 40e-6 * 2 * 1 / 2)


@pytest.mark.parametrize(
    ("collective", "factor"),
    [("allreduce", 1.5), ("_allgather_base", 0.75), ("_reduce_scatter_base", 0.75), ("all_to_allv", 0.75)],
)
def test_bus_bandwidth_of_four_ranks(run, collective, factor):
    """2(n-1)/n and (n-1)/n."""
    ranks = [TraceBuilder(r, 4).collective(NCCL, collective, 0, 40, nelems=SIZE) for r in range(4)]
    row = row_of(run(Collectives(), *ranks))
    assert row["bus"] / row["algorithm"] == pytest.approx(factor)


def test_a_rank_may_leave_a_broadcast_early(run):
    """So there is neither wait nor transfer, and no clock is set by it."""
    ranks = [TraceBuilder(r, 2).collective(NCCL, "broadcast", 10 * r, 40, nelems=SIZE) for r in range(2)]
    section = run(Collectives(), *ranks)
    row = row_of(section)
    assert (row["matched"], row["ranks"]) == (1, 2)
    assert pd.isna(row["wait_share"])
    assert pd.isna(row["transfer"])
    assert not section.notes


def test_one_rank_alone(run):
    """Keeps its times; what takes others to tell is left out, and said."""
    section = run(Collectives(), ring(3, 0, 100, world_size=8))
    row = row_of(section)
    assert (row["calls"], row["matched"], row["ranks"], row["time"]) == (1, 0, 1, 100 * US)
    assert pd.isna(row["transfer"])
    assert "1 of which one rank only is recorded" in section.notes[0]
    assert not section.charts


def test_groups_of_one_description_share_a_row(run):
    """Ranks 0, 1 and 2, 3 in groups of their own."""
    ranks = [
        TraceBuilder(r, 4).collective(NCCL, "allreduce", 0, 40, group=[r // 2 * 2, r // 2 * 2 + 1], group_name="7")
        for r in range(4)
    ]
    row = row_of(run(Collectives(), *ranks))
    assert (row["process_group"], row["calls"], row["matched"], row["ranks"]) == ("group_7", 4, 2, 2)


def test_point_to_point_is_left_out(run):
    """And counted."""
    ranks = [ring(r, 0, 40).collective("ncclDevKernel_SendRecv", "send", 50, 5) for r in range(2)]
    section = run(Collectives(), *ranks)
    assert row_of(section)["collective"] == "all_reduce"
    assert "2 sent from one rank to another" in section.notes[0]


def test_without_arguments_ends_tell(run):
    """The second kernels end 500 µs apart: they don't belong together."""
    ranks = [TraceBuilder(r, 2).kernel(NCCL, 0, 100).kernel(NCCL, 1000, 100 + 500 * r).kernel(NCCL, 3000, 50)
             for r in range(2)]  # fmt: skip
    section = run(Collectives(), *ranks)
    assert row_of(section)["matched"] == 2
    assert "2 whose ends lie apart" in section.notes[0]


def test_without_arguments_streams_are_matched_by_place(run):
    """Stream 20 of rank 0 is stream 24 of rank 1; the kernels of the other stream come first on one rank only."""
    one = TraceBuilder(0, 2).kernel(NCCL, 0, 100, stream=20).kernel(NCCL, 300, 100, stream=50)
    two = TraceBuilder(1, 2).kernel(NCCL, 20, 80, stream=24).kernel(NCCL, 310, 90, stream=60)
    row = row_of(run(Collectives(), one, two))
    assert row["matched"] == 2


def test_a_rank_that_lacks_one_is_not_compared(run):
    """In that step; in the next it is."""
    ranks = []
    for rank in range(3):
        trace = TraceBuilder(rank, 3).step(0, 0, 1000).step(1, 1000, 1000)
        for at in (100, 300, 1100) if rank < 2 else (100, 1100):
            trace.collective(NCCL, "allreduce", at, 50, launch=(at - 50, 5))
        ranks.append(trace)
    section = run(Collectives(), *ranks)
    assert row_of(section)["matched"] == 3
    assert "1 of which the ranks recorded different numbers" in section.notes[0]


def test_sequence_numbers_beat_the_order(run):
    """Rank 1 began to record one collective later."""
    ranks = []
    for rank in range(2):
        trace = TraceBuilder(rank, 2)
        for seq in range(rank, 3):
            trace.collective(NCCL, "allreduce", 100 * seq, 50, Seq=seq)
        ranks.append(trace)
    section = run(Collectives(), *ranks)
    assert row_of(section)["matched"] == 2


def test_captures_apart(tmp_path):
    """The k-th of the first file is that of the first file of the other rank."""
    from htareport.run.runner import analyze

    files = {
        rank: tuple(
            TraceBuilder(rank, 2)
            .collective(NCCL, "allreduce", 1000 * cycle + 10 * rank, 50 - 10 * rank)
            .write(tmp_path / f"rank{rank}_{cycle}.json")
            for cycle in range(2)
        )
        for rank in range(2)
    }
    row = row_of(analyze(files, analyses=[Collectives()])["collectives"])
    assert (row["matched"], row["transfer"]) == (2, 40 * US)


def test_very_many_are_thinned_alike_on_every_rank(tmp_path):
    """By steps and places, whatever the rest of the rank's collectives."""
    kept = []
    for rank in range(2):
        trace = TraceBuilder(rank, 2)
        for number in range(5_000 + 2_000 * rank):
            trace.collective(NCCL, "allreduce", 10 * number, 5, group=[0, 1] if number < 5_000 else [1])
        frames = call_frames(RankTrace.load(rank, trace.write(tmp_path / f"{rank}.json")))
        kept.append(set(frames["calls"].loc[frames["calls"]["kind"] == 0, "ordinal"]))
        assert len(frames["calls"]) <= 4_000
        assert frames["kinds"]["calls"].sum() == 5_000 + 2_000 * rank
        assert frames["set_aside"].set_index("reason")["count"].sum() > 0
    assert kept[0] == kept[1]


def test_chart(run):
    """Waiting and the rest of the kernels' time."""
    [chart] = run(Collectives(), ring(0, 0, 100), ring(1, 60, 40)).charts
    assert chart.frame.set_index("part")["value"].to_dict() == {
        "moving bytes": 80 * US,
        "waiting for the last rank": 60 * US,
    }
