"""What README, CONTRIBUTING and the help texts promise is so."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from htareport.analyses import analysis_classes
from htareport.cli import EPILOG, REPORT_EPILOG, parser
from htareport.cli.config import report_options
from htareport.rules import rule_classes

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
COMMAND = r"^ *(htareport (?:report|explain|validate|counters|critical-path).*?)(?:  .*)?$"
EXAMPLES = re.findall(COMMAND, README + EPILOG + REPORT_EPILOG, re.MULTILINE)


@pytest.mark.parametrize("example", dict.fromkeys(EXAMPLES))
def test_examples_are_valid(example):
    options = vars(parser().parse_args(shlex.split(example, comments=True)[1:]))
    read = report_options({name: options[name] for name in ("only", "set", "ranks") if options.get(name)})
    known = analysis_classes() | rule_classes()
    assert {*read.only} <= {*analysis_classes(), "findings"}
    for name, settings in read.set.items():
        known[name].configured(settings)
    if options["command"] == "explain":
        assert options["name"] in (None, *known)


def test_there_are_examples():
    assert len(EXAMPLES) > 10


def test_readme_names_every_analysis():
    table = README.partition("| section | question |")[2].partition("\n\n")[0]
    named = re.findall(r"^\| (.*?) \|", table, re.MULTILINE)[1:]
    assert sorted(named) == sorted(each.title for each in analysis_classes().values())


def test_links_lead_to_files():
    for text in (README, CONTRIBUTING):
        for target in re.findall(r"\]\((?!http)(.*?)\)", text):
            assert (ROOT / target).is_file(), target
