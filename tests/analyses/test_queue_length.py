"""How far the host runs ahead, on paper values."""

from __future__ import annotations

import pandas as pd
import pytest
from builder import BASE_NS, TraceBuilder

from htareport.analyses.host.queue_length import QueueLength
from htareport.errors import UsageError
from htareport.rank.queue import queue_series
from htareport.report import Status
from htareport.report.rank_charts import table_of
from htareport.run.runner import analyze
from htareport.trace import RankTrace

US = 1000


def two_waiting(rank: int = 0, stream: int = 7, device: int = 0) -> TraceBuilder:
    """Length 1 in [0, 4], 2 in [4, 10], 1 in [10, 20], then 0."""
    trace = TraceBuilder(rank, world_size=2, devices=device + 1)
    trace.kernel("a", 10, 5, stream, device, launch=(0, 2))
    return trace.kernel("b", 20, 5, stream, device, launch=(4, 2))


def three_calls() -> TraceBuilder:
    """Calls [0, 2], [4, 14], [16, 17]; starts 12, 20, 22: length 2 in [4, 12] and [16, 20], else 1."""
    trace = TraceBuilder(0).kernel("a", 12, 5, launch=(0, 2)).kernel("b", 20, 1, launch=(4, 10))
    return trace.kernel("c", 22, 1, launch=(16, 1))


def series_of(tmp_path, trace: TraceBuilder, stream: int = 7) -> list[tuple[float, int]]:
    """µs and length after each change."""
    points = queue_series(RankTrace.load(0, trace.write(tmp_path / "rank0.json")))
    points = points[points["stream"] == stream]
    return [((at - BASE_NS) / US, length) for at, length in zip(points["ts"], points["queue_length"], strict=True)]


def by_stream(section) -> pd.DataFrame:
    return section.table("streams").set_index(["device", "stream"])


def test_statistics_are_weighted_by_time(run, tmp_path):
    """Within 20 µs length 1 for 14 and 2 for 6: mean 26 / 20; at most 1 for 70 % of the time; never empty."""
    assert series_of(tmp_path, two_waiting()) == [(0, 1), (4, 2), (10, 1), (20, 0)]
    row = by_stream(run(QueueLength(), two_waiting())).loc[(0, 7)]
    assert row["mean"] == pytest.approx(1.3)
    assert row[["p50", "p95", "max"]].tolist() == [1, 2, 2]
    assert row[["full", "blocked", "empty_share"]].tolist() == [0, 0, 0]


def test_work_counts_until_it_starts_not_until_it_ends(run):
    """Waits in [0, 10] and [20, 30]: empty in between, although the kernel runs until 18."""
    trace = TraceBuilder(0).kernel("a", 10, 8, launch=(0, 2)).kernel("b", 30, 80, launch=(20, 2))
    row = by_stream(run(QueueLength(), trace)).loc[(0, 7)]
    assert row[["mean", "empty_share"]].tolist() == pytest.approx([2 / 3, 1 / 3])
    assert row[["p50", "max"]].tolist() == [1, 1]


def test_each_stream_has_its_queue(run):
    """Stream 9: [1, 31] and [11, 21], so 20 µs of 1 and 10 of 2; the stream of the longest queue comes first."""
    trace = TraceBuilder(0).kernel("a", 10, 5, launch=(0, 1)).kernel("x", 21, 5, stream=9, launch=(1, 2))
    section = run(QueueLength(), trace.kernel("y", 31, 5, stream=9, launch=(11, 2)))
    table = by_stream(section)
    assert table.index.tolist() == [(0, 9), (0, 7)]
    assert table["mean"].tolist() == pytest.approx([40 / 30, 1])
    assert table["max"].tolist() == [2, 1]


def test_equal_stream_numbers_of_two_devices_are_two_queues(run):
    """One waits on each."""
    trace = TraceBuilder(0, devices=2).kernel("a", 10, 5, launch=(0, 1)).kernel("b", 10, 5, device=1, launch=(2, 1))
    table = by_stream(run(QueueLength(), trace))
    assert table["max"].to_dict() == {(0, 7): 1, (1, 7): 1}


