"""Repeated sequences of kernels, on paper values. Times in the tables are ns."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from htareport.analyses.kernels.kernel_sequences import KernelSequences
from htareport.errors import UsageError
from htareport.rank.budget import room_for


def rows_of(section, name="streams"):
    return section.table(name).set_index("sequence")


def loops(times=3, rank=0, pause=0):
    """A gemm of 10 µs, 2 µs of nothing, a relu of 5 µs; then 3 µs to the next."""
    trace = TraceBuilder(rank)
    for number in range(times):
        at = 100 + number * (20 + pause)
        trace.kernel("gemm", at, 10).kernel("relu", at + 12, 5)
    return trace


def test_pairs_and_what_lies_between(run):
    """Three pairs with a gap of 2 µs each; beyond the pause of 1 µs to the next pair nothing is a sequence."""
    rows = rows_of(run(KernelSequences(pause=2.5), loops()))
    assert rows.index.tolist() == ["gemm → relu"]
    row = rows.iloc[0]
    assert row[["length", "count", "idle", "gaps", "device", "mean"]].tolist() == [2, 3, 6_000, 6_000, 45_000, 15_000]
    assert row["share"] == 1
    assert row[["rank", "stream", "start"]].tolist() == [0, 7, 0]


def test_longer_sequences_come_first(run):
    """Three pairs in a row have more gaps than two, but occur once only."""
    rows = rows_of(run(KernelSequences(fewest=2), loops(4)))
    assert rows.index[0] == "gemm → relu → gemm → relu"
    assert rows.iloc[0][["count", "gaps"]].tolist() == [2, 14_000]  # Three gaps each: 2 + 3 + 2.
    assert len(rows) == 1  # All others are about the same places.


def test_gaps_in_which_other_streams_run_are_not_idle(run):
    """A copy covers half of the second gap."""
    trace = loops().memcpy("HtoD", 131, 10, stream=30)
    row = rows_of(run(KernelSequences(pause=2.5), trace)).loc["gemm → relu"]
    assert row[["gaps", "idle"]].tolist() == [6_000, 5_000]


def test_streams_and_captures_are_apart(run):
    """The same kernels on two streams in turn are no sequence."""
    trace = TraceBuilder(0)
    for number in range(6):
        trace.kernel("gemm", 100 + 20 * number, 10, stream=7).kernel("relu", 112 + 20 * number, 5, stream=8)
    rows = rows_of(run(KernelSequences(), trace))
    assert rows.index.tolist() == ["gemm ×2", "relu ×2"]
    assert rows["idle"].tolist() == [15_000, 15_000]
    assert rows["count"].tolist() == [3, 3]


def test_ranks_add_up(run):
    """Occurrences of all ranks; the example is the earliest."""
    rows = rows_of(run(KernelSequences(pause=2.5), loops(rank=4), loops(4, rank=2)))
    assert rows.loc["gemm → relu", ["count", "gaps", "rank"]].tolist() == [7, 14_000, 2]


def under(trace, at, tid=None):
    """aten::softmax calls aten::_softmax, which launches two kernels with 3 µs between."""
    trace.cpu_op("aten::softmax", at, 50, tid, **{"Input Dims": [[2, 3]]})
    trace.cpu_op("aten::_softmax", at + 5, 40, tid, **{"Input Dims": [[2, 3], []]})
    return trace.kernel("max", at + 60, 10, launch=(at + 10, 2)).kernel("exp", at + 73, 20, launch=(at + 20, 2))


def test_sequences_under_operators(run):
    """The outermost operator that holds the kernels, with its shapes; kernels in order of start."""
    trace = under(under(TraceBuilder(0), 0), 200)
    section = run(KernelSequences(), trace)
    rows = section.table("operators")
    assert rows[["operator", "shapes", "sequence"]].to_numpy().tolist() == [["aten::softmax", "2×3", "max → exp"]]
    columns = ["length", "count", "device", "mean", "gaps", "host"]
    assert rows.iloc[0][columns].tolist() == [2, 2, 60_000, 30_000, 6_000, 100_000]


def test_an_operator_with_more_kernels_is_one_more_row(run):
    trace = under(TraceBuilder(0).cpu_op("attention", 0, 100), 10).kernel("out", 120, 5, launch=(80, 2))
    rows = rows_of(run(KernelSequences(), trace), "operators")
    assert rows["operator"].to_dict() == {"max → exp → out": "attention", "max → exp": "aten::softmax"}


def test_labels_tell_operators_apart_by_their_shapes(run):
    """By numbers only where the shapes are equal: then the kernels differ."""
    trace, at = TraceBuilder(0), 0
    for operator, shape, kernels in (
        ("mm", 3, "ab"), ("mm", 4, "ab"), ("mm", 4, "ba"), ("mm", None, "ab"), ("add", 3, "ab"),
    ):  # fmt: skip
        trace.cpu_op(operator, at, 50, **({"Input Dims": [[shape]]} if shape else {}))
        for place, kernel in enumerate(kernels):
            trace.kernel(kernel, at + 60 + 10 * place, 5, launch=(at + 5 + 5 * place, 2))
        at += 100
    chart = next(chart for chart in run(KernelSequences(), trace).charts if chart.name == "operators")
    assert sorted(chart.frame["label"]) == ["add", "mm", "mm (3)", "mm (4) #1", "mm (4) #2"]


def test_the_engines_wrapper_yields_to_the_function(run):
    """Which has shapes and a name that says what it is."""
    trace = TraceBuilder(0).cpu_op("autograd::engine::evaluate_function: SoftmaxBackward0", 0, 100)
    trace = under(trace.cpu_op("SoftmaxBackward0", 1, 90, **{"Input Dims": [[7]]}), 10)
    rows = rows_of(run(KernelSequences(), trace), "operators")
    assert rows[["operator", "shapes"]].to_numpy().tolist() == [["SoftmaxBackward0", "7"]]


def test_very_long_sequences_are_not_listed(run):
    trace = TraceBuilder(0).cpu_op("everything", 0, 1000)
    for number in range(30):
        trace.kernel(f"k{number}", 2000 + 10 * number, 5, launch=(10 * number, 1))
    section = run(KernelSequences(), trace)
    assert not len(section.table("operators"))
    assert section.charts == ()


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"longest": "0"}, r"kernel_sequences\.longest: 0 is outside its range: at least 1"),
        ({"shortest": "0"}, r"kernel_sequences\.shortest: 0 is outside its range: at least 1"),
        ({"fewest": "-1"}, r"kernel_sequences\.fewest: -1 is outside its range: at least 2"),
        ({"pause": "-1"}, r"kernel_sequences\.pause: -1 is outside its range: at least 0"),
        ({"shortest": "5", "longest": "4"}, r"kernel_sequences\.longest: 4 is less than kernel_sequences\.shortest, 5"),
    ],
)
def test_wrong_options(options, refused):
    """Are said when they are given."""
    with pytest.raises(UsageError, match=refused):
        KernelSequences.configured(options)


def test_sequences_of_one_length_only(run):
    """Pairs alone: relu → gemm leaves 3 × 3 µs idle, gemm → relu 4 × 2 µs at the same places."""
    rows = rows_of(run(KernelSequences(shortest=2, longest=2), loops(4)))
    assert rows[["length", "count", "idle"]].to_dict("index") == {
        "relu → gemm": {"length": 2, "count": 3, "idle": 9_000}
    }


def many(rank, numbers):
    """Operators of two kernels each."""
    trace = TraceBuilder(rank, 2)
    for number in numbers:
        at = 100 * number
        trace.cpu_op(f"op{number:02}", at, 50).kernel("a", at + 60, 5, launch=(at + 5, 2))
        trace.kernel("b", at + 66, 5, launch=(at + 10, 2))
    return trace


def test_what_is_cut_is_told(run):
    """81 operators of two kernels: a rank sends 80, and so lacks the one that the other rank has too."""
    section = run(KernelSequences(), many(0, range(81)))
    assert len(section.table("operators")) == 80
    assert section.notes == ("The table under operators holds the 80 rows of most device time; there are more.",)
    section = run(KernelSequences(), many(0, range(81)), many(1, [80]))
    assert rows_of(section, "operators").set_index("operator").loc["op80", "count"] == 1
    [note] = section.notes
    assert note == (
        "The table under operators adds up, of each rank, the 80 rows of most device time; 1 of 2 ranks have "
        "more, and what they leave out is missing from the sums."
    )


def test_where_there_is_room_for_half_the_rows_half_are_sent(run):
    with room_for(0.5):
        section = run(KernelSequences(), many(0, range(81)))
    assert len(section.table("operators")) == 40
    assert [note.endswith("there are more.") for note in section.notes] == [True]
