"""The notebook-style example runs from its first cell to its last."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # It runs everything.

HTA = Path(__file__).parents[2] / "examples" / "hta"
LINES = (HTA / "walkthrough.py").read_text("utf-8")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """What the script defines, and what it prints."""
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        patch.setattr(sys, "argv", ["walkthrough.py"])
        patch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("walkthrough")))
        return runpy.run_path(str(HTA / "walkthrough.py"), run_name="__main__"), out.getvalue()


def test_it_runs(ran):
    """The rank that is late is named, the step that waits stands out, files are written."""
    found, out = ran
    assert found["analyzer"].get_potential_stragglers(num_candidates=1) == [2]
    assert re.search(r"== If nccl\S+ took half the time\n74936 → 7\d{4} µs", out)
    assert sorted(path.name for path in found["OUTPUT"].rglob("*") if path.is_file()) == [
        "overlaid_critical_path_rank0.pt.trace.json.gz", "rank0.pt.trace_with_counters.json.gz", "report.html",
    ]  # fmt: skip


def test_it_is_in_percent_format():
    """Cells of code, and of text before them; every call that shows something says what."""
    cells = re.findall(r"^# %%( \[markdown\])?$", LINES, re.MULTILINE)
    assert len(cells) > 15
    assert cells.count(" [markdown]") > 5


def test_values_show_themselves(ran):
    """Reports, sections and critical paths have HTML of their own; frames have pandas's."""
    found, _ = ran
    for value in (found["report"], found["report"]["critical_path"], found["graph"], found["compared"]):
        assert "<table" in value._repr_html_()
    assert repr(found["analyzer"]) == "TraceAnalysis('traces', ranks=[0, 1, 2, 3])"


def test_every_section_shows_itself(ran):
    """Whatever came of it."""
    for section in ran[0]["report"].sections:
        assert section.title.split(",")[0] in section._repr_html_()


def test_links_of_the_page_lead_to_files():
    for target in re.findall(r"\]\((?!http)(.*?)\)", (HTA / "README.md").read_text("utf-8")):
        assert (HTA / target).is_file(), target
