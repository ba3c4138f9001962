"""The analysis of trace quality: files salvaged, text repaired, events set aside, places redacted, warnings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pandas as pd

from htareport.analyses import Analysis, Frames, Group, Job
from htareport.rank.quality import Row, events, names, of_file, overlaps
from htareport.rank.rank import Rank
from htareport.report import Column, TableSpec, Unit, key

_RANK, _FILE = key("rank", "Rank"), key("file", "File", Unit.TEXT)
_MAX_WARNINGS = 20  # Of a rank; all of them stand in the report's own list.
_WORDS = {
    "salvaged": "",
    "repairs": "slips of the writer repaired",
    "set_aside": "events with impossible times set aside",
    "redacted": "places redacted",
}

_FILES = TableSpec(
    "files",
    "Files",
    (
        _RANK,
        _FILE,
        Column("host", "Host", Unit.TEXT, "Where it was recorded, if the file or its name tell; numbered."),
        Column("events", "Events", Unit.COUNT, "Complete events in tables, with or without device work."),
        Column("repairs", "Repaired", Unit.COUNT, "Slips of the writer that were mended in the text."),
        Column("set_aside", "Set aside", Unit.COUNT, "Events left out of all numbers: their times are impossible."),
        Column("kept", "Kept", Unit.RATIO, "Share of the content within which its complete events lie; 100 % of a file "
               "that is not salvaged."),
    ),
    is_detail=True,
)  # fmt: skip
_SALVAGED = TableSpec(
    "salvaged",
    "Salvaged files",
    (
        _RANK,
        _FILE,
        Column("events", "Events kept", Unit.COUNT, "Complete events that were read, of any kind."),
        Column("kept_bytes", "Bytes kept", Unit.BYTES, "Of the unpacked content, up to the last complete event."),
        Column("all_bytes", "Bytes read", Unit.BYTES, "Of the unpacked content, as far as it could be read."),
        Column("reason", "Reason", Unit.TEXT, "Why the file is not whole, with the place."),
    ),
)
_REPAIRS = TableSpec(
    "repairs",
    "Repairs",
    (
        _RANK,
        _FILE,
        key("what", "What", Unit.TEXT, "Kind of slip."),
        Column("count", "Count", Unit.COUNT, "How often it was mended."),
        Column("line", "First line", Unit.COUNT, "Line of the first, in the unpacked text."),
        Column("byte", "First byte", Unit.COUNT, "Byte of the first, in the unpacked text."),
    ),
)
_SET_ASIDE = TableSpec(
    "set_aside",
    "Events set aside",
    (
        _RANK,
        _FILE,
        key("where", "Where", Unit.TEXT, "On the device or on the host."),
        key("reason", "Reason", Unit.TEXT, "What is impossible about their times."),
        Column("count", "Count", Unit.COUNT, "Events with this for their first reason."),
    ),
)
_REDACTED = TableSpec(
    "redacted",
    "Redacted",
    (
        _RANK,
        key("kind", "Kind", Unit.TEXT, "What was found in names, arguments and metadata."),
        Column("count", "Count", Unit.COUNT, "Places, in distinct texts of the rank's files."),
    ),
)
_OVERLAPS = TableSpec(
    "overlaps",
    "Overlaps on a stream",
    (
        _RANK,
        key("device", "Device"),
        key("stream", "Stream"),
        Column("count", "Device events", Unit.COUNT, "Those that start before one that started earlier has ended."),
        Column("longest", "Longest", Unit.NANOSECONDS, "Longest time that one shares with those before it."),
    ),
    help="Late end stamps, or kernels that are launched to overlap. All times are unions: none is counted twice.",
    is_detail=True,
)
_WARNINGS = TableSpec(
    "warnings",
    "Warnings",
    (
        _RANK,
        key("number", "Number", Unit.ID),
        Column("text", "Warning", Unit.TEXT, "As in the report's list of warnings."),
    ),
    is_detail=True,
)


class TraceQuality(Analysis):
    """How far the files can be trusted: what was repaired, set aside, salvaged or redacted, and what is odd.

    ## How it is computed
    A slip of the writer (a lone backslash, a bare quote, nan or inf, a value that is not there, bytes that are not
    UTF-8) is mended and counted with the place of the first. Of a key that stands twice in an object the last value
    counts; where the values differ it is counted as a slip, as far as it is looked for: where a kind of event is met
    for the first time, in all that follows once there is one, and in the metadata. Events that end before they start,
    last longer than a week, or stand at time 0 in a file of later times are set aside. A file that ends early or is
    damaged is used only when asked to be salvaged, and then every complete event of it. Tokens, keys, passwords,
    environments, home folders, names of users and hosts are redacted, unless they are to be kept; hosts are numbered
    over all ranks.

    ## What to do
    - Salvaged: record again, or read its rank's numbers as those of a part of the time.
    - Repaired: nothing; a newer PyTorch writes most of it right.
    - Tokens or passwords: they stand in the trace files themselves; mind who gets these.
    """

    title = "Trace quality"
    group = Group.QUALITY
    nothing = "no file holds an event"
    tables = (_SALVAGED, _REPAIRS, _SET_ASIDE, _REDACTED, _FILES, _OVERLAPS, _WARNINGS)

    def map(self, rank: Rank) -> Frames:
        if not len(rank.events) and not rank.loaded.memory:
            return {}
        files = [of_file(name, capture) for name, capture in zip(names(rank), rank.captures, strict=True)]
        rows = {spec.name: [row for file in files for row in file.get(spec.name, ())] for spec in self.tables}
        for row, count in zip(rows["files"], events(rank), strict=True):
            row["events"] = count
        rows["overlaps"] = list(overlaps(rank))
        rows["redacted"] = [{"kind": kind, "count": count} for kind, count in rank.loaded.redactions.items()]
        rows["warnings"] = [{"number": i, "text": text} for i, text in enumerate(rank.warnings[:_MAX_WARNINGS], 1)]
        return {spec.name: _frame(spec, rows[spec.name]) for spec in self.tables}

    def combine(self, frames: Frames, job: Job) -> Frames:
        del job
        return {name: frame.sort_values("rank", kind="stable") for name, frame in frames.items()}

    def notes(self, frames: Frames) -> Iterable[str]:
        if changes := list(_changes(frames)):
            yield f"{'; '.join(changes)}."
        else:
            yield "Every file was read as it is: nothing was repaired, set aside, salvaged or redacted."


def _frame(spec: TableSpec, rows: list[Row]) -> pd.DataFrame:
    """Return rows as a frame whose columns have the same types where there are no rows."""
    columns = [column for column in spec.columns if column.name != "rank"]
    return pd.DataFrame(
        {column.name: pd.Series([row[column.name] for row in rows], dtype=_dtype(column)) for column in columns}
    )


def _dtype(column: Column) -> str:
    if column.unit.is_text or column.unit is Unit.ID:
        return "object"
    return "float64" if column.unit is Unit.RATIO else "int64"


def _changes(frames: Frames) -> Iterator[str]:
    """Say in a few words each what was done to the files."""
    for name, words in _WORDS.items():
        frame = frames[name]
        if name == "salvaged" and len(frame):
            yield f"{len(frame)} file{'s' if len(frame) > 1 else ''} salvaged"
        elif len(frame):
            yield f"{int(frame['count'].sum()):,} {words}"
