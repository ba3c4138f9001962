"""The example of an analysis of one's own runs as the README says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def own_analysis(monkeypatch):
    pytest.importorskip("htareport.run.runner")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delitem(sys.modules, "own_analysis", raising=False)
    import own_analysis

    return own_analysis


def test_it_prints_its_table_and_writes_a_report(own_analysis, tmp_path, capsys):
    """The table has the asked-for calls of each rank, and the report opens."""
    own_analysis.main([str(EXAMPLES / "traces"), "-o", str(tmp_path / "own.html"), "--count", "2"])
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if "nvjet" in line]) == 4 * 2
    assert "Longest kernel calls" in (tmp_path / "own.html").read_text("utf-8")


def test_it_measures_what_it_says(own_analysis):
    """Rank 2, which is slow, has the longest call of all; each rank's calls are in order."""
    analysis = own_analysis.LongestCalls(count=3)
    table = own_analysis.analyze(EXAMPLES / "traces", analyses=[analysis])[analysis.name].table()
    assert table.loc[table["duration"].idxmax(), "rank"] == 2
    assert table.groupby("rank")["duration"].apply(lambda calls: calls.is_monotonic_decreasing).all()
    assert table["start"].between(0, 400_000_000).all()
