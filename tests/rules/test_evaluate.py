"""Savings: claims cut a rank's steps into pieces, so that no time counts twice however many rules claim it."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import numpy as np
import pytest
from builder import TraceBuilder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from htareport.algorithms.intervals import union
from htareport.rank.capability import Capability
from htareport.rank.rank import Rank
from htareport.report.findings import Finding, Severity, Span
from htareport.rules import rule_classes
from htareport.rules.engine.base import LOW, Family, Rule
from htareport.rules.engine.context import context_of
from htareport.rules.engine.evaluate import RankEvidence, evaluate_rank
from htareport.rules.engine.evidence import Evidence, JobEvidence
from htareport.rules.engine.findings import tell
from htareport.run.runner import analyze
from htareport.trace import RankTrace

STEP, STEPS = 1000, 2  # µs
Pairs = Sequence[tuple[int, int]]


class _Claims(Rule):
    """Claims intervals in µs from the first step's start, on some devices of some ranks."""

    title, family = "Test", Family.COMPUTE

    def __init__(self, code: str, *claims: Pairs, ranks: Sequence[int] = (), general: bool = False) -> None:
        self.code, self.claims, self.on, self.is_general = code, claims, ranks, general

    def look(self, rank: Rank) -> Evidence | None:
        if self.on and rank.rank not in self.on:
            return None
        zero = min(int(window[0, 0]) for window in rank.windows.values())
        sets = {}
        for lane, pairs in zip(rank.lanes, self.claims, strict=False):
            edges = zero + 1000 * np.array(pairs, np.int64).reshape(-1, 2)
            sets[lane] = union(edges[:, 0], edges[:, 1])
        return Evidence(claim=sets, spans=rank.spans(sets))

    def tell(self, found: JobEvidence) -> Finding | None:
        return self.finding(found, self.code, assumption="It works.")


class _Fails(_Claims):
    """Raises, in the worker or in the parent."""

    def __init__(self, code: str, *, looking: bool) -> None:
        super().__init__(code, [(0, 500)])
        self.looking = looking

    def look(self, rank: Rank) -> Evidence | None:
        if self.looking and rank.rank == 0:
            raise ValueError("cannot look")
        return super().look(rank)

    def tell(self, found: JobEvidence) -> Finding | None:
        if not self.looking:
            raise ValueError("cannot tell")
        return super().tell(found)


class _Needs(_Claims):
    """Needs what a trace lacks."""

    requires = frozenset({Capability.MEMORY})


def trace(rank: int = 0, ranks: int = 1, *, devices: int = 1, steps: bool = True, start: int = 0) -> TraceBuilder:
    """Two steps of 1000 µs; each device has an event at either end of each."""
    made = TraceBuilder(rank, ranks, devices=devices)
    for step in range(STEPS):
        at = start + STEP * step
        if steps:
            made.step(step, at, STEP)
        for device in range(devices):
            made.kernel("a", at, 1, launch=(at, 1), device=device)
            made.kernel("b", at + STEP - 1, 1, launch=(at, 1), device=device)
    return made


@pytest.fixture
def told(tmp_path):
    """Return the section of some rules on some traces."""

    def section(rules, *traces):
        for number, each in enumerate(traces or (trace(),)):
            each.write(tmp_path / f"{number}.json")
        return analyze(tmp_path, analyses=[], rules=rules)["findings"]

    return section


def savings(section):
    """Saving and what of it is further, in µs per step, by code in order."""
    return [(each.code, each.saving_ns / 1000, each.further_ns / 1000) for each in section.findings]


def outcomes(section):
    return dict(section.table("checked")[["code", "state"]].itertuples(index=False))


def test_what_adds_most_comes_first(told):
    """Of a step of 1000 µs, A claims 0 to 600, B 0 to 500 and C 500 to 900: after A, C adds 300 and B nothing."""
    both = [(start + STEP * step, end + STEP * step) for step in range(STEPS) for start, end in [(0, 600)]]
    section = told([
        _Claims("C1", [(0, 500), (1000, 1500)]), _Claims("C2", [(500, 900), (1500, 1900)]), _Claims("C3", both),
    ])  # fmt: skip
    assert savings(section) == [("C3", 600, 600), ("C2", 400, 300), ("C1", 500, 0)]
    assert section.notes == ("All findings together could save at most 900\u202fµs per step (90.0\u202f%).",)


def test_time_that_is_covered_already_is_another_way_to_it(told):
    """Low, whatever its saving, and nested; a finding of its own keeps its severity."""
    first, other = told([_Claims("C1", [(0, 600)]), _Claims("C2", [(0, 500)])]).findings
    assert (first.severity, first.nested_under) == (Severity.HIGH, None)
    assert (other.severity, other.saving_ns, other.further_ns, other.nested_under) == (Severity.LOW, 250_000, 0, 0)


