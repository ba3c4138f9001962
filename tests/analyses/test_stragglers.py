"""Who is late, and whether that is more than chance."""

from __future__ import annotations

import pandas as pd
import pytest
from builder import TraceBuilder

from htareport.analyses.ranks.stragglers import Stragglers

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
    assert any(
        note.startswith("Rank 2 is a straggler: 5 of 5 collectives are held up by one rank alone; rank 2")
        for note in section.notes
    )


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


def in_steps(rank, steps, *, late, length=4_000, numbered=False, before=False):
    """Steps of 10 ms from 10 ms × number on, each with an all-reduce from 1 ms on that the rank enters `late`.

    With sequence numbers those of the steps, if `numbered`; one more collective at 0 ms, outside of steps, if `before`.
    """
    trace = TraceBuilder(rank, 2)
    for number in [0] * before + list(steps):
        at = 10_000 * number + 1_000
        if number:
            trace.step(number, at - 1_000, 10_000)
        seq = {"Seq": number} if numbered else {}
        trace.collective(NCCL, "allreduce", at + late, length - late, launch=(at - 500, 5), **seq)
    return trace


@pytest.mark.parametrize("numbered", [False, True])
def test_steps_of_numbered_collectives(run, numbered):
    """Late by 2 ms in each of ten steps of 10 ms, 20 % of them; each in its step, with and without sequence numbers."""
    section = run(
        Stragglers(), *(in_steps(rank, range(5, 15), late=2_000 * rank, numbered=numbered) for rank in (0, 1))
    )
    table = section.table().set_index("rank")
    assert table["held_share"].tolist() == pytest.approx([0, 0.2])
    assert table["straggler"].tolist() == ["", "yes"]
    per_step = section.table("per_step").set_index(["rank", "step"])
    assert per_step.loc[1, "held_up"].to_dict() == dict.fromkeys(range(5, 15), 2_000 * US)
    assert section.table("collectives")["step"].tolist() == list(range(5, 15))


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize(("late", "named"), [(150, ""), (250, "yes")])
def test_what_costs_less_than_two_percent_is_no_straggler(run, late, named, numbered):
    """With sequence numbers too: 200 µs are 2 % of a step of 10 ms."""
    ranks = (in_steps(rank, range(1, 11), late=late * rank, length=1_000, numbered=numbered) for rank in (0, 1))
    assert run(Stragglers(), *ranks).table()["straggler"].tolist() == ["", named]


def test_sequence_numbers_match_across_steps(run):
    """The same collective in step 2 of one rank and step 3 of the other; the step told is that of the rank it is of."""
    ranks = []
    for rank, steps in ((0, ((2, 0), (3, 10_000))), (1, ((2, -5_000), (3, 5_000)))):
        trace = TraceBuilder(rank, 2)
        for number, at in steps:
            trace.step(number, at, 10_000)
        late = 1_000 * rank
        trace.collective(NCCL, "allreduce", 6_000 + late, 2_000 - late, launch=(5_500, 5), Seq=7)
        ranks.append(trace)
    section = run(Stragglers(), *ranks)
    assert section.table("per_step")[["rank", "step"]].to_numpy().tolist() == [[0, 2], [1, 3]]
    assert section.table("collectives")[["last_rank", "step"]].to_numpy().tolist() == [[1, 3]]


def test_no_time_counts_twice(run):
    """2 ms late in three steps of 10 ms: 6 of 30; a fourth collective before the steps is no part of the share."""
    section = run(Stragglers(), *(in_steps(rank, (1, 2, 3), late=2_000 * rank, before=True) for rank in (0, 1)))
    table = section.table().set_index("rank")
    assert table.loc[1, "held_up"] == 8_000 * US
    assert table.loc[1, "held_share"] == pytest.approx(0.2)


def test_without_steps_the_share_is_of_the_time_recorded(tmp_path):
    """5 collectives of 4 ms in each of two files, late by 2 ms: 20 of 2 × 42 ms; the pause between is no time."""
    from htareport.run.runner import analyze

    files = {}
    for rank in (0, 1):
        paths = []
        for part in (0, 1):
            trace, pause = TraceBuilder(rank, 2), 3_000_000_000 * part
            for number in range(5):
                at = pause + 10_000 * number
                trace.collective(NCCL, "allreduce", at + 2_000 * rank, 4_000 - 2_000 * rank)
            paths.append(trace.write(tmp_path / f"rank{rank}_{part}.json"))
        files[rank] = tuple(paths)
    table = analyze(files, analyses=[Stragglers()])["stragglers"].table().set_index("rank")
    assert table.loc[1, "held_up"] == 20_000 * US
    assert table.loc[1, "held_share"] == pytest.approx(20 / 84)
