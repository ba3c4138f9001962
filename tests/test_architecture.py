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
# Rooms from the ground up: each may import itself, those named in its row and the version. Rooms of one row that do not
# name each other never meet.
GROUND = {"algorithms", "errors", "files", "plugins", "report"}
KNOWN = GROUND | {"rows", "rank", "reading", "job"}
MAY_IMPORT = {
    "_version": set(),
    "errors": set(),
    "plugins": {"errors"},
    "algorithms": {"errors"},
    "files": {"errors", "plugins"},
    "report": {"algorithms", "errors", "files"},
    "rows": {"algorithms", "errors"},
    "reading": GROUND - {"plugins"} | {"rows"},  # Gives rows;
    "rank": GROUND - {"plugins", "files"} | {"rows"},  # makes facts of them: neither knows the other.
    "job": {"algorithms", "errors", "rank", "report"},
    "analyses": KNOWN - {"files", "reading"},
    "rules": KNOWN - {"files"},  # Never analyses, nor these rules.
    "trace": {"files", "rank", "reading", "rows"},  # The public face of both.
    "run": KNOWN | {"analyses", "rules", "trace"},
    "compare": {"algorithms", "analyses", "errors", "files", "reading", "report", "run"},
    "render": {"errors", "files", "report"},
    "export": KNOWN - {"job", "report", "plugins"},
    "hta": KNOWN | {"analyses", "export", "render", "run", "trace"},
    "deliver": {"errors", "files", "render", "report"},
    "integrations": {"deliver", "errors", "files", "run"},
    "cli": KNOWN | {"analyses", "compare", "deliver", "export", "hta", "render", "rules", "run", "trace"},
    "__main__": {"cli"},
    "__init__": {"analyses", "compare", "hta", "integrations", "report", "run", "trace"},  # Lazily.
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


def test_no_two_files_import_each_other_in_a_loop():
    """Lazy imports and those for types only count."""
    names = {_module(path): path for path in FILES}
    imports = {
        name: {target for used in _imports(path) if (target := _target(used, names)) not in {None, name}}
        for name, path in names.items()
    }
    while leaves := [name for name, targets in imports.items() if not targets]:
        for name in leaves:
            del imports[name]
        imports = {name: targets - set(leaves) for name, targets in imports.items()}
    assert not imports, f"among these files is a circle: {sorted(imports)}"


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


def _target(used: str, names: dict[str, Path]) -> str | None:
    """The module that an imported name is, or is in."""
    return used if used in names else used.rpartition(".")[0] if used.rpartition(".")[0] in names else None


def test_what_stands_in_the_root():
    assert {path.stem for path in ROOT.glob("*.py")} == {"__init__", "__main__", "_version", "errors", "trace"}


@pytest.mark.parametrize("room", ["analyses", "rules", "render/formats"])
def test_a_room_of_plug_ins_holds_nothing_else(room):
    """Each file has an analysis, a rule or an output format."""
    kind = {"analyses": "(Analysis)", "rules": "Rule[", "render/formats": "(OutputFormat)"}[room]
    files = [path for path in (ROOT / room).rglob("*.py") if path.stem != "__init__" and path.parent.name != "engine"]
    assert files
    others = [path.name for path in files if kind not in path.read_text(encoding="utf-8")]
    assert set(others) <= {"sampling.py"}  # A rule that shares the base of those about waiting calls.


def test_analyses_and_rules_know_neither_each_other_nor_how_they_are_drawn():
    for room in ("analyses", "rules"):
        for path in (ROOT / room).rglob("*.py"):
            for name in _imports(path):
                assert name.partition(".")[0] not in {"plotly", "jinja2"}, path
                parts = name.split(".")
                is_plug_in = parts[:2] == ["htareport", room] and len(parts) > 3 and parts[2] != "engine"
                shares_a_base = path.stem == "sampling" and parts[-1] in {"WaitEvidence", "Waits", "behind"}
                assert not is_plug_in or shares_a_base, (path, name)


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
