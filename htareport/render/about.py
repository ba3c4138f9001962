"""What a report says of itself: chips for the head of the page, and everything else of `meta` as a list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from htareport.render import kernel_names
from htareport.render.charts import ticks as fmt
from htareport.report import Report, Unit

_MOST_ITEMS = 24
_DEEPEST = 3
_STAMP = 10**16  # From about four months on a time in ns is one since the epoch.
_LABELS = {
    "version": "htareport",
    "source": "Folder",
    "num_ranks": "Ranks read",
    "world_size": "World size",
    "devices": "Devices",
    "steps": "Steps",
    "window": "Window",
    "software": "Versions",
    "capture": "Recorded with",
    "start": "Start of the trace",
    "zero_ns": "Zero of all times",
}
_MOST_ENTRIES = 80
_LONGEST_CHIP, _LONGEST_LINE, _LONGEST_ENTRY = 100, 400, 2000
_FILE_FIELDS = {"name", "rank", "bytes", "note", "reason"}
_OWN_TABLES = {"files", "left_out", "num_files", "ranks", "options"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the list: a term and its description."""

    term: str
    text: str


def chips(report: Report) -> list[str]:
    """Return what was measured in a few short pieces: ranks, steps, devices, versions, folder (if no title says it)."""
    meta = report.meta
    pieces = [_ranks(meta), _steps(meta.get("steps")), *_devices(meta.get("devices"))]
    software = meta.get("software")
    if isinstance(software, Mapping):
        pieces += [f"{name} {version}" for name, version in list(software.items())[:3] if version]
    if meta.get("source") and meta["source"] != report.title:
        pieces.append(str(meta["source"]))
    return [kernel_names.cut(piece, _LONGEST_CHIP) for piece in pieces if piece]


def window(report: Report) -> str:
    """Return what the numbers are about, as one sentence."""
    return kernel_names.cut(said(report.meta.get("window")), _LONGEST_LINE)


def version(report: Report) -> str:
    """Return the version that made the report."""
    return kernel_names.cut(said(report.meta.get("version")), _LONGEST_CHIP)


def _ranks(meta: Mapping[str, Any]) -> str:
    count, world = meta.get("num_ranks"), meta.get("world_size")
    if not isinstance(count, int):
        return ""
    if isinstance(world, int) and world > count:
        return f"{count:,} of {world:,} ranks"
    return f"{count:,} rank{'' if count == 1 else 's'}"


def _steps(steps: Any) -> str:
    if not isinstance(steps, Mapping) or not steps.get("count"):
        return ""
    count, first, last = steps["count"], steps.get("first"), steps.get("last")
    if count == 1:
        return f"step {first}" if first is not None else "1 step"
    return f"{count:,} steps" + (f" ({first} to {last})" if first is not None and last is not None else "")


def _devices(devices: Any) -> list[str]:
    if not isinstance(devices, Mapping):
        return []
    return [f"{count:,} × {name}" if count != 1 else str(name) for name, count in list(devices.items())[:3]]


def entries(report: Report) -> list[Entry]:
    """Return what `meta` holds beside its tables, known things first, unknown ones as they are."""
    known = [name for name in _LABELS if name in report.meta]
    others = [name for name in report.meta if name not in _LABELS and name not in _OWN_TABLES]
    made = [_entry(name, report.meta[name]) for name in (known + others)[:_MOST_ENTRIES]]
    kept = [Entry(kernel_names.cut(entry.term, _LONGEST_CHIP), _end(entry.text)) for entry in made if entry.text]
    left = len(known + others) - _MOST_ENTRIES
    return [*kept, Entry("More", f"{left:,} entries in the JSON")] if left > 0 else kept


def options(report: Report) -> list[Entry]:
    """Return the options of each analysis that has any."""
    given = report.meta.get("options")
    if not isinstance(given, Mapping):
        return [Entry("", _end(said(given)))] if given else []
    shown = [Entry(kernel_names.cut(str(name), _LONGEST_CHIP), _end(said(value))) for name, value in given.items()]
    return [entry for entry in shown if entry.text][:_MOST_ENTRIES]


def _end(text: str) -> str:
    return text if len(text) <= _LONGEST_ENTRY else f"{text[: _LONGEST_ENTRY - 1]}…"


def _entry(name: str, value: Any) -> Entry:
    term = _LABELS.get(name, name.removesuffix("_ns").replace("_", " ").capitalize())
    if name == "steps":
        return Entry(term, _steps(value).removesuffix(" steps"))
    if name == "devices":
        return Entry(term, ", ".join(_devices(value)))
    if name.endswith("_ns") and isinstance(value, int):
        return Entry(term, fmt.text(value, Unit.NANOSECONDS) if abs(value) < _STAMP else f"{value} ns since the epoch")
    return Entry(term, said(value))


def said(value: Any, depth: int = 0) -> str:
    """Return any JSON value as one line of text."""
    if value is None:
        return "–" if depth else ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return fmt.text(value, Unit.COUNT)
    if isinstance(value, Mapping):
        parts = [f"{name}: {said(item, depth + 1)}" for name, item in list(value.items())[:_MOST_ITEMS]]
    elif isinstance(value, (list, tuple)):
        parts = [said(item, depth + 1) for item in value[:_MOST_ITEMS]]
    else:
        return str(value) or ("–" if depth else "")
    more = f" … and {len(value) - _MOST_ITEMS:,} more" if len(value) > _MOST_ITEMS else ""
    joined = ("; " if depth == 0 else ", ").join(parts) + more
    return joined if depth < _DEEPEST else "…"


def files(report: Report) -> list[dict[str, Any]]:
    """Return the input files, each with name, rank, bytes and note (missing ones are None or empty)."""
    given = report.meta.get("files")
    if not isinstance(given, (list, tuple)):
        return []
    blank = {"name": "", "rank": None, "bytes": None, "note": ""}
    return [_short(blank | dict(item)) for item in given if isinstance(item, Mapping)]


def num_files(report: Report) -> int:
    """Return how many input files there are, which may be more than are listed."""
    given, listed = report.meta.get("num_files"), len(files(report))
    return max(given, listed) if isinstance(given, int) else listed


def left_out(report: Report) -> list[dict[str, Any]]:
    """Return the files that were not used, each with name and reason."""
    given = report.meta.get("left_out")
    if not isinstance(given, (list, tuple)):
        return []
    return [_short({"name": "", "reason": ""} | dict(item)) for item in given if isinstance(item, Mapping)]


def _short(item: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value if value is None or isinstance(value, (int, float)) else kernel_names.cut(str(value), _LONGEST_LINE)
        for name, value in item.items()
        if name in _FILE_FIELDS
    }
