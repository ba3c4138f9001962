"""Packs plotly.js for the page: compressed, with the hash that the page's content security policy allows.

Compressing takes a quarter of a second, so `prepare` starts it in a thread while traces are read (zlib lets other
threads run meanwhile).
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from htareport.errors import UsageError
from htareport.render.html import base91

_PACKAGED = Path("package_data", "plotly.min.js")
_VERSION = re.compile(r"plotly\.js(?: \([^)]{0,40}\))? v([\w.+-]{1,40})")
_MAX_NOTICE = 2000  # Characters before the version.
_GLOBAL = re.compile(r"\bPlotly\s*=[^=]")
_STYLE_ID = re.compile(
    r"""getElementById\(["']([0-9a-f]{32,64})["']\)\)\s*\{var \w+=document\.createElement\(.style.\)"""
)
_bundle_by_source: dict[str, Future[Bundle]] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Bundle:
    """A script in gzip and base 91, its hash for the policy, its version for the notice.

    `style_ids` are elements that it looks for before it adds a style sheet for maps, which the policy would refuse and
    the report does not need: the page has empty ones.
    """

    packed: str
    hash: str
    version: str
    style_ids: tuple[str, ...]


def prepare(plotlyjs: str | Path | None = None) -> None:
    """Start reading and compressing plotly.js in the background. Costs nothing the second time.

    UsageError for a file that is not plotly.js, at once: what is written with it comes long after.
    """
    if plotlyjs:
        _read(str(plotlyjs))
    _start(plotlyjs)


def load(plotlyjs: str | Path | None = None) -> Bundle:
    """Return the bundle: the installed plotly package's, or that of a file. UsageError where it cannot be read."""
    return _start(plotlyjs).result()


def _start(plotlyjs: str | Path | None) -> Future[Bundle]:
    source = str(plotlyjs or "")
    with _lock:
        if source in _bundle_by_source:
            return _bundle_by_source[source]
        future = _bundle_by_source[source] = Future[Bundle]()
    threading.Thread(target=_fill, args=(future, source), name="plotly.js", daemon=True).start()
    return future


def _fill(future: Future[Bundle], source: str) -> None:
    try:
        future.set_result(_packed(_read(source)))
    except Exception as error:  # noqa: BLE001  raised again by whoever waits for the result
        with _lock:
            _bundle_by_source.pop(source, None)
        future.set_exception(error)


def _read(source: str) -> str:
    try:
        text = Path(source).read_text(encoding="utf-8") if source else _installed()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--plotlyjs {source}: {error}") from error
    if source and not (_VERSION.search(text[:_MAX_NOTICE]) or _GLOBAL.search(text)):
        raise UsageError(f"--plotlyjs {source}: is no plotly.js: neither its version nor a global Plotly is in it")
    # The browser hashes what its parser makes of the text, and that turns these into plain newlines.
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _installed() -> str:
    """Read the file of the plotly package without importing it, which would cost more than reading."""
    spec = find_spec("plotly")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (path := Path(folder) / _PACKAGED).is_file():
            return path.read_text(encoding="utf-8")
    from plotly.offline import get_plotlyjs  # noqa: PLC0415  only where the package is laid out otherwise

    return str(get_plotlyjs())


def _packed(script: str) -> Bundle:
    version = _VERSION.search(script[:_MAX_NOTICE])
    style_ids = tuple(dict.fromkeys(_STYLE_ID.findall(script)))
    return Bundle(pack(script.encode()), csp_hash(script), version[1] if version else "", style_ids)


def pack(data: bytes) -> str:
    """Return bytes in gzip and base 91: equal bytes give equal text."""
    return base91.encode(gzip.compress(data, 9, mtime=0))


def csp_hash(text: str) -> str:
    """Return the source expression that allows exactly this script or style in a content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
