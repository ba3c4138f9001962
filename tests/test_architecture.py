"""Who may import whom, and what is loaded when: the layers of htareport."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "htareport"
MODEL = {"algorithms", "devices", "errors", "findings", "locations", "report", "trace", "units", "whole_file"}
LIBRARY = MODEL | {"analyses", "augment", "executors", "hta", "overview", "render", "rules", "runner"}
MAY_IMPORT = {  # Each may import itself and the version.
    "_version": set(),
    "errors": set(),
    "algorithms": {"errors"},
    "codec": set(),
    "locations": {"errors"},  # And remote, lazily.
    "remote": {"errors"},
    "whole_file": {"locations"},
    "saved": {"codec", "locations"},
    "findings": set(),
    "devices": set(),
    "report": {"algorithms", "codec", "errors", "findings", "saved"},
    "trace": {"algorithms", "errors", "locations", "report", "units"},  # Words of warnings.
    "units": {"report"},
    "configurable": {"errors"},
    "room": set(),
    "analyses": MODEL | {"configurable", "room"},
    "augment": MODEL | {"analyses"},
    "overview": MODEL,
    "comparison": MODEL - {"trace"},
    "rules": MODEL | {"analyses", "configurable", "packed", "room"},  # Of analyses what they share: see below.
    "packed": {"algorithms", "report"},
    "tagged": set(),
    "summaries": MODEL | {"analyses", "overview", "packed", "rules", "tagged"},
    "fitting": {"packed", "summaries"},
    "summary_cache": MODEL | {"analyses", "packed", "rules", "summaries", "tagged"},
    "runner": MODEL
    | {"analyses", "executors", "fitting", "overview", "packed", "room", "rules", "summaries", "summary_cache"},
    "render": MODEL - {"trace"} | {"codec"},
    "executors": {"locations"},
    "clusters": {"errors", "executors"},
    "config": {"errors"},
    "hta": LIBRARY,
    "integrations": {"deliver", "errors", "executors", "render", "report", "runner"},
    "pair": MODEL | {"analyses", "comparison", "runner"},
    "deliver": {"errors", "locations", "render", "report", "runner"},
    "cli": LIBRARY | {"clusters", "comparison", "configurable", "config", "deliver"},
    "__main__": {"cli"},
    "__init__": LIBRARY | {"integrations", "pair"},  # Lazily: see test_importing_loads_nothing_heavy.
}
FILES = sorted(ROOT.rglob("*.py"))
HEAVY = {
    "dask",
    "distributed",
    "fsspec",
    "jinja2",
    "msgspec",
    "numpy",
    "orjson",
    "pandas",
    "plotly",
    "pyarrow",
    "rich",
    "upath",
    "weasyprint",
}


@cache
def _nodes(path: Path) -> tuple[ast.AST, ...]:
    """What these tests look at in a file, which is parsed once."""
    parts = ast.walk(ast.parse(path.read_bytes()))
    return tuple(node for node in parts if isinstance(node, ast.Import | ast.ImportFrom | ast.Attribute))


def _imports(path: Path) -> Iterator[str]:
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{name.name}" for name in node.names)


def _part(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_layers(path):
    own = _part(path)
    used = {name.split(".")[1] for name in _imports(path) if name.startswith("htareport.")}
    assert used <= MAY_IMPORT[own] | {own, "_version", "__version__"}


def test_analyses_are_known_neither_to_each_other_nor_to_rules_and_know_not_how_they_are_drawn():
    folder = ROOT / "analyses"
    analyses = {path.stem for path in folder.glob("*.py") if "(Analysis)" in path.read_text(encoding="utf-8")}
    assert analyses
    for path in (*folder.glob("*.py"), *(ROOT / "rules").glob("*.py")):
        for name in _imports(path):
            assert name.partition(".")[0] not in {"plotly", "jinja2"}, path
            assert not (name.startswith("htareport.analyses.") and name.split(".")[2] in analyses), path


def test_nothing_is_unpickled():
    """A file that is read can hold data, never code."""
    for path in FILES:
        used = {name.partition(".")[0] for name in _imports(path)}
        assert not used & {"pickle", "marshal", "shelve", "dill", "joblib", "cloudpickle"}, path
        names = {node.attr for node in _nodes(path) if isinstance(node, ast.Attribute)}
        assert not names & {"read_pickle", "extractall", "unpack_archive"}, path
        assert "allow_pickle=True" not in path.read_text(encoding="utf-8"), path


@pytest.mark.parametrize("code", ["import htareport", "import htareport.cli as cli; assert cli.main(['--help']) == 0"])
def test_importing_loads_nothing_heavy(code):
    command = [sys.executable, "-c", f"{code}; import sys; sys.stderr.write(' '.join(sys.modules))"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT.parent).stderr.split()
    assert "htareport" in loaded
    assert not HEAVY & set(loaded)
