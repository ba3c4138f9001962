"""Time and device work by annotation, on paper values. Times in the tables are ns."""

from __future__ import annotations

from builder import TraceBuilder

from htareport.analyses.time.annotations import Annotations
from htareport.report import Status
from htareport.run.runner import analyze

TIMES = ["count", "sum", "own", "mean", "min", "max"]
WORK = ["kernels", "device", "device_sum", "under"]


def rows_of(section, name="host"):
    return section.table(name).set_index("name")


def step(number=0, at=0, rank=0, trace=None):
    """A step of 100 µs: forward [10, 40) with attention [15, 25) in it, optimizer [60, 70)."""
    trace = (trace or TraceBuilder(rank)).step(number, at, 100)
    return trace.annotation("forward", at + 10, 30).annotation("attention", at + 15, 10).annotation("opt", at + 60, 10)


def test_nesting(run):
    """Time outside the annotations directly within; the steps are one name."""
    rows = rows_of(run(Annotations(), step(1, 100, trace=step(0))))
    assert rows.loc["ProfilerStep#…", TIMES].tolist() == [2, 200_000, 120_000, 100_000, 100_000, 100_000]
    assert rows.loc["forward", TIMES].tolist() == [2, 60_000, 40_000, 30_000, 30_000, 30_000]
    assert rows.loc["attention", TIMES].tolist() == [2, 20_000, 20_000, 10_000, 10_000, 10_000]
    assert rows[WORK].to_numpy().sum() == 0


def test_kernels_belong_to_the_innermost_annotation_around_their_launch(run):
    """Busy time is that in which one runs: gemm [200, 250) and softmax [240, 260) overlap."""
    trace = step().kernel("softmax", 240, 20, stream=8, launch=(20, 2)).kernel("gemm", 200, 50, launch=(30, 2))
    trace.kernel("gemm", 255, 10, launch=(35, 2)).kernel("late", 300, 5, launch=(150, 2))
    section = run(Annotations(), trace)
    rows = rows_of(section)
    assert rows.loc["attention", WORK].tolist() == [1, 20_000, 20_000, 20_000]
    assert rows.loc["forward", WORK].tolist() == [2, 60_000, 60_000, 65_000]
    assert rows.loc["ProfilerStep#…", WORK].tolist() == [0, 0, 0, 65_000]
    assert "5.88\u202f% of the device time" in section.notes[0]  # The last: 5 of 85 µs.


def test_nothing_is_said_of_no_time(run):
    """Every kernel belongs to an annotation of the host."""
    section = run(Annotations(), step().kernel("gemm", 200, 50, launch=(30, 2)))
    assert section.notes == ()


def test_recursion_counts_once_in_the_union(run):
    """An annotation within one of its own name: two rows, but one busy time."""
    trace = TraceBuilder(0).annotation("block", 0, 100).annotation("block", 10, 50)
    rows = rows_of(run(Annotations(), trace.kernel("k", 200, 8, launch=(20, 2))))
    assert rows.loc["block", ["count", "sum", "own", *WORK]].tolist() == [2, 150_000, 100_000, 1, 8_000, 8_000, 8_000]


def test_device_annotations_catch_what_was_launched_outside(run):
    """A kernel without launch in the trace belongs to the annotation around its start on its stream."""
    trace = TraceBuilder(0).gpu_annotation("decode", 100, 50).gpu_annotation("attention", 110, 20)
    trace.kernel("a", 115, 10).kernel("b", 130, 40).kernel("other stream", 120, 10, stream=8).kernel("c", 150, 40)
    section = run(Annotations(), trace)
    rows = rows_of(section, "device")
    assert rows.loc["decode", TIMES].tolist() == [1, 50_000, 30_000, 50_000, 50_000, 50_000]
    assert rows.loc["attention", TIMES].tolist() == [1, 20_000, 20_000, 20_000, 20_000, 20_000]
    assert section.notes[:2] == (
        "50.0\u202f% of the device time (sum of durations) belongs to no annotation.",
        "50.0\u202f% of the device time is only within annotations of the device, not launched within one of the host.",
    )


def test_the_backward_thread_belongs_to_what_waits_for_it(run):
    """A launch of autograd's thread counts to the annotation then open on the thread of the forward pass."""
    trace = TraceBuilder(0).annotation("forward", 0, 50).annotation("backward", 50, 50)
    trace.cpu_op("aten::mul", 10, 5, **{"Sequence number": 3, "Fwd thread id": 0})
    trace.cpu_op("MulBackward0", 60, 20, 2, **{"Sequence number": 3, "Fwd thread id": 1})
    trace.kernel("mul_grad", 90, 10)
    trace.runtime("cudaLaunchKernel", 65, 2, trace.events[-1]["args"]["correlation"], tid=2)
    rows = rows_of(run(Annotations(), trace))
    assert rows["kernels"].to_dict() == {"backward": 1, "forward": 0}


def test_ranks_add_up(run):
    section = run(Annotations(), step(rank=0), step(rank=5))
    assert rows_of(section).loc["forward", TIMES].tolist() == [2, 60_000, 40_000, 30_000, 30_000, 30_000]
    by_rank = section.table("by_rank")
    assert by_rank[by_rank["name"] == "forward"][["rank", "place", "sum"]].to_numpy().tolist() == [
        [0, "host", 30_000],
        [5, "host", 30_000],
    ]
    assert "ranks" in {chart.name for chart in section.charts}


def test_a_window_leaves_other_steps_out(tmp_path):
    """Host annotations by their start, those of the device by the events within them."""
    trace = step(1, 100, trace=step(0))
    for number in range(2):
        at = 100 * number
        trace.kernel("gemm", at + 30, 5 + number, launch=(at + 20, 2)).gpu_annotation("forward", at + 30, 5 + number)
    trace.write(tmp_path / "0.json")
    section = analyze(tmp_path, analyses=[Annotations()], steps="1")["annotations"]
    assert rows_of(section).loc["attention", ["count", "kernels", "device"]].tolist() == [1, 1, 6_000]
    assert rows_of(section, "device").loc["forward", ["count", "sum"]].tolist() == [1, 6_000]


def test_without_annotations_there_is_nothing_to_say(run):
    section = run(Annotations(), TraceBuilder(0).kernel("k", 5, 5))
    assert section.status is Status.NOT_APPLICABLE
    assert "record_function" in section.reason


def test_many_names_are_cut_to_size(run):
    trace = TraceBuilder(0)
    for number in range(200):
        trace.annotation(f"request {number}", 10 * number, 5)
    section = run(Annotations(), trace)
    assert len(section.table("host")) == 150
    assert section.notes[0] == "The table on the host holds the 150 rows of most time; there are more."


def test_sums_over_ranks_that_miss_rows_are_told(run):
    """Of rank 0 the 151st name is cut: rank 1's call alone is in the table, and a note says so."""
    trace = TraceBuilder(0, 2)
    for number in range(150):
        trace.annotation(f"request {number}", 10 * number, 5)
    trace.annotation("small", 5_000, 1)
    section = run(Annotations(), trace, TraceBuilder(1, 2).annotation("small", 0, 50))
    assert rows_of(section).loc["small", ["count", "sum"]].tolist() == [1, 50_000]
    [note] = section.notes
    assert note == (
        "The table on the host adds up, of each rank, the 150 rows of most time; 1 of 2 ranks have more, and "
        "what they leave out is missing from the sums."
    )
