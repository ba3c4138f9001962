"""The walks of CONTRIBUTING, followed to the letter in a copy, through the contract tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^ *```(python|diff) (\S+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
WALKS = {
    "An analysis": ["tests/test_analyses_contract.py", "-k", "kernel_count"],
    "A rule": ["tests/rules/test_every_rule.py", "-k", "C99 or tiny_kernels"],
    "An output format": ["tests/render/test_write.py", "-k", "txt"],
    "A kernel class": ["tests/trace/test_classes.py"],
    "A device": ["tests/test_devices.py"],
    "A threshold": ["tests/rules/test_every_rule.py", "-k", "H24"],
    "A slip of trace writers": ["tests/trace/test_slips.py"],
}


def walk(title: str) -> str:
    """The text of one walk."""
    return (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition(f"\n### {title}\n")[2].partition("\n##")[0]


def follow(steps: str, folder: Path) -> None:
    """Write the files of a walk, and change the lines that it changes."""
    for kind, name, block in BLOCK.findall(steps):
        path, text = folder / name, textwrap.dedent(block)
        if kind == "python":
            assert not path.exists()
            path.write_text(text, "utf-8")
            continue
        old, new = ("\n".join(line[1:] for line in text.splitlines() if line[0] == sign) for sign in "-+")
        content = path.read_text("utf-8")
        assert content.count(old) == 1, f"{name} has no line {old!r}"
        path.write_text(content.replace(old, new), "utf-8")


def test_all_walks_are_followed():
    titles = re.findall(r"^### (.*)$", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE)
    assert titles == list(WALKS)


SLOW = {"An analysis"}  # All contract tests of analyses run over many traces.


@pytest.mark.parametrize("title", [pytest.param(t, marks=pytest.mark.slow if t in SLOW else ()) for t in WALKS])
def test_walk(title, tmp_path):
    """Its contract tests pass, and there are some."""
    for name in ("htareport", "templates", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    follow(walk(title), tmp_path)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *WALKS[title]]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]  # 5 if no test was chosen.
