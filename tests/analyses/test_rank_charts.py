"""Tables over very many ranks."""

from __future__ import annotations

import pandas as pd
import pytest
from builder import TraceBuilder

from htareport.report import Column, Mark, TableSpec, Unit, key, rank_charts
from htareport.report.rank_charts import table_of
from htareport.run import runner

SPEC = TableSpec("steps", "Steps", (key("rank", "Rank"), key("step", "Step"), Column("time", "Time", Unit.NANOSECONDS)))
FRAME = pd.DataFrame({"rank": [0, 0, 1, 1, 2, 2, 3, 3], "step": [4, 5] * 4, "time": [1, 2, 9, 9, 3, 4, 9, 9]})


def test_few_ranks_have_all_their_rows_in_their_order(monkeypatch):
    """The limit is that of few ranks."""
    monkeypatch.setattr(rank_charts, "MOST_ROWS_OF_MANY", 4)
    table = table_of(SPEC, FRAME, rank_charts.MOST_BARS)
    assert table.frame.equals(FRAME)
    assert not table.note


def test_few_ranks_with_very_many_rows_keep_their_order(monkeypatch):
    """Of eight rows there is room for six; a rank alone keeps all that it has."""
    monkeypatch.setattr(rank_charts, "MOST_ROWS", 6)
    table = table_of(SPEC, FRAME, 4)
    assert table.frame["rank"].tolist() == [1, 1, 2, 2, 3, 3]
    assert table.note == "Holds 3 of 4 ranks: those with the largest “Time”."
    alone = table_of(SPEC, FRAME.assign(rank=0, step=range(8)), 1)
    assert len(alone.frame) == len(FRAME)
    assert not alone.note


def test_of_many_ranks_the_slowest_come_first(monkeypatch):
    """The order of a frame that does not go by rank is its own."""
    monkeypatch.setattr(rank_charts, "MOST_ROWS_OF_MANY", 4)
    table = table_of(SPEC, FRAME, rank_charts.MOST_BARS + 1)
    assert table.frame["rank"].tolist() == [1, 1, 3, 3, 2, 2, 0, 0]
    assert list(table.frame) == list(FRAME)
    assert table.note == "The ranks with the largest “Time” come first."
    other = table_of(SPEC, FRAME[::-1], rank_charts.MOST_BARS + 1)
    assert other.frame["rank"].tolist() == FRAME["rank"].tolist()[::-1]


@pytest.mark.parametrize(("worst", "first"), [("", 1), ("lost", 0), ("count", 2)])
def test_the_worst_have_most_of_a_time_unless_the_analysis_names_a_column(worst, first):
    """A count that stands before it says less."""
    measures = (Column("count", "Count", Unit.COUNT), *(Column(n, n, Unit.NANOSECONDS) for n in ("time", "lost")))
    spec = TableSpec("ranks", "Ranks", (key("rank", "Rank"), *measures))
    frame = pd.DataFrame({"rank": [0, 1, 2], "count": [1, 1, 2], "time": [1, 9, 2], "lost": [5, 0, 1]})
    assert table_of(spec, frame, rank_charts.MOST_BARS + 1, worst).frame["rank"].iloc[0] == first


def test_of_very_many_ranks_the_slowest_come_first_and_the_others_are_counted(monkeypatch):
    """Ranks are whole or not there; of equal ones the lower comes first."""
    monkeypatch.setattr(rank_charts, "MOST_ROWS_OF_MANY", 6)
    table = table_of(SPEC, FRAME, rank_charts.MANY_RANKS + 1)
    assert table.frame["rank"].tolist() == [1, 1, 3, 3, 2, 2]
    assert table.frame["step"].tolist() == [4, 5] * 3
    assert table.note == "Holds 3 of 4 ranks: those with the largest “Time”."


def test_tables_without_ranks_stay_whole(monkeypatch):
    """They do not grow with the job."""
    monkeypatch.setattr(rank_charts, "MOST_ROWS_OF_MANY", 2)
    spec = TableSpec("steps", "Steps", (key("step", "Step"), Column("time", "Time", Unit.NANOSECONDS)))
    frame = pd.DataFrame({"step": [1, 2, 3], "time": [1, 2, 3]})
    assert len(table_of(spec, frame, 10_000).frame) == 3


def test_notes_and_tables_of_very_many_ranks_agree(monkeypatch, tmp_path):
    """Tables alone say which ranks they hold, and of how many; pictures are of all ranks."""
    monkeypatch.setattr(rank_charts, "MANY_RANKS", 3)
    monkeypatch.setattr(rank_charts, "MOST_BARS", 3)
    monkeypatch.setattr(rank_charts, "MOST_ROWS", 6)
    monkeypatch.setattr(rank_charts, "MOST_ROWS_OF_MANY", 4)
    for rank in range(4):
        trace = TraceBuilder(rank, 4)
        for step in range(2):
            trace.step(step, 100 * step, 100 + rank).kernel("gemm", 100 * step + 20, 30, launch=(100 * step, 5))
            trace.collective("ncclDevKernel_AllReduce", "allreduce", 100 * step + 60 + rank, 20).cpu_op(
                "aten::mm", 100 * step, 9
            )
        trace.write(tmp_path / f"rank{rank}.json")
    report = runner.analyze(tmp_path)
    cut = [(table, table.note) for each in report.sections for table in each.tables if table.note.startswith("Holds")]
    assert len(cut) >= 5
    for table, note in cut:
        assert note.startswith(f"Holds {table.frame['rank'].nunique()} of 4 ranks: ")
    assert not [note for each in report.sections for note in each.notes if " of 4 ranks: " in note]
    heatmap = next(chart for chart in report["step_time"].charts if chart.mark == Mark.HEATMAP)
    assert heatmap.frame["rank"].nunique() == 4
