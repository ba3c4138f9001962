"""In which order findings are told, what is held back, and what is for information only."""

from __future__ import annotations

import numpy as np
import pytest
from builder import TraceBuilder

from htareport.findings import Finding, Severity
from htareport.rules.base import Evidence, Family, Found, Rule
from htareport.rules.rank import Rank
from htareport.runner import analyze


class _Idle(Rule):
    """Claims all idle time."""

    code, title, family, about_idle = "X1", "Idle", Family.HOST, True

    def look(self, rank: Rank) -> Evidence | None:
        return Evidence(rank.idle)

    def tell(self, found: Found) -> Finding | None:
        return self.finding(found, "idle", evidence="It is.")


class _Busy(_Idle):
    """Claims half of the busy time."""

    code, family, about_idle = "X2", Family.COMPUTE, False

    def look(self, rank: Rank) -> Evidence | None:
        return Evidence({lane: np.array([[busy[0, 0], busy.sum() // 2]]) for lane, busy in rank.busy().items()})


class _Remark(_Idle):
    """Something about the trace, on one rank."""

    code, family, about_idle = "X3", Family.QUALITY, False

    def __init__(self, on: int, severity: Severity, *, unreliable: bool = False) -> None:
        self.on, self.severity, self.unreliable = on, severity, unreliable

    def look(self, rank: Rank) -> Evidence | None:
        return Evidence(numbers={"unreliable": self.unreliable}) if rank.trace.rank == self.on else None

    def tell(self, found: Found) -> Finding | None:
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
