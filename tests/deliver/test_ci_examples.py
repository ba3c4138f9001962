"""The example files for CI are valid by the vendors' schemas, and call commands that exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from htareport.cli import parser
from htareport.compare.gates import parse

EXAMPLES = Path(__file__).parents[2] / "examples" / "ci"
SCHEMAS = {"github-actions.yml": "vendor.github-workflows", "gitlab-ci.yml": "vendor.gitlab-ci"}


@pytest.mark.skipif(not find_spec("check_jsonschema"), reason="needs check-jsonschema")
@pytest.mark.parametrize("name", SCHEMAS)
def test_schema(name):
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", SCHEMAS[name], EXAMPLES / name]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("name", SCHEMAS)
def test_commands(name):
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    found = re.findall(r"(?:run: |- |^ +)(htareport .*?)(?: \|\| .*)?$", text, re.MULTILINE)
    assert {command.split()[1] for command in found} == {"report", "diff", "comment"}
    for command in found:
        options = parser().parse_args(shlex.split(command)[1:])
        for gate in getattr(options, "fail_on", None) or ():
            parse(gate)


def test_every_example_is_checked():
    assert {path.name for path in EXAMPLES.iterdir()} == set(SCHEMAS)
