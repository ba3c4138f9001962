"""Gates on findings: what can be written, what crosses them, and what cannot be told."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import pandas as pd
import pytest

from htareport.cli import main
from htareport.compare import compare, judged
from htareport.compare.finding_gates import check_finding
from htareport.compare.gates import parse
from htareport.errors import UsageError
from htareport.report import Column, Report, Section, Status, Table, TableSpec, key
from htareport.report.findings import Finding, Severity

SPEC = TableSpec("checked", "What was looked for", (key("code", "Rule"), Column("state", "Outcome")))
STATES = {"H14": "found", "H4": "fine", "N1": "not checked: one rank", "X9": "failed"}


def report(*severities: Severity, name: str = "run") -> Report:
    """A report with an H14 of each severity."""
    found = tuple(Finding("H14", severity, f"Slow <b>loader</b> {i}") for i, severity in enumerate(severities))
    states = STATES if found else STATES | {"H14": "fine"}
    table = Table(SPEC, pd.DataFrame({"code": list(states), "state": list(states.values())}))
    return Report(name, "It is slow.", sections=(Section("findings", "Findings", "Findings", findings=found,
                                                         tables=(table,)),))  # fmt: skip


def outcome(gate: str, of: Report, **options):
    return judged(of, [parse(gate)], **options)[1][0]


@pytest.mark.parametrize(
    ("gate", "severities", "state"),
    [
        ("finding: high", "hm", "crossed"),
        ("finding: high", "ml", "passed"),
        ("finding: medium", "ml", "crossed"),
        ("finding: medium", "h", "crossed"),
        ("finding:low", "l", "crossed"),
        ("finding: low", "", "passed"),
        (" FINDING : High ", "h", "crossed"),
        ("finding: H14", "l", "crossed"),
        ("finding: h14", "l", "crossed"),
        ("finding: H14", "", "passed"),
        ("finding: H4", "hml", "passed"),
        ("finding: N1", "h", "inconclusive"),
        ("finding: X9", "h", "inconclusive"),
    ],
)
def test_outcome(gate, severities, state):
    by_letter = {str(each)[0]: each for each in Severity}
    assert outcome(gate, report(*map(by_letter.get, severities))).state == state


def test_the_outcome_names_what_was_found():
    """Codes and titles of the first three, and how many more."""
    verdict = outcome("finding: low", report(*[Severity.LOW] * 5))
    assert verdict.reason == (
        "H14: Slow <b>loader</b> 0; H14: Slow <b>loader</b> 1; H14: Slow <b>loader</b> 2; and 2 more"
    )
    assert (verdict.shown, verdict.value, verdict.new) == ("H14, H14, H14, …", 5, 5)
    assert outcome("finding: N1", report()).reason == "not checked: one rank"


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        (Report("old"), "no findings were looked for"),
        (
            Report("r", sections=(Section("findings", "F", "F", status=Status.NOT_APPLICABLE, reason="no rules"),)),
            "no rules",
        ),
    ],
)
def test_reports_without_findings_are_inconclusive(of, reason):
    """They have not passed: nobody looked. `--fail-on-inconclusive` fails them."""
    for gate in ("finding: high", "finding: H14"):
        verdict = outcome(gate, of, fail_on_inconclusive=True)
        assert (verdict.state, verdict.reason, verdict.fails) == ("inconclusive", reason, True)


@pytest.mark.parametrize("gate", ["finding:", "finding: ", "finding: high medium", "finding: 14", "finding: <b>"])
def test_what_is_no_gate(gate):
    with pytest.raises(UsageError, match=r"a severity \(low, medium, high\) or a rule's code"):
        parse(gate)


def test_unknown_names_are_told_with_what_there_is():
    with pytest.raises(UsageError, match=r"no severity or rule 'hihg': did you mean high\? \(there are: low, .*H14"):
        outcome("finding: hihg", report())
    with pytest.raises(UsageError, match=r"'h99': did you mean H9\? \(there are: low, medium, high, H9\)"):
        check_finding(parse("finding: h99"), ["H9"])


def test_of_two_runs_those_of_the_new_one_count():
    base, new = report(Severity.HIGH, name="base"), report(Severity.LOW, name="new")
    assert outcome("finding: high", compare(base, new), base=base).state == "passed"
    assert outcome("finding: high", compare(new, base), base=new).state == "crossed"


def test_saved_reports_on_the_command_line(tmp_path, capsys):
    """Exit 1, a failed test in the JUnit file, and a table in the report; names are inert."""
    path, xml, again = tmp_path / "run.json", tmp_path / "gates.xml", tmp_path / "again.json"
    report(Severity.HIGH).write(path)
    gates = ("--fail-on", "finding: high", "--fail-on", "finding: H4")
    assert main(["report", str(path), "-o", str(xml), "-o", str(again), *gates]) == 1
    assert "gate crossed: finding: high: H14: Slow" in capsys.readouterr().err
    suite = ET.parse(xml).getroot()[0]  # noqa: S314  our own file
    assert [(case.get("name"), len(case.findall("failure"))) for case in suite.iter("testcase")] == [
        ("finding: high", 1), ("finding: H4", 0),
    ]  # fmt: skip
    made = Report.load(again)
    assert made["gates"].table()["state"].tolist() == ["crossed", "passed"]
    assert made.verdict == "Gate crossed (1 of 2): finding: high (H14). It is slow."
    assert main(["report", str(path), "-o", str(xml), "--fail-on", "finding: H4"]) == 0
    assert main(["diff", str(path), str(path), "-o", str(xml), "--fail-on", "finding: H14"]) == 1


def test_codes_are_checked_before_the_traces_are_read(tmp_path, capsys):
    """A rule of elsewhere is fine for a saved report: it may come from there."""
    assert main(["report", str(tmp_path / "none"), "--fail-on", "finding: H0"]) == 2
    assert "no severity or rule 'H0'" in capsys.readouterr().err
    path = tmp_path / "run.json"
    odd = report(Severity.HIGH)
    section = replace(odd["findings"], findings=(Finding("ACME1", Severity.LOW, "Odd"),))
    replace(odd, sections=(section,)).write(path)
    assert main(["report", str(path), "-o", str(tmp_path / "r.json"), "--fail-on", "finding: acme1"]) == 1
