"""`htareport explain`."""

from __future__ import annotations

import re

import pytest

from htareport.analyses import analysis_classes
from htareport.comparison.topics import METRICS, TITLES


def test_list_has_one_line_for_each(cli):
    ran = cli("explain")
    assert ran.status == 0
    lines = [line for line in ran.out.splitlines() if line.startswith("  ")]
    assert [line.split()[0] for line in lines] == [*analysis_classes(), *TITLES]
    titles = [*(each.title for each in analysis_classes().values()), *TITLES.values()]
    for line, title in zip(lines, titles, strict=True):
        assert line.split(maxsplit=1)[1].startswith(f"{title} ")


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
