"""Who is late, and whether that is more than chance."""

from __future__ import annotations

import pandas as pd
import pytest
from builder import TraceBuilder

from htareport.analyses.stragglers import Stragglers

US = 1000
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def ranks_of(starts, clocks=(0, 0, 0), *, arguments=True):
    """A trace per rank: all leave the k-th collective at 1000 k + 500; `starts` has a list per rank."""
    found = []
    for rank, mine in enumerate(starts):
        trace = TraceBuilder(rank, len(starts)).step(1, 0, 1000 * len(mine))
        for number, start in enumerate(mine):
            begin = 1000 * number + start + clocks[rank]
            span = (begin, 500 - start)
            if arguments:
                trace.collective(NCCL, "allreduce", *span, launch=(1000 * number + 1, 1))
            else:
                trace.kernel(NCCL, *span, stream=20, launch=(1000 * number + 1, 1))
        found.append(trace)
    return found


def test_lateness_and_waits(run):
    """Starts 0, 40, 100: rank 2 holds up by 60, rank 1 waits 60, rank 0 100."""
    section = run(Stragglers(), *ranks_of([[10], [50], [110]]))
    table = section.table().set_index("rank")
    assert table["lateness"].tolist() == [0, 40 * US, 100 * US]
    assert table["wait"].tolist() == [100 * US, 60 * US, 0]
    assert table["held_up"].tolist() == [0, 0, 60 * US]
    assert table["caused"].tolist() == [0, 0, 120 * US]
    assert table["last"].tolist() == [0, 0, 1]
    assert table["held_share"].tolist() == pytest.approx([0, 0, 0.06])
    [row] = section.table("collectives").to_dict("records")
    assert (row["last_rank"], row["margin"], row["transfer"]) == (2, 60 * US, 390 * US)
    assert (row["start"], row["wait"], row["step"]) == (10 * US, pytest.approx(160 / 3 * US), 1)


def test_one_late_collective_is_no_proof(run):
    """It may be chance: nobody is named, and the rank is told."""
    section = run(Stragglers(), *ranks_of([[10], [10], [310]]))
    assert set(section.table()["straggler"]) == {""}
    assert section.fact("straggler") is None
    assert any("rank 2 is late by 300" in note for note in section.notes)


@pytest.mark.parametrize("arguments", [True, False])
def test_always_the_same(run, arguments):
    """Five of five collectives at one in three: 1 in 243, and 20 % of the step."""
    section = run(Stragglers(), *ranks_of([[10] * 5, [20] * 5, [220] * 5], arguments=arguments))
    table = section.table().set_index("rank")
    assert table["straggler"].tolist() == ["", "", "yes"]
    assert (table.loc[2, "late"], table.loc[2, "held_up"]) == (5, 1000 * US)
    assert section.fact("straggler").value == 2
    assert section.fact("straggler").detail == "late to 5 of 5 collectives"
    assert any(note.startswith("Straggler: rank 2. 5 of 5 collectives") for note in section.notes)


def test_by_turns(run):
    """Each rank is late twice: nobody is a straggler."""
    late = [[220 if number % 3 == rank else 10 for number in range(6)] for rank in range(3)]
    section = run(Stragglers(), *ranks_of(late))
    assert set(section.table()["straggler"]) == {""}
    assert any("No straggler by more than chance" in note for note in section.notes)


def test_always_but_by_little(run):
    """40 µs are below what counts as late."""
    section = run(Stragglers(), *ranks_of([[10] * 6, [10] * 6, [50] * 6]))
    assert section.table()["late"].tolist() == [0, 0, 0]
    assert section.table()["last"].tolist()[2] == 6
    assert any("no rank alone holds up" in note for note in section.notes)


def test_two_that_are_late_together_hold_up_nobody_alone(run):
    """The last is late to the second-latest only."""
    section = run(Stragglers(), *ranks_of([[10] * 6, [300] * 6, [310] * 6]))
    assert set(section.table()["straggler"]) == {""}
    assert section.table()["held_up"].tolist() == [0, 0, 60 * US]


def test_clocks_are_taken_off(run):
    """A rank whose clock is 5 ms ahead is not late."""
    section = run(Stragglers(), *ranks_of([[10] * 5, [20] * 5, [30] * 5], clocks=(0, 5_000, -300)))
    clocks = section.table("clocks").set_index("rank")
    assert clocks["offset"].tolist() == [0, 5000 * US, -300 * US]
    assert clocks["residual"].tolist() == [0, 0, 0]
    assert section.table()["lateness"].tolist() == [0, 10 * US, 20 * US]


def test_per_step(run):
    """By the step in which the kernel is launched."""
    ranks = []
    for rank in range(2):
        trace = TraceBuilder(rank, 2).step(4, 0, 1000).step(5, 1000, 1000)
        for at in (100, 1100):
            trace.collective(NCCL, "allreduce", at + 50 * rank, 300 - 50 * rank, launch=(at - 50, 5))
        ranks.append(trace)
    table = run(Stragglers(), *ranks).table("per_step").set_index(["rank", "step"])
    assert table.loc[(1, 4), ["collectives", "last", "held_up", "wait"]].tolist() == [1, 1, 50 * US, 0]
    assert table.loc[(0, 5), ["collectives", "last", "held_up", "wait"]].tolist() == [1, 0, 0, 50 * US]


def test_one_rank(run):
    """Has its row, and a sentence."""
    section = run(Stragglers(), *ranks_of([[10, 10]])[:1])
    assert section.table()[["rank", "collectives", "held_up"]].to_numpy().tolist() == [[0, 0, 0]]
    assert pd.isna(section.table()["lateness"].iloc[0])
    assert "Nobody's lateness can be told" in section.notes[0]
    assert not section.charts


def test_charts(run):
    """Bars by rank, and a heatmap by collective."""
    bars, heat = run(Stragglers(), *ranks_of([[10, 10], [20, 110]])).charts
    assert bars.frame.groupby("part")["value"].sum().to_dict() == {
        "holds up the others": 110 * US,
        "waits for the last": 110 * US,
    }
    cells = heat.frame.set_index(["rank", "collective"])["value"].to_dict()
    assert cells == {(0, 0): 0, (1, 0): 10 * US, (0, 1): 0, (1, 1): 100 * US}