class _SaysWhy(_Claims):
    """Says why of another finding, gravely."""

    follows = "C1"

    def tell(self, found: JobEvidence) -> Finding | None:
        return self.finding(found, "Why", severity=Severity.HIGH)


def test_a_reason_is_no_graver_than_what_it_is_for(told):
    """C1 saves 3 % of the step. What says why of it has no saving of its own, and is nested under it."""
    section = told([_Claims("C1", [(0, 60)]), _SaysWhy("C2", [])])
    assert [(each.code, each.severity) for each in section.findings] == [("C1", "medium"), ("C2", "low")]
    assert section.findings[1].nested_under == 0


def test_a_quarter_of_ones_own_is_enough(told):
    """C2 claims 500 µs in two steps; 126 of them are its own, then 124."""
    for own, severity in ((126, Severity.HIGH), (124, Severity.LOW)):
        section = told([_Claims("C1", [(0, 600)]), _Claims("C2", [(600 - 500 + own, 600 + own)])])
        assert [each.severity for each in section.findings] == [Severity.HIGH, severity]
        assert section.findings[1].further_ns == own * 500


@pytest.mark.parametrize(
    ("length", "severity"), [(100, "high"), (99, "medium"), (40, "medium"), (39, "low"), (10, "low")]
)
def test_severity_follows_the_share_of_the_step(told, length, severity):
    """Of 2000 µs: from 5 %, from 2 %, from 0.5 %."""
    finding = told([_Claims("C1", [(0, length)])]).findings[0]
    assert (finding.severity, finding.share) == (severity, pytest.approx(length / STEP / STEPS))
    assert (finding.low_ns, finding.is_per_step, finding.family) == (length * 250, True, "Compute")


def test_what_is_too_little_is_not_told(told):
    """9 of 2000 µs. A rule that claims nothing has something else to say, and is told."""
    section = told([_Claims("C1", [(0, 9)]), _Claims("C2", [])])
    assert [(each.code, each.saving_ns, each.share) for each in section.findings] == [("C2", None, None)]
    assert section.notes == ()
    assert outcomes(section) == {"C1": "too little by itself", "C2": "found"}


def test_claims_end_where_the_steps_do(told):
    """What lies before, behind and on a device that is not there saves nothing."""
    section = told([_Claims("C1", [(-500, 100), (1900, 9000)], [(0, 500)])])
    assert savings(section) == [("C1", 100, 100)]


def test_devices_and_ranks_are_not_added_up(told):
    """Mean over the devices of a rank, and of ranks the one where it is most; further likewise."""
    rules = [_Claims("C1", [(0, 800)], [(0, 400)]), _Claims("C2", [(0, 0)], [(300, 700)], ranks=[1])]
    section = told(rules, trace(0, 2, devices=2), trace(1, 2, devices=2))
    assert savings(section) == [("C1", 300, 300), ("C2", 100, 75)]
    assert [each.ranks for each in section.findings] == [(), (1,)]
    assert "375\u202fµs per step" in section.notes[0]


def test_without_steps_savings_are_of_all_that_was_recorded(told):
    section = told([_Claims("C1", [(0, 500)])], trace(steps=False))
    assert savings(section) == [("C1", 500, 500)]
    assert (section.findings[0].share, section.findings[0].is_per_step) == (0.25, False)
    assert section.notes == (
        "All findings together could save at most 500\u202fµs in all (25.0\u202f% of the time that devices recorded).",
    )