def test_at_equal_stamps_the_launch_comes_first(run, tmp_path):
    """At 10 b is launched while a starts: 2 for no time, so mean and percentiles are 1."""
    trace = TraceBuilder(0).kernel("a", 10, 5, launch=(0, 2)).kernel("b", 20, 5, launch=(10, 2))
    assert series_of(tmp_path, trace) == [(0, 1), (10, 2), (10, 1), (20, 0)]
    row = by_stream(run(QueueLength(), trace)).loc[(0, 7)]
    assert row[["mean", "p50", "p95", "max"]].tolist() == [1, 1, 1, 2]


def test_stamps_one_ns_apart_are_no_tie(tmp_path):
    """At 10 a starts, 1 ns later b is launched."""
    trace = TraceBuilder(0).kernel("a", 10, 5, launch=(0, 2)).kernel("b", 20, 5, launch=("10.001", 2))
    assert series_of(tmp_path, trace) == [(0, 1), (10, 0), (10.001, 1), (20, 0)]


def test_starts_of_one_stamp_make_one_change(tmp_path):
    """Both kernels start at 10."""
    trace = TraceBuilder(0).kernel("a", 10, 5, launch=(0, 2)).kernel("b", 10, 5, launch=(4, 2))
    assert series_of(tmp_path, trace) == [(0, 1), (4, 2), (10, 0)]


def test_a_kernel_before_its_launch_leaves_at_the_launch(tmp_path):
    """It starts at 5, its call at 8: never a negative length. Another starts just when its call does."""
    trace = TraceBuilder(0).kernel("a", 5, 10, launch=(8, 2)).kernel("b", 20, 5, launch=(20, 2))
    assert series_of(tmp_path, trace) == [(8, 1), (8, 0), (20, 1), (20, 0)]


def test_a_queue_that_never_lasts_has_no_mean(run):
    """One kernel that starts with its call: a maximum, but no time to weigh by."""
    row = by_stream(run(QueueLength(), TraceBuilder(0).kernel("a", 5, 10, launch=(5, 2)))).loc[(0, 7)]
    assert row["max"] == 1
    assert row[["mean", "p50", "p95", "empty_share"]].isna().all()


def test_a_graph_adds_its_device_events_to_each_stream_at_once(tmp_path):
    """Two kernels on stream 7, one on stream 9, all waiting from the start of the one call."""
    trace = TraceBuilder(0).graph_launch(0, 5, [("a", 10, 5), ("b", 20, 5), ("c", 12, 5)])
    trace.events[-1]["tid"] = trace.events[-1]["args"]["stream"] = 9
    assert series_of(tmp_path, trace) == [(0, 2), (10, 1), (20, 0)]
    assert series_of(tmp_path, trace, stream=9) == [(0, 1), (12, 0)]


def test_a_graph_within_a_queue(run):
    """Length 1 in [0, 4], then 4 until the graph's kernels start at 14, 16 and 18, after a at 10."""
    trace = TraceBuilder(0).kernel("a", 10, 4, launch=(0, 1))
    trace.graph_launch(4, 3, [("b", 14, 2), ("c", 16, 2), ("d", 18, 2)])
    row = by_stream(run(QueueLength(), trace)).loc[(0, 7)]
    # 1 x 4, 4 x 6, 3 x 4, 2 x 2, 1 x 2 µs.
    assert row["mean"] == pytest.approx((4 + 24 + 12 + 4 + 2) / 18)
    assert row[["p50", "p95", "max"]].tolist() == [3, 4, 4]


@pytest.mark.parametrize(
    ("most", "full", "blocked"),
    [
        ("1", 22, 2 + 10 + 1),  # Never empty, so all of the calls.
        ("2", 8 + 4, 8 + 1),  # [4, 12] and [16, 20]: of the second call [4, 12], of the third [16, 17].
        ("3", 0, 0),
    ],
)
def test_blocked_is_the_time_of_calls_on_a_full_queue(run, most, full, blocked):
    """With the length that is full as an option."""
    row = by_stream(run(QueueLength.configured({"max_queue_length": most}), three_calls())).loc[(0, 7)]
    assert row[["full", "blocked"]].tolist() == [full * US, blocked * US]


