"""In which order findings are told, what is held back, and what is for information only."""

from __future__ import annotations

import numpy as np
import pytest
from builder import TraceBuilder

from htareport.rank.rank import Rank
from htareport.report.findings import Finding, Severity
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence
from htareport.run.runner import analyze


class _Idle(Rule):
    """Claims all idle time."""

    code, title, family, about_idle = "X1", "Idle", Family.HOST, True

    def look(self, rank: Rank) -> Evidence | None:
        return Evidence(claim=rank.idle)

    def tell(self, found: JobEvidence) -> Finding | None:
        return self.finding(found, "idle", evidence="It is.")


class _Busy(_Idle):
    """Claims half of the busy time."""

    code, family, about_idle = "X2", Family.COMPUTE, False

    def look(self, rank: Rank) -> Evidence | None:
        return Evidence(claim={lane: np.array([[busy[0, 0], busy.sum() // 2]]) for lane, busy in rank.busy().items()})


class _Remark(_Idle):
    """Something about the trace, on one rank."""

    code, family, about_idle = "X3", Family.QUALITY, False

    def __init__(self, on: int, severity: Severity, *, unreliable: bool = False) -> None:
        self.on, self.severity, self.unreliable = on, severity, unreliable

    def look(self, rank: Rank) -> Evidence | None:
        return Evidence(is_unreliable=self.unreliable) if rank.rank == self.on else None

    def tell(self, found: JobEvidence) -> Finding | None:
        return self.finding(found, "remark", severity=self.severity)


@pytest.fixture
def tell(tmp_path):
    """Write a rank for each number of busy µs in a step of 1000, and return the section of findings."""

    def section(busy, *rules):
        for rank, length in enumerate(busy):
            trace = TraceBuilder(rank, len(busy)).step(1, 0, 1000).kernel("a", 0, length, launch=(0, 1))
            trace.write(tmp_path / f"rank{rank}.json")
        return analyze(tmp_path, analyses=[], rules=rules)["findings"]

    return section


def codes(section):
    return [finding.code for finding in section.findings]


def test_a_remark_about_the_trace_comes_last_and_a_serious_one_first(tell):
    assert codes(tell([500], _Idle(), _Remark(0, Severity.LOW))) == ["X1", "X3"]
    assert codes(tell([500], _Idle(), _Remark(0, Severity.MEDIUM))) == ["X3", "X1"]


def test_idle_time_of_an_unreliable_rank_is_held_back(tell):
    """Rank 1 is idle for longer, but its trace is wrong: what is said is rank 0's."""
    section = tell([900, 200], _Idle(), _Remark(1, Severity.MEDIUM, unreliable=True))
    assert [(each.code, each.saving_ns) for each in section.findings] == [("X3", None), ("X1", 100_000)]
    assert section.notes[0].startswith("Findings about idle time of rank 1 are held back")
    assert "100\u202fµs per step" in section.notes[1]


def test_where_every_rank_is_unreliable_nothing_is_said_of_idle_time(tell):
    section = tell([200], _Idle(), _Busy(), _Remark(0, Severity.MEDIUM, unreliable=True))
    assert codes(section) == ["X3", "X2"]
    assert section.notes[0].startswith("Findings about idle time are held back")
    states = section.table("checked").set_index("code")["state"].to_dict()
    assert states == {"X1": "held back", "X2": "found", "X3": "found"}


def test_the_host_of_busy_devices_is_for_information(tell):
    """Idle for 90 of 1000 µs, 9 %: told last and low, although it is 9 % of the step. Half of 910 µs is more."""
    section = tell([910], _Idle(), _Busy())
    assert [(each.code, each.severity) for each in section.findings] == [("X2", "high"), ("X1", "low")]
    assert (
        section.findings[1].evidence == "It is. For information: the device is idle for only 9.00\u202f% of the time."
    )
    assert section.findings[1].saving_ns == 90_000


def test_one_rank_that_is_idle_makes_it_more_than_information(tell):
    section = tell([910, 890], _Idle())
    assert [(each.code, each.severity, each.evidence) for each in section.findings] == [("X1", "high", "It is.")]


class _General(_Idle):
    """What is left of idle time."""

    code, is_general = "X4", True


class _Note(_Remark):
    """Something about compute that saves nothing by itself."""

    code, family = "X5", Family.COMPUTE


def test_what_saves_nothing_comes_behind_what_does_unless_it_is_grave(tell):
    assert codes(tell([500], _General(), _Note(0, Severity.LOW))) == ["X4", "X5"]
    assert codes(tell([500], _General(), _Note(0, Severity.MEDIUM))) == ["X5", "X4"]


class _Part(_Idle):
    """Claims this share of each idle interval."""

    code = "X5"

    def __init__(self, share: float) -> None:
        self.share = share

    def look(self, rank: Rank) -> Evidence | None:
        claims = {lane: idle.copy() for lane, idle in rank.idle.items()}
        for claim in claims.values():
            claim[:, 1] = claim[:, 0] + (self.share * (claim[:, 1] - claim[:, 0])).astype(np.int64)
        return Evidence(claim=claims)


@pytest.mark.parametrize(("share", "severity"), [(0, "high"), (0.5, "high"), (0.7, "high")])
def test_what_is_general_and_adds_enough_is_told(tell, share, severity):
    """Idle for 160 of 1000 µs; at least a quarter of that is its own."""
    told = {finding.code: finding for finding in tell([840], _General(), _Part(share)).findings}
    assert (told["X4"].severity, told["X4"].saving_ns) == (severity, 160_000)
    assert told["X4"].further_ns == pytest.approx(160_000 * (1 - share))


def test_what_is_general_and_adds_little_is_not_told(tell):
    section = tell([500], _General(), _Part(0.9))
    assert codes(section) == ["X5"]
    states = section.table("checked").set_index("code")["state"].to_dict()
    assert states == {"X4": "too little by itself", "X5": "found"}


class _Claim(_Idle):
    """Claims µs of its rank from the step's start, by rank; what it says may be of too little."""

    family, about_idle = Family.COMPUTE, False

    def __init__(self, code: str, *pairs: tuple[int, int], enables: bool = False, silent: bool = False) -> None:
        self.code, self.pairs, self.enables, self.silent = code, pairs, enables, silent

    def look(self, rank: Rank) -> Evidence | None:
        start, end = self.pairs[rank.rank]
        zero = int(rank.windows[rank.lanes[0]][0, 0])
        return Evidence(claim={rank.lanes[0]: zero + 1000 * np.array([[start, end]])} if end > start else {})

    def tell(self, found: JobEvidence) -> Finding | None:
        return None if self.silent else self.finding(found, self.code)


def order(section):
    return [(each.code, each.saving_ns / 1000, each.further_ns / 1000) for each in section.findings]


def test_what_fills_the_time_comes_before_what_let_it_arise(tell):
    """A wait lets the device be empty for 300 µs, of which loading fills 260: 40 are left of the wait, not 300."""
    section = tell([500], _Claim("X1", (500, 800), enables=True), _Claim("X2", (540, 800)), _Claim("X3", (0, 50)))
    assert order(section) == [("X2", 260, 260), ("X3", 50, 50), ("X1", 300, 40)]
    assert [finding.nested_under for finding in section.findings] == [None, None, 0]
    assert "at most 350\u202fµs per step" in section.notes[0]


def test_a_wait_of_whose_time_a_part_is_filled_by_something_else(tell):
    """200 of its 300 µs are its own: it comes first, and yet the loading is not nested under it."""
    section = tell([500], _Claim("X1", (500, 800), enables=True), _Claim("X2", (700, 800)))
    assert order(section) == [("X1", 300, 300), ("X2", 100, 0)]
    assert [finding.nested_under for finding in section.findings] == [None, None]


@pytest.mark.parametrize("other", [_Claim("X2", (796, 800)), _Claim("X2", (500, 800), silent=True), _General()])
def test_what_is_not_told_takes_no_time_from_a_wait(tell, other):
    """4 of 1000 µs are too little; what says nothing, or only what is left, is no cause either."""
    found = {each.code: each for each in tell([500], _Claim("X1", (500, 800), enables=True), other).findings}
    assert (found["X1"].saving_ns, found["X1"].further_ns) == (300_000, 300_000)


def test_two_waits_for_the_same_time(tell):
    """Neither is the cause of the other: the first in the list of rules has it."""
    rules = [_Claim(code, (500, 800), enables=True) for code in ("X1", "X2")]
    assert order(tell([500], *rules)) == [("X1", 300, 300), ("X2", 300, 0)]


def test_what_one_rank_alone_does_is_not_outweighed_by_what_many_wait_for(tell):
    """Rank 1 loads for 200 µs, the others wait for 190: the longest on a rank counts, not the sum over ranks."""
    waits = _Claim("X1", (700, 890), (0, 0), (700, 890), (700, 890))
    section = tell([500] * 4, waits, _Claim("X2", (0, 0), (700, 900), (0, 0), (0, 0)))
    assert order(section) == [("X2", 200, 200), ("X1", 190, 190)]