def test_places_count_from_the_first_event_of_the_run(told):
    """Longest first, at most five. Rank 1 begins 5000 µs behind rank 0."""
    rules = [_Claims("C1", [(at, at + 90 - at // 10) for at in range(0, 700, 100)], ranks=[1])]
    spans = told(rules, trace(0, 2), trace(1, 2, start=5000)).findings[0].spans
    assert spans == tuple(
        Span(1, 1000 * (5000 + at), 1000 * (5090 + at - at // 10), "", 0) for at in range(0, 500, 100)
    )


def test_a_rule_that_fails_costs_its_own_finding(told):
    """On the rank where it cannot look, and altogether where it cannot tell; both are said."""
    rules = [_Fails("C1", looking=True), _Fails("C2", looking=False), _Claims("C3", [(500, 900)])]
    section = told(rules, trace(0, 2), trace(1, 2))
    assert [(each.code, each.ranks) for each in section.findings] == [("C1", (1,)), ("C3", ())]
    assert set(section.notes[:2]) == {
        "Rule C1 failed: ValueError: cannot look", "Rule C2 failed: ValueError: cannot tell",
    }  # fmt: skip
    assert "450\u202fµs per step" in section.notes[2]
    assert outcomes(section)["C2"] == "failed"


def test_what_was_looked_for(told):
    """Whatever came out; what a trace lacks is told with what to do about it."""
    rules = [_Claims("C1", [(0, 500)]), _Claims("C2", [(0, 5)], ranks=[7]), _Needs("C3", [(0, 500)])]
    section = told(rules)
    assert outcomes(section) == {"C1": "found", "C2": "fine", "C3": f"not checked: {Capability.MEMORY.value}"}
    assert section.table("checked")["family"].unique().tolist() == ["Compute"]
    alone = told([_Needs("C3", [(0, 500)])])
    assert (alone.status, alone.reason) == ("not_applicable", "no rule could look at any rank")


def test_evidence_is_small_and_fit_to_be_sent(tmp_path):
    """The claims themselves stay in the worker."""
    path = trace().write(tmp_path / "0.json")
    pairs = [(at, at + 1) for at in range(0, 2000, 2)]
    found = evaluate_rank(RankTrace.load(0, path), [_Claims("C1", pairs), _Claims("C2", pairs[::2])])
    assert found.pieces == {("C1",): 250_000, ("C1", "C2"): 250_000}
    assert all(not evidence.claim for evidence in found.found.values())
    assert len(pickle.dumps(found)) < 2000


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("loaded")
    return [
        RankTrace.load(rank, trace(rank, 2, devices=2).write(folder / f"{rank}.json")) for rank in (0, 1)
    ]  # fmt: skip


EDGES = st.tuples(st.integers(-300, 2300), st.integers(1, 900)).map(lambda each: (each[0], sum(each)))
CLAIMS = st.lists(st.lists(EDGES, max_size=4), min_size=2, max_size=2)  # By device.


def covered(claims: Sequence[Sequence[Pairs]]) -> float:
    """µs per step that some claims cover, by marking each µs: mean over devices and steps."""
    marks = np.zeros((2, STEPS * STEP), bool)
    for claim in claims:
        for device, pairs in enumerate(claim):
            for start, end in pairs:
                marks[device, max(start, 0) : max(end, 0)] = True
    return float(marks.sum()) / 2 / STEPS


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(CLAIMS, min_size=1, max_size=4), st.lists(CLAIMS, min_size=4, max_size=4))
def test_no_time_counts_twice(loaded, first, second):
    """Whatever is claimed: a saving is no longer than its claim, and together they are no longer than the union.

    On one rank the parts that are further add up to just that union.
    """
    rules = [_Claims(f"C{i}", *claim, ranks=[0]) for i, claim in enumerate(first)]
    rules += [_Claims(f"M{i}", *claim, ranks=[1]) for i, claim in enumerate(second[: len(first)])]
    found = [evaluate_rank(rank, rules) for rank in loaded]
    claims = {rule.code: rule.claims for rule in rules}
    every = tell(found, rules, 0).findings
    assert every == tell(found[::-1], rules, 0).findings
    shown = [finding for finding in every if finding.saving_ns]
    for finding in shown:
        assert finding.saving_ns == pytest.approx(1000 * covered([claims[finding.code]]), abs=1)
        assert 0 <= finding.further_ns <= finding.saving_ns
        assert LOW <= finding.share <= 1
    for letter, rank in (("C", found[0]), ("M", found[1])):
        mine = [finding for finding in shown if finding.code.startswith(letter)]
        together = 1000 * covered([claims[finding.code] for finding in mine])
        assert sum(finding.further_ns for finding in mine) == pytest.approx(together, abs=len(mine) + 1)
        assert together <= rank.steps.frames()["steps"]["length"].median() == 1000 * STEP


def test_the_same_in_one_process_and_in_several(tmp_path, two_processes):
    """The bytes of the report, with all rules there are."""
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    for rank in range(2):
        made = trace(rank, 2).annotation(loader, 2, 900).annotation(loader, 1002, 900 + 50 * rank)
        made.write(tmp_path / f"{rank}.json")
    rules = [rule() for rule in rule_classes().values()]
    alone = analyze(tmp_path, analyses=[], rules=rules)
    assert analyze(tmp_path, analyses=[], rules=rules, executor=two_processes).to_json() == alone.to_json()
    assert alone["findings"].findings


def test_no_ranks_and_no_rules():
    """Nothing to say is no error."""
    assert tell([], [], 0).status == "not_applicable"
    assert tell([RankEvidence(0, checked=["C1"])], [_Claims("C1")], 0).findings == ()


class _Owns(_Claims):
    """Has the first device event for its own; or cannot say."""

    def own_events(self, rank):
        if self.is_general:
            raise ValueError("cannot say")
        return np.arange(len(rank.device_events)) == 0


def test_what_other_rules_have_for_their_own(tmp_path):
    """Only of rules that look as well; one that fails has nothing, and costs nobody else his finding."""
    read = RankTrace.load(0, trace().write(tmp_path / "rank0.json"))
    context = context_of(read)
    context.begin([_Owns("A"), _Owns("B", general=True), _Claims("C")])
    assert context.explained(read, "A", "B", "C", "D").tolist() == [True, False, False, False]
    assert not context.explained(read, "B", "C", "D").any()
    assert (context.rule("C").code, context.rule("D")) == ("C", None)
