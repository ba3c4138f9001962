"""`htareport explain`."""

from __future__ import annotations

import pytest

from htareport.analyses import analysis_classes


def test_list_has_one_line_for_each(cli):
    ran = cli("explain")
    assert ran.status == 0
    lines = [line for line in ran.out.splitlines() if line.startswith("  ")]
    assert [line.split()[0] for line in lines] == list(analysis_classes())


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
