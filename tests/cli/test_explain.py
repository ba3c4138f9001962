"""`htareport explain`."""

from __future__ import annotations

import re

import pytest

from htareport.analyses import analysis_classes
from htareport.compare.topics import METRICS, TITLES
from htareport.rules import rule_classes

RULES = rule_classes()


def test_list_has_one_line_for_each(cli):
    """Analyses by chapter, then findings by family, then what is said of two runs."""
    ran = cli("explain")
    assert ran.status == 0
    lines = [line for line in ran.out.splitlines() if line.startswith("  ")]
    assert [line.split()[0] for line in lines] == [*analysis_classes(), "findings", *RULES, *TITLES]
    titles = [each.title for each in analysis_classes().values()]
    titles += ["Findings", *(each.title for each in RULES.values()), *TITLES.values()]
    for line, title in zip(lines, titles, strict=True):
        assert line.split(maxsplit=1)[1].startswith(f"{title} ")
    for family in {each.family for each in RULES.values()}:
        assert f"Findings: {family}" in ran.out.splitlines()


@pytest.mark.parametrize("code", RULES)
def test_rules(cli, code):
    """By code in any case and by title: when it speaks, what to do, thresholds with their defaults, needs."""
    rule, ran = RULES[code], cli("explain", code)
    assert ran.status == 0
    assert ran.out.startswith(f"{rule.title} ({code}), a finding about: {rule.family}\n")
    lines, text = ran.out.splitlines(), " ".join(ran.out.split())
    for wanted in ("When it speaks", "What to do", "How to verify"):
        assert wanted in lines
    for name, default in rule.options().items():
        assert f"--set {code}.{name}={default}" in text
    for capability in rule.requires:
        assert f"{capability.name}: " in text
    assert f'--fail-on "finding: {code}"' in text
    assert not [line for line in lines if "`" in line or re.search(r"(?<!\w)\*\w", line)]
    assert cli("explain", code.lower()).out == ran.out


def test_thresholds_have_their_value_in_the_text(cli):
    assert "for at least least (0.05) of the step" in " ".join(cli("explain", "H14").out.split())


def test_findings(cli):
    """As the report tells how they are made; by title too."""
    ran = cli("explain", "findings")
    assert "its saving is the difference of the two" in " ".join(ran.out.split())
    assert cli("explain", "Findings").out == ran.out


def test_titles_of_rules(cli):
    assert cli("explain", "the device waits for the DATA loader").out == cli("explain", "H14").out


def test_a_slip_in_a_code(cli):
    ran = cli("explain", "H999")
    assert (ran.status, ran.out) == (2, "")
    assert "nothing is called 'H999'" in ran.err


def test_gates(cli):
    """The grammar, and every metric; each of the other sections of a comparison by name and title."""
    told = cli("explain", "gates").out
    assert 'limit  = ["+" | "-"] number [unit]' in told
    assert set(METRICS) <= set(re.findall(r"\w+", told))
    for name, title in TITLES.items():
        assert cli("explain", name).out == cli("explain", title.upper()).out


def test_a_slip_is_helped(cli):
    ran = cli("explain", "gate")
    assert (ran.status, ran.out) == (2, "")
    assert "did you mean gates?" in ran.err


@pytest.mark.parametrize("title", ["Idle time by cause", "idle TIME  by cause", "IDLE_TIME"])
def test_by_title(cli, title):
    """As other texts call it."""
    ran = cli("explain", title)
    assert (ran.status, ran.out) == (0, cli("explain", "idle_time").out)


@pytest.mark.parametrize("name", analysis_classes())
def test_texts_fit_the_terminal_and_have_no_marks(cli, name, monkeypatch):
    """Items of lists too, which go on under their first word."""
    monkeypatch.setenv("COLUMNS", "60")
    lines = cli("explain", name).out.splitlines()
    assert not [line for line in lines if "`" in line or re.search(r"(?<!\w)\*\w", line)]
    advice = lines[lines.index("What to do") + 1 :]
    advice = advice[: advice.index("")]
    assert advice[0].startswith("- ")
    assert {line[:2] for line in advice} <= {"- ", "  "}
    assert all(len(line) <= 60 or " " not in line[2:] for line in advice)  # A long name stays whole.
    assert sum(line.startswith("- ") for line in advice) == analysis_classes()[name].help().count("\n- ")


def test_terms_and_titles_are_in_quotes(cli):
    text = " ".join(cli("explain", "timeline").out.split())
    assert 'the GPU is idle. See "Idle time by cause".' in text
    assert "The options ranks, steps and streams choose others" in text


@pytest.mark.parametrize("name", analysis_classes())
def test_one_shows_all_definitions(cli, name):
    ran = cli("explain", name)
    analysis = analysis_classes()[name]
    assert ran.status == 0
    text = " ".join(ran.out.split())
    for wanted in (analysis.title, "How it is computed", "What to do"):
        assert wanted in text
    for option, default in analysis.options().items():
        assert f"--set {name}.{option}={default}" in text
    for table in analysis.tables:
        for column in table.columns:
            assert " ".join(f"{column.label} {column.help}".split()) in text


def test_ranges_of_options(cli):
    out = cli("explain", "kernel_breakdown").out
    assert "num_kernels=10   (at least 1)" in out
    assert "duration_ratio=0.8   (above 0, at most 1)" in out


def test_unknown(cli):
    ran = cli("explain", "temporal_breakdwn")
    assert ran.status == 2
    assert "did you mean temporal_breakdown?" in ran.err