def test_full_queues_of_all_streams_have_their_rows(run):
    """Both are at 2 for 6 µs; the calls of b take 2 µs of it, and those of the other stream don't count."""
    trace = two_waiting()
    trace.kernel("x", 110, 5, stream=9, launch=(100, 2)).kernel("y", 120, 5, stream=9, launch=(104, 5))
    trace.kernel("z", 200, 5, stream=11, launch=(3, 90))  # A call in progress while 7 is full.
    table = by_stream(run(QueueLength(max_queue_length=2), trace))
    assert table["full"].to_dict() == {(0, 7): 6 * US, (0, 9): 6 * US, (0, 11): 0}
    assert table["blocked"].to_dict() == {(0, 7): 2 * US, (0, 9): 5 * US, (0, 11): 0}


@pytest.mark.parametrize(("count", "full", "blocked"), [(1023, 0, 0), (1024, 10, 5)])
def test_a_queue_of_1024_is_full(run, count, full, blocked):
    """A graph of so many kernels from [0, 5], the first of which starts at 10."""
    trace = TraceBuilder(0).graph_launch(0, 5, [("k", 10 + number, 1) for number in range(count)])
    row = by_stream(run(QueueLength(), trace)).loc[(0, 7)]
    assert row[["max", "full", "blocked"]].tolist() == [count, full * US, blocked * US]


def test_a_full_length_is_one_at_least():
    """The message names the option."""
    with pytest.raises(UsageError, match="max_queue_length: 0 is outside its range: at least 1"):
        QueueLength.configured({"max_queue_length": "0"})


def test_only_linked_pairs_count(run, tmp_path):
    """Neither a kernel without call, nor calls whose kernel was lost or that have no id."""
    trace = two_waiting().kernel("lost", 2, 1).runtime("cudaLaunchKernel", 1, 1, 900).runtime("cudaLaunchKernel", 1, 1)
    trace.kernel("only", 3, 1, stream=9)
    assert series_of(tmp_path, trace) == [(0, 1), (4, 2), (10, 1), (20, 0)]
    assert by_stream(run(QueueLength(), trace)).index.tolist() == [(0, 7)]


@pytest.mark.parametrize(
    ("call", "category"),
    [
        ("hipLaunchKernel", "cuda_runtime"),
        ("hipModuleLaunchKernel", "cuda_runtime"),
        ("cuLaunchKernel", "cuda_driver"),
        ("cudaLaunchCooperativeKernel", "cuda_runtime"),
    ],
)
def test_calls_of_any_name_on_the_default_stream(run, call, category):
    """Stream 0, as HIP numbers it: one waits for 10 µs."""
    trace = TraceBuilder(0).complete(category, call, 1000, 1000, (0, 2), {"correlation": 5})
    section = run(QueueLength(), trace.kernel("k", 10, 5, stream=0, correlation=5))
    assert by_stream(section).loc[(0, 0), ["mean", "max"]].tolist() == [1, 1]


def test_copies_and_fills_wait_in_the_same_queue(run):
    """A copy, a fill and a kernel, all launched before the first begins at 20."""
    trace = TraceBuilder(0).memcpy("HtoD (Pinned -> Device)", 20, 5, 64, launch=(0, 1)).memset(30, 5, launch=(2, 1))
    section = run(QueueLength(), trace.kernel("k", 40, 5, launch=(4, 1)))
    assert by_stream(section).loc[(0, 7), "max"] == 3


