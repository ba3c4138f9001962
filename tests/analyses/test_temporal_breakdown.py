"""Where the time goes: exact partitions of the span and of each step."""

from __future__ import annotations

import pandas as pd
import pytest
from builder import BASE_NS, TraceBuilder

from htareport.analyses.time.temporal_breakdown import PARTS, TemporalBreakdown
from htareport.report import Status, rank_charts

US = 1000
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def three_steps(rank: int = 0) -> TraceBuilder:
    """Three steps with work on four streams.

    Steps: #4 [0, 100), #5 [100, 200), #6 [200, 280).
    Compute s7 [10, 60], s9 [40, 50], s7 [150, 210]; communication s20 [50, 90], [205, 230]; memory s30 [80, 110].
    """
    trace = TraceBuilder(rank).step(4, 0, 100).step(5, 100, 100).step(6, 200, 80)
    trace.kernel("gemm", 10, 50, launch=(5, 2)).kernel("side", 40, 10, stream=9, launch=(8, 2))
    trace.kernel(NCCL, 50, 40, stream=20, launch=(12, 2))
    trace.memcpy("HtoD (Pinned -> Device)", 80, 30, stream=30, launch=(15, 2))
    trace.kernel("gemm", 150, 60, launch=(110, 2))
    return trace.kernel(NCCL, 205, 25, stream=20, launch=(120, 2))


def parts_of(table: pd.DataFrame, whole: str) -> pd.Series:
    return table[whole] - sum(table[part] for part in PARTS)


def test_a_rank_is_partitioned_exactly(run):
    """Compute first, then communication, then copies, then idle; together they are the span."""
    row = run(TemporalBreakdown(), three_steps()).table("ranks").iloc[0]
    # Span 10 to 230. Busy [10, 110] + [150, 230]; compute or communication [10, 90] + [150, 230].
    expected = {"span": 220, "busy": 180, "compute": 110, "exposed_comm": 160 - 110, "exposed_memory": 180 - 160}
    expected |= {"idle": 40, "comm": 65, "memory": 30, "overlap": 10 + 5}
    assert {name: row[name] for name in expected} == {name: value * US for name, value in expected.items()}
    assert row["num_device_events"] == 6
    assert row["compute_share"] == pytest.approx(110 / 220)
    assert row["idle_share"] == pytest.approx(40 / 220)
    assert sum(row[f"{part}_share"] for part in PARTS) == pytest.approx(1)


def test_each_step_is_partitioned_exactly(run):
    """Work that crosses a boundary counts on both sides of it, cut there."""
    table = run(TemporalBreakdown(), three_steps()).table("per_step").set_index("step")
    columns = ["time", "compute", "exposed_comm", "exposed_memory", "idle"]
    assert table.loc[4, columns].tolist() == [100 * US, 50 * US, 30 * US, 10 * US, 10 * US]
    assert table.loc[5, columns].tolist() == [100 * US, 50 * US, 0, 10 * US, 40 * US]
    assert table.loc[6, columns].tolist() == [80 * US, 10 * US, 20 * US, 0, 50 * US]
    assert not parts_of(table, "time").any()


def test_facts_are_shares_of_step_time(run):
    """Over the three steps of 280 µs: compute 110, exposed communication 50, idle 100."""
    section = run(TemporalBreakdown(), three_steps())
    for name, time in {"compute_share": 110, "exposed_comm_share": 50, "idle_share": 100}.items():
        fact = section.fact(name)
        assert fact.value == pytest.approx(time / 280)
        assert fact.detail == "of step time"
        assert "share of step time" in fact.help


def test_without_steps_facts_are_shares_of_the_span(run):
    """And they say so; there is no table by step then, and no chart of it."""
    trace = TraceBuilder(0).kernel("gemm", 10, 30).kernel("gemm", 60, 10)
    section = run(TemporalBreakdown(), trace)
    assert section.fact("compute_share").value == pytest.approx(40 / 60)
    assert section.fact("compute_share").detail == "of the recorded span"
    assert section.table("per_step").empty
    assert section.table("steps").empty
    assert [chart.name for chart in section.charts] == ["ranks"]


