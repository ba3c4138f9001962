"""What a report is about: chips for the head of the page, and everything else of `meta` as a list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from htareport.render import kernel_names
from htareport.render.charts import ticks as fmt
from htareport.report import Report, Unit

_MAX_ITEMS = 24
_MAX_DEPTH = 3
_MIN_EPOCH_NS = 10**16  # From about four months on a time in ns is one since the epoch.
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
_MAX_ENTRIES = 80
_MAX_CHIP, _MAX_LINE, _MAX_ENTRY = 100, 400, 2000
_FILE_FIELDS = {"name", "rank", "bytes", "note", "reason"}
_SHOWN_AS_TABLES = {"files", "left_out", "num_files", "ranks", "options"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the list: a term and its description."""

    term: str
    text: str


def chips(report: Report) -> list[str]:
    """Return what was measured, a few words each: ranks, steps, devices, versions, folder (unless it is the title)."""
    meta = report.meta
    chips = [_ranks(meta), _steps(meta.get("steps")), *_devices(meta.get("devices"))]
    software = meta.get("software")
    if isinstance(software, Mapping):
        chips += [f"{name} {version}" for name, version in list(software.items())[:3] if version]
    if meta.get("source") and meta["source"] != report.title:
        chips.append(str(meta["source"]))
    return [kernel_names.cut(chip, _MAX_CHIP) for chip in chips if chip]


def window(report: Report) -> str:
    """Return which part of the trace the numbers are about, as one sentence."""
    return kernel_names.cut(json_text(report.meta.get("window")), _MAX_LINE)


def version(report: Report) -> str:
    """Return the version that made the report."""
    return kernel_names.cut(json_text(report.meta.get("version")), _MAX_CHIP)


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
    """Return the entries of `meta` that are not shown as tables, those with a label first."""
    labelled_names = [name for name in _LABELS if name in report.meta]
    other_names = [name for name in report.meta if name not in _LABELS and name not in _SHOWN_AS_TABLES]
    entries = [_entry(name, report.meta[name]) for name in (labelled_names + other_names)[:_MAX_ENTRIES]]
    shown = [_cut(entry) for entry in entries if entry.text]
    num_left_out = len(labelled_names + other_names) - _MAX_ENTRIES
    return [*shown, Entry("More", f"{num_left_out:,} entries in the JSON")] if num_left_out > 0 else shown


def options(report: Report) -> list[Entry]:
    """Return the options of each analysis that has any."""
    options = report.meta.get("options")
    if not isinstance(options, Mapping):
        return [_cut(Entry("", json_text(options)))] if options else []
    entries = [Entry(str(name), json_text(value)) for name, value in options.items()]
    return [_cut(entry) for entry in entries if entry.text][:_MAX_ENTRIES]


def _cut(entry: Entry) -> Entry:
    return Entry(kernel_names.cut(entry.term, _MAX_CHIP), kernel_names.cut_end(entry.text, _MAX_ENTRY))


def _entry(name: str, value: Any) -> Entry:
    term = _LABELS.get(name, name.removesuffix("_ns").replace("_", " ").capitalize())
    if name == "steps":
        return Entry(term, _steps(value).removesuffix(" steps"))
    if name == "devices":
        return Entry(term, ", ".join(_devices(value)))
    if name.endswith("_ns") and isinstance(value, int):
        return Entry(
            term, fmt.text(value, Unit.NANOSECONDS) if abs(value) < _MIN_EPOCH_NS else f"{value} ns since the epoch"
        )
    return Entry(term, json_text(value))


def json_text(value: Any, depth: int = 0) -> str:
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
        texts = [f"{name}: {json_text(item, depth + 1)}" for name, item in list(value.items())[:_MAX_ITEMS]]
    elif isinstance(value, (list, tuple)):
        texts = [json_text(item, depth + 1) for item in value[:_MAX_ITEMS]]
    else:
        return str(value) or ("–" if depth else "")
    more = f" … and {len(value) - _MAX_ITEMS:,} more" if len(value) > _MAX_ITEMS else ""
    joined = ("; " if depth == 0 else ", ").join(texts) + more
    return joined if depth < _MAX_DEPTH else "…"


def files(report: Report) -> list[dict[str, Any]]:
    """Return the input files, each with name, rank, bytes and note (missing ones are None or empty)."""
    return _files(report.meta.get("files"), {"name": "", "rank": None, "bytes": None, "note": ""})


def num_files(report: Report) -> int:
    """Return how many input files there are, which may be more than the report lists."""
    num_files, num_listed = report.meta.get("num_files"), len(files(report))
    return max(num_files, num_listed) if isinstance(num_files, int) else num_listed


def left_out(report: Report) -> list[dict[str, Any]]:
    """Return the files that were not used, each with name and reason."""
    return _files(report.meta.get("left_out"), {"name": "", "reason": ""})


def _files(files: Any, defaults: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the known fields of files as `meta` lists them, their texts cut."""
    if not isinstance(files, (list, tuple)):
        return []
    return [
        {name: _field(value) for name, value in (defaults | dict(file)).items() if name in _FILE_FIELDS}
        for file in files
        if isinstance(file, Mapping)
    ]


def _field(value: Any) -> Any:
    return value if value is None or isinstance(value, (int, float)) else kernel_names.cut(str(value), _MAX_LINE)