def test_time_between_captures_is_outside(tmp_path):
    """Two captures like one: 28 µs of length 1 and 12 of 2, and nothing of the 9 ms between them."""
    one = two_waiting().write(tmp_path / "one.json")
    later = TraceBuilder(0, 2).kernel("a", 9010, 5, launch=(9000, 2)).kernel("b", 9020, 5, launch=(9004, 2))
    section = analyze({0: (one, later.write(tmp_path / "two.json"))}, analyses=[QueueLength(2)])["queue_length"]
    row = by_stream(section).loc[(0, 7)]
    assert row[["max", "full", "blocked"]].tolist() == [2, 12 * US, 4 * US]
    assert row[["mean", "p50", "empty_share"]].tolist() == pytest.approx([1.3, 1, 0])


def test_ranks_have_their_own_rows_and_a_missing_one_a_note(run):
    """Rank 3 has kernels, but no calls; rank 2 is not there at all."""
    section = run(QueueLength(), two_waiting(0), two_waiting(1, stream=9), TraceBuilder(3, 4).kernel("k", 0, 5))
    table = section.table("streams")
    assert table[["rank", "stream"]].to_numpy().tolist() == [[0, 7], [1, 9]]
    assert table["max"].tolist() == [2, 2]
    assert [note.startswith("Without rank 3: no launches are linked") for note in section.notes] == [True]


def test_of_very_many_ranks_those_with_the_longest_full_queues():
    """5,002 rows of 2,501 ranks are too many by one rank: rank 5, whose queues are full the shortest, goes."""
    [spec] = QueueLength.tables
    row = {column.name: 1 for column in spec.columns} | {"device": "0"}
    streams = pd.DataFrame([row | {"rank": rank, "stream": at} for rank in range(2501) for at in (7, 9)])
    streams.loc[streams["rank"] == 5, "full"] = 0
    table = table_of(spec, streams, 2501)
    assert set(range(2501)) - set(table.frame["rank"]) == {5}
    assert table.note == "Holds 2,500 of 2,501 ranks: those with the largest “Full”."


def test_chart_of_the_first_rank_from_the_zero_of_the_report(run):
    """Rank 1 starts 40 µs before rank 0's first call, which is the zero of its line; rank 0 is shown."""
    late = TraceBuilder(0, base_ns=BASE_NS + 7).kernel("a", 50, 5, launch=(40, 2))
    section = run(QueueLength(), late, TraceBuilder(1).kernel("b", 90, 5, launch=(0, 2)))
    [chart] = section.charts
    assert chart.title == "Queue length over time, rank 0"
    assert chart.frame[["ts", "queue_length", "lane"]].to_numpy().tolist() == [
        [40 * US + 7, 1, "stream 0/7"],
        [50 * US + 7, 0, "stream 0/7"],
    ]


def test_chart_keeps_the_longest_queue_among_very_many_points(run):
    """2,000 changes between 0 and 1, among them a graph of 3 at 5001 beside a kernel that waits in [5000, 5005]."""
    trace = TraceBuilder(0)
    for number in range(1000):
        trace.kernel("k", 10 * number + 5, 1, launch=(10 * number, 1))
    trace.graph_launch(5001, 1, [("g", 5002, 1), ("g", 5002, 1), ("g", 5002, 1)])
    frame = run(QueueLength(), trace).charts[0].frame
    assert len(frame) == 400
    assert frame["queue_length"].max() == 4


def test_queues_of_the_chosen_steps_only(run):
    """Launched in step 2: one kernel that waits for 20 µs."""
    trace = TraceBuilder(0).step(1, 0, 100).step(2, 100, 100).kernel("a", 150, 5, launch=(90, 2))
    section = run(QueueLength(), trace.kernel("b", 160, 5, launch=(140, 2)), steps="2")
    assert by_stream(section).loc[(0, 7), ["mean", "max"]].tolist() == [1, 1]


@pytest.mark.parametrize(
    "trace", [TraceBuilder(0).cpu_op("aten::mm", 0, 5), TraceBuilder(0).kernel("k", 0, 5)], ids=["host", "device"]
)
def test_not_applicable_without_linked_launches(run, trace):
    """On either side alone; the reason says what to record."""
    section = run(QueueLength(), trace)
    assert section.status is Status.NOT_APPLICABLE
    assert "no launches are linked" in section.reason