def test_own_time_per_step_leaves_out_exposed_communication(run):
    """(100 − 30) + (100 − 0) + (80 − 20) over three steps."""
    row = run(TemporalBreakdown(), three_steps()).table("ranks").iloc[0]
    assert row["own_step"] == pytest.approx(230 * US / 3)


def test_events_on_one_stream_that_overlap_count_once(run):
    """[0, 20] and [10, 30] on one stream are 30 µs; an event within another adds nothing."""
    trace = TraceBuilder(0).kernel("a", 0, 20).kernel("b", 10, 20).kernel("c", 12, 3).kernel("d", 40, 10)
    row = run(TemporalBreakdown(), trace).table().iloc[0]
    assert (row["span"], row["busy"], row["idle"]) == (50 * US, 40 * US, 10 * US)


def test_events_of_no_length(run):
    """They take no time, but stretch the span and are counted."""
    trace = TraceBuilder(0).kernel("a", 0, 0).kernel("b", 10, 5).kernel(NCCL, 30, 0)
    row = run(TemporalBreakdown(), trace).table().iloc[0]
    assert (row["span"], row["busy"], row["comm"], row["idle"]) == (30 * US, 5 * US, 0, 25 * US)
    assert row["num_device_events"] == 3


def test_only_events_of_no_length(run):
    """A span of 0 has no shares."""
    row = run(TemporalBreakdown(), TraceBuilder(0).kernel("a", 5, 0)).table().iloc[0]
    assert (row["span"], row["idle"]) == (0, 0)
    assert pd.isna(row["idle_share"])


def test_nanoseconds_survive_epoch_stamps(run):
    """Times of 1 and 3 ns beside stamps of 19 digits: no float64 holds those."""
    trace = TraceBuilder(0, base_ns=0)
    start = f"{BASE_NS // 1000}.001"
    trace.kernel("a", start, "0.001").kernel("b", f"{BASE_NS // 1000}.005", "0.003")
    row = run(TemporalBreakdown(), trace).table().iloc[0]
    assert (row["span"], row["busy"], row["idle"]) == (7, 4, 3)


def test_a_gap_in_the_step_numbers(run):
    """A step before a gap in the numbers ends with its own row; what lies between belongs to no step."""
    trace = TraceBuilder(0).step(1, 0, 50).step(3, 200, 60).kernel("a", 40, 100).kernel("b", 210, 20)
    table = run(TemporalBreakdown(), trace).table("per_step").set_index("step")
    assert table.loc[1, ["time", "compute", "idle"]].tolist() == [50 * US, 10 * US, 40 * US]
    assert table.loc[3, ["time", "compute", "idle"]].tolist() == [60 * US, 20 * US, 40 * US]


def test_several_devices_of_one_process(run):
    """One row for each device, none for both together; bars are labelled rank/device."""
    trace = TraceBuilder(2, devices=2).step(0, 0, 100)
    trace.kernel("a", 10, 20).kernel("a", 50, 10).kernel("b", 20, 60, device=1)
    section = run(TemporalBreakdown(), trace)
    table = section.table("ranks").set_index(["rank", "device"])
    assert table.loc[(2, 0), ["span", "compute", "idle"]].tolist() == [50 * US, 30 * US, 20 * US]
    assert table.loc[(2, 1), ["span", "compute", "idle"]].tolist() == [60 * US, 60 * US, 0]
    per_step = section.table("per_step")
    assert per_step["idle"].tolist() == [70 * US, 40 * US]
    assert section.table("steps")["idle"].tolist() == [55 * US]  # Their mean.
    bars = next(chart for chart in section.charts if chart.name == "ranks")
    assert set(bars.frame["label"]) == {"2/0", "2/1"}


