"""Time that only all ranks together assign, rules that say nothing, and those told right behind another."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from builder import TraceBuilder

from htareport.rank.rank import Rank
from htareport.report.findings import Finding
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence
from htareport.run.runner import analyze

MS = 1_000_000


class _Whole(Rule):
    """Claims all of the step."""

    code, title, family = "X1", "Whole", Family.COMMUNICATION

    def look(self, rank: Rank) -> Evidence | None:
        return Evidence(claim=rank.windows)

    def tell(self, found: JobEvidence) -> Finding | None:
        return self.finding(found, "whole")


class _Part(_Whole):
    """Takes some of that on one rank."""

    code, reattributes_from = "X2", "X1"
    amount = 3 * MS

    def look(self, rank: Rank) -> Evidence | None:
        del rank
        return Evidence()

    def reattributed_ns(self, found: JobEvidence) -> Mapping[int, float]:
        del found
        return {1: self.amount}


class _Why(_Part):
    """Explains the part, without a claim."""

    code, reattributes_from, follows = "X3", "", "X2"


class _Other(_Whole):
    """Claims the first half."""

    code = "X4"

    def look(self, rank: Rank) -> Evidence | None:
        return Evidence(claim={lane: np.array([[w[0, 0], w.sum() // 2]]) for lane, w in rank.windows.items()})


class _Silent(_Whole):
    """Has looked, and then has nothing to say."""

    code = "X5"

    def tell(self, found: JobEvidence) -> Finding | None:
        del found
        return None


class _Failing(_Part):
    """Raises where it should say what it takes."""

    code = "X6"

    def reattributed_ns(self, found: JobEvidence) -> Mapping[int, float]:
        del found
        raise ValueError("no clocks")


@pytest.fixture
def findings(tmp_path):
    for rank in range(2):
        TraceBuilder(rank, 2).step(1, 0, 10_000).kernel("gemm", 0, 10_000).write(tmp_path / f"rank{rank}.json")
    return lambda *rules: analyze(tmp_path, analyses=[], rules=rules)["findings"]


def told(section):
    return {finding.code: (finding.saving_ns, finding.further_ns) for finding in section.findings}


def states(section):
    return dict(section.table("checked")[["code", "state"]].to_numpy().tolist())


def test_what_is_taken_is_left_out_there(findings):
    """Rank 0 keeps its 10 ms; on rank 1 3 ms of them are the other's."""
    assert told(findings(_Whole(), _Part())) == {"X1": (10 * MS, 10 * MS), "X2": (3 * MS, 3 * MS)}


def test_no_more_is_taken_than_there_is(findings, monkeypatch):
    monkeypatch.setattr(_Part, "amount", 30 * MS)
    assert told(findings(_Whole(), _Part()))["X2"] == (10 * MS, 10 * MS)


def test_taken_evenly_from_all_pieces(findings):
    """5 of 10 ms are claimed twice, so are 1.5 of the 3 ms; what is told before the other has 3.5 of these."""
    assert told(findings(_Whole(), _Part(), _Other()))["X4"] == (5 * MS, 1.5 * MS)
    section = findings(_Part(), _Other(), _Whole())
    assert told(section)["X2"] == (3 * MS, 1.5 * MS)
    assert any("at most 10.0 ms per step (100 %)" in note.replace("\u202f", " ") for note in section.notes)


def test_nothing_to_take_from(findings):
    """Without the other rule there is no time, and so nothing that is worth saying."""
    assert told(findings(_Part())) == {"X2": (None, None)}


def test_an_explanation_is_nested_under_what_it_explains(findings):
    found = findings(_Why(), _Whole(), _Other(), _Part()).findings
    assert [(finding.code, finding.nested_under) for finding in found] == [
        ("X1", None), ("X4", None), ("X2", None), ("X3", 2),
    ]  # fmt: skip
    assert list(told(findings(_Why(), _Whole()))) == ["X1", "X3"]


def test_nothing_to_say(findings):
    section = findings(_Silent(), _Part())
    assert list(told(section)) == ["X2"]
    assert states(section) == {"X5": "fine", "X2": "found"}


def test_a_rule_that_fails_in_taking(findings):
    section = findings(_Whole(), _Failing())
    assert told(section) == {"X1": (10 * MS, 10 * MS)}
    assert states(section)["X6"] == "failed"
    assert any("Rule X6 failed: ValueError: no clocks" in note for note in section.notes)
