"""Others that load the same file, and the environment of the one that has to be installed for it."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

from measure import ROOT, Command

LOADERS = Path(__file__).parent / "loaders"
RAW = "unpack and scan only"
LOAD = "htareport, load"
HTA = "HolisticTraceAnalysis"
# HTA writes large numbers into columns of small ones, which pandas 3 refuses; ijson it asks for without requiring it.
_PACKAGES = (HTA, "pandas<3", "ijson")
_BACKENDS = ("json", "ijson_batch_and_compress")
_INSTALL_S = 600


def loaders(path: Path, hta_python: str) -> dict[str, Command]:
    """Commands that load a file, by what they are called; those of HTA only where there is an interpreter for it."""
    made: dict[str, Command] = {
        LOAD: loader("htareport", path),
        RAW: loader("raw", path),
        "orjson, whole (as TraceLens)": loader("orjson", path),
        "json + pandas": loader("json_pandas", path),
    }
    if hta_python:
        made |= {f"HTA, {backend}": loader("hta", path, backend, python=hta_python) for backend in _BACKENDS}
    return made


def loader(name: str, path: Path, *arguments: str, python: str = sys.executable) -> list[str]:
    """Return the command line of one of the loaders."""
    return [python, str(LOADERS / f"load_{name}.py"), str(path), *arguments]


def hta_interpreter(named: str, data: Path) -> tuple[str, str]:
    """Return an interpreter that has HTA and its version, or nothing and why there is none.

    Without one named it is installed from PyPI into an environment of its own below `data`, which is kept.
    """
    folder = data / "venv-hta"
    python = Path(named) if named else folder / "bin" / "python"
    try:
        if not named and not _version(python):
            print(f"installing {HTA} …", file=sys.stderr)
            venv.create(folder, clear=True, with_pip=True)
            install = [str(python), "-m", "pip", "install", "-q", *_PACKAGES]
            subprocess.run(install, check=True, capture_output=True, timeout=_INSTALL_S, cwd=ROOT)
    except (OSError, subprocess.SubprocessError) as error:
        words = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip().splitlines()
        return "", f"left out: could not be installed ({words[-1] if words else error})"
    version = _version(python)
    return (str(python), version) if version else ("", f"left out: {python} does not have it")


def _version(python: Path) -> str:
    """Version of HTA that an interpreter has, empty for none."""
    code = f"import hta, importlib.metadata as m; print(m.version({HTA!r}), '· pandas', m.version('pandas'))"
    if not python.exists():
        return ""
    done = subprocess.run([str(python), "-c", code], check=False, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""