def test_captures_are_pooled(tmp_path):
    """Two captures of one rank: the time between them counts for nothing."""
    from htareport.run.runner import analyze

    first = TraceBuilder(0).step(0, 0, 50).kernel("a", 10, 20).kernel("a", 40, 10)  # Span 40, busy 30.
    second = TraceBuilder(0).step(9, 5000, 50).kernel("b", 5010, 30)  # Span 30, busy 30.
    files = (first.write(tmp_path / "one.json"), second.write(tmp_path / "two.json"))
    section = analyze({0: files}, analyses=[TemporalBreakdown()])["temporal_breakdown"]
    row = section.table().iloc[0]
    assert (row["span"], row["busy"], row["idle"]) == (70 * US, 60 * US, 10 * US)
    assert section.table("per_step")["step"].tolist() == [0, 9]
    assert section.table("per_step")["idle"].tolist() == [20 * US, 20 * US]


@pytest.mark.parametrize("steps", [True, False])
@pytest.mark.parametrize("host_first", [True, False])
def test_a_rank_without_device_events_keeps_its_row(run, host_first, steps):
    """With zero times and no shares, and a note; it does not count in the facts."""
    host = TraceBuilder(5, world_size=2).cpu_op("aten::mm", 0, 10)
    gpu = TraceBuilder(6, world_size=2).kernel("a", 10, 30).kernel("a", 50, 10)
    for trace in (host, gpu) if steps else ():
        trace.step(0, 0, 50).step(1, 50, 50)
    section = run(TemporalBreakdown(), *((host, gpu) if host_first else (gpu, host)))
    table = section.table("ranks").set_index("rank")
    assert list(table.index) == [5, 6]
    assert table.loc[5, ["span", "idle", "num_device_events"]].tolist() == [0, 0, 0]
    assert table.loc[5, ["device", "idle_share", "own_step"]].isna().all()
    assert table.loc[6, "device"] == 0
    assert table.loc[6, "span"] == 50 * US
    assert any("No device work was recorded on rank 5" in note for note in section.notes)
    assert section.fact("idle_share").value == pytest.approx(60 / 100 if steps else 10 / 50)


def test_a_run_without_device_events_is_not_applicable(run):
    """And says how to record some."""
    section = run(TemporalBreakdown(), TraceBuilder(0).step(0, 0, 10).cpu_op("aten::mm", 0, 5))
    assert section.status is Status.NOT_APPLICABLE
    assert "ProfilerActivity.CUDA" in section.reason


def test_unlinked_kernels_count(run):
    """A launch is not needed for a share of the time."""
    trace = TraceBuilder(0).step(0, 0, 100).kernel("a", 10, 20, launch=(5, 1)).kernel("b", 40, 20)
    assert run(TemporalBreakdown(), trace).table("per_step")["compute"].tolist() == [40 * US]


def test_steps_of_the_window_only(run):
    """With steps=5 the tables hold the work launched in step 5, and its window."""
    section = run(TemporalBreakdown(), three_steps(), steps="5")
    row = section.table("ranks").iloc[0]
    # Launched in [100, 200): gemm [150, 210] and the collective [205, 230].
    assert (row["span"], row["compute"], row["exposed_comm"]) == (80 * US, 60 * US, 20 * US)
    assert section.table("per_step")["step"].tolist() == [5]
    assert section.table("per_step")["compute"].tolist() == [50 * US]


def test_steps_are_means_over_ranks(run):
    """Step 0 takes 100 and 120 µs, of which 20 and 40 compute."""
    ranks = [TraceBuilder(rank).step(0, 0, 100 + 20 * rank).kernel("a", 10, 20 + 20 * rank) for rank in (0, 1)]
    row = run(TemporalBreakdown(), *ranks).table("steps").iloc[0]
    assert (row["time"], row["compute"], row["idle"]) == (110 * US, 30 * US, 80 * US)


