"""Wheel and sdist hold what they should, and a wheel works on its own."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling")
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    return Path(next(WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])))


def test_wheel_holds_package_and_templates_only(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    templates = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("templates/**/*") if path.is_file()]
    assert {f"htareport/{name}" for name in templates} <= set(names)
    assert {"htareport/py.typed", "htareport/__main__.py", "htareport/cli/__init__.py"} <= set(names)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"htareport"}
    assert not [name for name in names if "__pycache__" in name]


def test_unpacked_wheel_finds_its_templates(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)  # noqa: S202  Ours.
    code = "from htareport.render.environment import templates_dir as t; print(t())"
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {code}"]
    found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout.strip()
    assert Path(found) == tmp_path / "htareport" / "templates"
    assert Path(found, "report.html.j2").is_file()


def test_sdist_holds_what_a_wheel_and_the_tests_need(tmp_path):
    path = next(SdistBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"]))
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "templates/report.html.j2", "tests/builder.py"} <= names
    assert not [name for name in names if name.endswith(".pyc")]
