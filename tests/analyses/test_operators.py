"""Operators of the host."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from htareport.analyses.host.operators import Operators
from htareport.report import Status

US = 1000


def nested(rank: int = 0) -> TraceBuilder:
    """One linear [0, 100] calls t [5, 15] and addmm [20, 90], which calls fill [30, 50]; apart, t [200, 230]."""
    trace = TraceBuilder(rank, world_size=2).cpu_op("linear", 0, 100).cpu_op("t", 5, 10).cpu_op("addmm", 20, 70)
    return trace.cpu_op("fill", 30, 20).cpu_op("t", 200, 30)


def test_total_and_self_time(run):
    """Self is what lies outside the operators called directly."""
    table = run(Operators(), nested()).table().set_index("name")
    expected = {"linear": (100, 20), "addmm": (70, 50), "t": (40, 40), "fill": (20, 20)}
    assert {name: (row["total"] / US, row["self"] / US) for name, row in table.iterrows()} == expected
    assert table["self"].sum() == 130 * US  # [0, 100] and [200, 230].
    assert table["share"].to_dict() == pytest.approx({name: own / 130 for name, (_, own) in expected.items()})
    assert table.loc["t", ["count", "mean", "max"]].tolist() == [2, 20 * US, 30 * US]
    assert list(table.index)[:2] == ["addmm", "t"]  # By self time.


def test_threads_do_not_nest(run):
    """Operators of two threads at the same time keep their whole time."""
    table = run(Operators(), TraceBuilder(0).cpu_op("a", 0, 50, tid=1).cpu_op("b", 10, 20, tid=2)).table()
    assert table.set_index("name")["self"].to_dict() == {"a": 50 * US, "b": 20 * US}


def test_recursion_counts_twice_in_total_only(run):
    """An operator that calls its like: total 50 + 20, self 50."""
    row = run(Operators(), TraceBuilder(0).cpu_op("a", 0, 50).cpu_op("a", 10, 20)).table().iloc[0]
    assert (row["total"], row["self"], row["count"]) == (70 * US, 50 * US, 2)


def test_ranks_are_summed(run):
    """Calls and times of both, the longest of either."""
    table = run(Operators(), nested(3), TraceBuilder(17).cpu_op("t", 0, 50)).table().set_index("name")
    assert table.loc["t", ["self", "total", "count", "max"]].tolist() == [90 * US, 90 * US, 3, 50 * US]


def test_ranks_without_steps_are_no_part_of_a_step(run):
    """Per step counts what the ranks with steps do; the sums stay those of all ranks."""
    stepped = TraceBuilder(0).step(1, 0, 100).step(2, 100, 100).cpu_op("t", 10, 20)
    row = run(Operators(), stepped, TraceBuilder(1).cpu_op("t", 0, 50)).table().set_index("name").loc["t"]
    assert row[["count", "self"]].tolist() == [2, 70 * US]
    assert row[["step_count", "step_self"]].tolist() == [0.5, 10 * US]


def test_only_operators_count(run):
    """Runtime calls and annotations are neither rows nor children."""
    trace = TraceBuilder(0).cpu_op("a", 0, 50).runtime("cudaMalloc", 10, 20).annotation("note", 5, 40)
    table = run(Operators(), trace).table()
    assert table["name"].tolist() == ["a"]
    assert table["self"].tolist() == [50 * US]


def test_old_categories(run):
    """Traces of 2020 call the category Operator."""
    trace = TraceBuilder(0).complete("Operator", "aten::add", 1, 1, (0, 5), {})
    assert run(Operators(), trace).table()["name"].tolist() == ["aten::add"]


def test_facts_where_only_the_host_worked(run):
    """They name the operator of largest self time; with GPU work there are none."""
    fact = run(Operators(), nested()).fact("top_operator_share")
    assert fact.value == pytest.approx(50 / 130)
    assert fact.detail == "addmm"
    assert run(Operators(), nested(), TraceBuilder(1).cpu_op("a", 0, 1).kernel("k", 0, 1)).facts == ()


def test_operators_of_the_window(run):
    """With steps chosen, those that start in other steps are left out, as device work is."""
    trace = TraceBuilder(0).step(1, 0, 100).step(2, 100, 100)
    trace.cpu_op("both", 10, 20).cpu_op("both", 110, 30).cpu_op("first", 50, 5).cpu_op("outside", 300, 5)
    section = run(Operators(), trace, steps="2")
    table = section.table().set_index("name")
    assert list(table.index) == ["both"]
    assert table.loc["both", ["count", "total"]].tolist() == [1, 30 * US]
    assert run(Operators(), trace).table()["count"].sum() == 4


def test_a_window_without_operators(run):
    """Leaves an empty table and no facts, not a failure."""
    trace = TraceBuilder(0).step(1, 0, 100).step(2, 100, 100).cpu_op("first", 50, 5)
    section = run(Operators(), trace, steps="2")
    assert section.status is Status.OK
    assert section.table().empty


def test_cut_to_the_largest(run, monkeypatch):
    """Beyond so many names a note says so; of several ranks, that sums miss what one of them has cut."""
    monkeypatch.setattr("htareport.analyses.host.operators._MAX_NAMES", 500)
    trace = TraceBuilder(0)
    for number in range(510):
        trace.cpu_op(f"op{number}", 1000 * number, 1 + number)
    section = run(Operators(), trace)
    assert len(section.table()) == 500
    assert section.table()["self"].min() == 11 * US
    assert section.notes == ("The table by operator holds the 500 rows of largest self time; there are more.",)
    section = run(Operators(), trace, TraceBuilder(1).cpu_op("op3", 0, 1000))
    assert section.table().set_index("name").loc["op3", "count"] == 1
    [note] = section.notes
    assert "1 of 2 ranks have more, and what they leave out is missing from the sums" in note


def test_chart(run):
    """The largest first, as in the table."""
    section = run(Operators(), nested())
    assert section.charts[0].frame["self"].tolist() == section.table()["self"].tolist()


def test_not_applicable_without_operators(run):
    """The reason says what to record."""
    section = run(Operators(), TraceBuilder(0).kernel("k", 0, 5))
    assert section.status is Status.NOT_APPLICABLE
    assert "ProfilerActivity.CPU" in section.reason