def test_the_means_of_a_step_add_up(run):
    """Rounding to whole nanoseconds does not break the partition."""
    ranks = [
        TraceBuilder(rank)
        .step(0, 0, "0.100")
        .kernel("a", 0, f"0.0{10 + rank}")
        .kernel(NCCL, "0.050", f"0.0{10 + rank}")
        for rank in (0, 1)
    ]
    steps = run(TemporalBreakdown(), *ranks).table("steps")
    assert not parts_of(steps, "time").any()


def synchronised(rank: int, own: int, steps: int = 4) -> TraceBuilder:
    """Return steps of 100 µs with so much compute and a collective that lasts until 90."""
    trace = TraceBuilder(rank, world_size=3)
    for step in range(steps):
        start = 100 * step
        trace.step(step, start, 100).kernel("gemm", start + 5, own, launch=(start + 1, 2))
        trace.kernel(NCCL, start + 5 + own, 85 - own, stream=20, launch=(start + 3, 1))
    return trace


def test_the_rank_that_others_wait_for(run):
    """Ranks of 20, 20 and 60 µs of compute: rank 7 needs 40 µs more than the median."""
    section = run(TemporalBreakdown(), synchronised(1, 20), synchronised(4, 20), synchronised(7, 60))
    late = section.fact("late_rank")
    assert late.value == 7
    assert late.detail.startswith("+40.0")


@pytest.mark.parametrize(
    "ranks",
    [
        [synchronised(0, 40), synchronised(1, 40), synchronised(2, 40)],  # All alike.
        [synchronised(0, 40, steps=2), synchronised(1, 40, steps=2), synchronised(2, 60, steps=2)],  # Too few steps.
        [synchronised(0, 40)],
    ],
    ids=["alike", "few steps", "one rank"],
)
def test_no_rank_is_named_without_evidence(run, ranks):
    """An empty answer is a valid one."""
    assert run(TemporalBreakdown(), *ranks).fact("late_rank") is None


def test_a_rank_without_communication_is_waited_for_by_nobody(run):
    """Its whole step is its own time, yet no collective waits for it."""
    alone = TraceBuilder(2, world_size=3)
    for step in range(4):
        alone.step(step, 100 * step, 100).kernel("gemm", 100 * step + 5, 20, launch=(100 * step + 1, 2))
    assert run(TemporalBreakdown(), synchronised(0, 40), synchronised(1, 40), alone).fact("late_rank") is None


def test_a_second_device_without_communication_does_not_make_its_rank_late(run):
    """Only the device that communicates can be waited for."""
    ranks = [synchronised(0, 40), synchronised(1, 40), synchronised(2, 40)]
    ranks[1].kernel("copy_like", 30, 5, device=1)
    assert run(TemporalBreakdown(), *ranks).fact("late_rank") is None


def test_charts_hold_the_tables(run):
    """Bars of the steps and of the ranks, in the order of the parts, adding up to step time and span."""
    section = run(TemporalBreakdown(), three_steps())
    steps, ranks = section.charts
    assert (steps.name, ranks.name) == ("steps", "ranks")
    assert list(steps.frame["part"].unique()) == list(PARTS.values())
    assert steps.frame.groupby("step")["value"].sum().tolist() == [100 * US, 100 * US, 80 * US]
    assert ranks.frame["value"].sum() == 220 * US


@pytest.mark.parametrize("most", [8, pytest.param(256, marks=pytest.mark.slow)])
def test_many_ranks_become_quantiles(run, monkeypatch, most):
    """Beyond 256 bars the chart shows quantiles over ranks, and says of how many; eight do for what it shows."""
    assert rank_charts.MOST_BARS == 256
    monkeypatch.setattr(rank_charts, "MOST_BARS", most)
    ranks = [TraceBuilder(rank).kernel("a", 0, 10).kernel("a", 20 + rank, 10) for rank in range(most + 1)]
    chart = run(TemporalBreakdown(), *ranks).charts[0]
    idle = chart.frame[chart.frame["part"] == "idle"].set_index("percentile")["value"]
    assert idle[0] == 10 * US
    assert idle[100] == (10 + most) * US
    assert f"{most + 1} ranks" in chart.title
