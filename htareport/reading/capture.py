"""One rank's files as columns: times set straight, impossible rows set aside, device rows told from host rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.decimals import MISSING
from htareport.errors import TraceFileError, printable
from htareport.files.locations import exists, size_of
from htareport.reading.oddities import oddities
from htareport.reading.rows import Rows
from htareport.reading.text.decode import Reader
from htareport.reading.text.load import read_file
from htareport.reading.text.repair.slips import singular
from htareport.report.units import counted
from htareport.rows import classify, metadata
from htareport.rows.capture import Capture, Loaded
from htareport.rows.columns import Columns
from htareport.rows.options import DEFAULT_OPTIONS, ReadOptions
from htareport.rows.schema import CODED_COLUMNS

_CODE_COLUMNS = CODED_COLUMNS | {"thread", "forward_thread"}  # Of which there are few, and which stand for others.
_WEEK_NS = 7 * 86_400 * 10**9
_HOUR_NS = 3_600 * 10**9
_MAX_NS = 4 * 10**18  # Of a stamp and of a base time, the year 2096: their sum with a week is within 63 bits.


def load_rank(paths: tuple[Path, ...], options: ReadOptions | None = None, reader: Reader | None = None) -> Loaded:
    """Read the files of a rank, in this order. TraceFileError if none can be used.

    A file that overlaps in time with one before it is not used, and named. `reader` may be one that keeps more.
    """
    reader, rank = reader or Reader(), _Rank()
    for path in paths:
        try:
            rank.add(_File(path, reader, options))
        except TraceFileError as error:
            rank.problems.append((printable(path.name), str(error)))
        except OSError as error:
            rank.problems.append((printable(path.name), error.strerror or str(error)))
            rank.is_transient = True
    if not rank.files:
        reasons = (reason if len(paths) == 1 else f"{name}: {reason}" for name, reason in rank.problems)
        raise TraceFileError("; ".join(reasons) or "no file was given")
    reader.begin()
    return rank.loaded(reader)


class _File:
    """What is read from one file."""

    def __init__(self, path: Path, reader: Reader, options: ReadOptions | None) -> None:
        reader.begin()
        content = read_file(path, reader, options)
        self.warnings: list[str] = []
        self.counts = reader.counts
        size = size_of(path) if exists(path) else 0
        self.capture = Capture(printable(path.name), size, content.metadata, processes=reader.processes)
        self.capture.path, self.capture.events = path, reader.counts.total()
        self.capture.options = options or DEFAULT_OPTIONS
        self.capture.base_ns = self._base_time()
        self.capture.devices = metadata.device_names(content.metadata)
        self.capture.host = metadata.host_of(path.name, content.metadata)
        self.rows = Rows(reader)
        self.memory: Columns = {}
        self.device_categories = self._tell_device_rows(reader)
        self.capture.set_aside = self._set_times_straight()
        self.capture.slips, self.capture.salvaged = content.repairs.slips, content.salvaged
        slips = sorted(self.capture.slips.items())
        self._warn(
            "repaired", [f"{counted(slip.count, singular(what), what)} ({slip.location})" for what, slip in slips]
        )
        oddity_texts = oddities(self.rows.tables, self.capture.meta, reader.like_device, has_memory=bool(self.memory))
        self.warnings += [f"{self.capture.name}: {text}" for text in oddity_texts]
        if reason := metadata.salvage_of_copy(self.capture.meta):
            self._warn("a copy of what was salvaged of a file", [reason])
        aside = [
            f"{counted(count, f'{kind} event')} {why}" for (kind, why), count in sorted(self.capture.set_aside.items())
        ]
        self._warn("events with impossible times set aside", aside)

    def _warn(self, what: str, texts: list[str]) -> None:
        if texts:
            self.warnings.append(f"{self.capture.name}: {what}: {', '.join(texts)}")

    def _base_time(self) -> int:
        written = self.capture.meta.get("baseTimeNanoseconds")
        base = metadata.as_int(written)
        if written is not None and (base is None or abs(base) > _MAX_NS):
            self.warnings.append(f"{self.capture.name}: its baseTimeNanoseconds is no time and counts as 0")
            return 0
        return base or 0

    def _tell_device_rows(self, reader: Reader) -> set[str]:
        """Class the rows of the device's categories; those that are no work become host rows."""
        tables, categories = self.rows.tables, set[str]()
        if "" in tables:  # Rows without a category: those of an NPU are device work, others are not.
            npu = {pid for pid, name in self.capture.processes.items() if name == classify.NPU_PROCESS}
            on_npu = np.array([pid in npu for pid, _ in reader.threads.pairs], np.bool_)
            categories = {self.rows.move("", on_npu[tables[""]["thread"]], classify.NPU_PROCESS)}
            tables[""].pop("lane")
        categories |= classify.KERNEL_CATEGORIES | classify.COPY_CATEGORIES
        categories &= set(tables)
        strings = list(reader.strings)
        for category in sorted(categories):
            if category in classify.COPY_CATEGORIES:
                tables[category]["kind"] = np.full(len(tables[category]["ts"]), classify.MEMORY, np.int8)
                continue
            codes, inverse = np.unique(tables[category]["name"], return_inverse=True)
            names = [strings[code] for code in codes.tolist()]
            idle = self.rows.move(category, classify.no_work(names)[inverse], f"{category} (no work)")
            tables.get(idle, {}).pop("lane", None)
            kinds = np.zeros(len(strings), np.int8)
            kinds[codes] = classify.kinds_of_names(names)
            columns = tables[category]
            columns["kind"] = kinds[columns["name"]]
            if category in self.rows.collectives:
                columns["kind"][self.rows.collectives[category]["row"]] = classify.COMM
        return categories

    def _set_times_straight(self) -> Counter[tuple[str, str]]:
        """Set rows with impossible times aside, add the base time."""
        set_aside, tables = Counter[tuple[str, str]](), self.rows.tables
        for category, columns in tables.items():
            has_times = (np.abs(columns["ts"]) <= _MAX_NS) & (columns["dur"] != MISSING) & (columns["ts"] != MISSING)
            self._set_aside(category, {"without a start or duration": ~has_times}, set_aside)
        complete = (columns for category, columns in tables.items() if category != classify.MEMORY_CATEGORY)
        starts = (columns["ts"][columns["ts"] != 0] for columns in complete)
        first_start = min((int(start.min()) for start in starts if len(start)), default=0)
        for category, columns in tables.items():
            faults = {
                "ending before the start": columns["dur"] < 0,
                "longer than seven days": columns["dur"] > _WEEK_NS,
                "at time 0": (columns["ts"] == 0) & (first_start > _HOUR_NS),
            }
            self._set_aside(category, faults, set_aside)
        self.rows.tables = {category: columns for category, columns in tables.items() if len(columns["ts"])}
        for columns in self.rows.tables.values():
            columns["ts"] += self.capture.base_ns
        self.memory = self.rows.tables.pop(classify.MEMORY_CATEGORY, {})  # Instants are no complete events.
        firsts = [int(columns["ts"].min()) for columns in self.rows.tables.values()]
        lasts = [int((columns["ts"] + columns["dur"]).max()) for columns in self.rows.tables.values()]
        self.capture.first_ns, self.capture.last_ns = min(firsts, default=None), max(lasts, default=None)
        return set_aside

    def _set_aside(self, category: str, faults: Mapping[str, Any], counts: Counter[tuple[str, str]]) -> None:
        """Drop the rows of a category that have a fault; each is counted under its first."""
        kind = "device" if category in self.device_categories else "host"
        bad = np.zeros(len(self.rows.tables[category]["ts"]), np.bool_)
        for reason, rows in faults.items():
            if (new := rows & ~bad).any():
                counts[kind, reason] += int(new.sum())
                bad |= new
        if bad.any():
            self.rows.select(category, ~bad)


class _Rank:
    """Collects the files of a rank."""

    def __init__(self) -> None:
        self.files: list[_File] = []
        self.problems: list[tuple[str, str]] = []
        self.is_transient = False

    def add(self, file: _File) -> None:
        """Take a file, unless it overlaps with one before it."""
        capture = file.capture
        other = next((file.capture.name for file in self.files if _overlap(file.capture, capture)), None)
        if other is None:
            self.files.append(file)
        else:
            self.problems.append((capture.name, f"overlaps in time with {other} of the same rank"))

    def loaded(self, reader: Reader) -> Loaded:
        """Join the captures, in order of time."""
        files = sorted(self.files, key=lambda file: file.capture.first_ns or 0)
        lanes = [lane_of(written) for written in reader.lanes]
        numbers = {lane: number for number, lane in enumerate(dict.fromkeys(lanes))}
        lane_numbers = np.array([numbers[lane] for lane in lanes], np.int32)
        for number, file in enumerate(files):
            for columns in (*file.rows.tables.values(), *filter(None, [file.memory])):
                columns.update({key: _narrowed(key, values) for key, values in columns.items() if key != "ts"})
                columns["capture"] = np.broadcast_to(np.int16(number), len(columns["ts"]))  # Takes no room.
                if "lane" in columns:
                    columns["lane"] = lane_numbers[columns["lane"]]
        tables, collectives = dict[str, Columns](), dict[str, Columns]()
        for category in sorted({category for file in files for category in file.rows.tables}):
            rows_of_files = [file.rows for file in files if category in file.rows.tables]
            offsets = np.cumsum([0, *(len(rows.tables[category]["ts"]) for rows in rows_of_files)])
            tables[category] = _joined([rows.tables[category] for rows in rows_of_files])
            collective_tables = [
                rows.collectives[category] | {"row": rows.collectives[category]["row"] + offset}
                for rows, offset in zip(rows_of_files, offsets, strict=False)  # One offset more: the length of all.
                if category in rows.collectives
            ]
            if collective_tables:
                collectives[category] = _joined(collective_tables)
        captures = tuple(file.capture for file in files)
        return Loaded(
            tables,
            collectives,
            memory=_joined([file.memory for file in files if file.memory] or [{}]),
            strings=list(reader.strings),
            threads=reader.threads.pairs.copy(),
            lanes=list(numbers),
            captures=captures,
            counts=sum((file.counts for file in files), Counter[str]()),
            device_categories=frozenset().union(*(file.device_categories for file in files)),
            warnings=(*(warning for file in self.files for warning in file.warnings), *_differences(captures)),
            problems=tuple(self.problems),
            is_transient=self.is_transient,
        )


def _narrowed(key: str, values: NDArray[Any]) -> NDArray[Any]:
    """The same in fewer bits, where all fit: these columns stay for as long as the rank is looked at.

    What is calculated with keeps 32.
    """
    if values.dtype.kind != "i" or not len(values):
        return values
    low, high = values.min(), values.max()
    for dtype in (np.int8, np.int16, np.int32) if key in _CODE_COLUMNS else (np.int32,):
        limits = np.iinfo(dtype)
        if limits.min <= low and high <= limits.max and values.dtype.itemsize > limits.bits // 8:
            return values.astype(dtype)
    return values


def _joined(tables: list[Columns]) -> Columns:
    return {key: np.concatenate([table[key] for table in tables]) for key in tables[0]} if tables[1:] else tables[0]


def lane_of(written: tuple[Any, ...]) -> tuple[int | str, int | str]:
    """Device and stream of a device row: its arguments, else its process and thread id; text where it is no number."""
    device, stream, queue, stream_id, pid, tid = written
    stream_or_queue = next((value for value in (stream, queue, stream_id) if value is not None), tid)
    return _number_or_text(pid if device is None else device), _number_or_text(stream_or_queue)


def _number_or_text(value: Any) -> int | str:
    number = metadata.as_int(value)
    return number if number is not None and abs(number) < 2**63 else str(value)


def _overlap(one: Capture, other: Capture) -> bool:
    if one.first_ns is None or one.last_ns is None or other.first_ns is None or other.last_ns is None:
        return False
    return one.first_ns < other.last_ns and other.first_ns < one.last_ns


def _differences(captures: tuple[Capture, ...]) -> list[str]:
    """Warnings about files of one rank that look like two runs."""
    warnings = []
    for one, other in pairwise(captures):
        reasons = []
        if one.last_ns is not None and other.first_ns is not None and other.first_ns - one.last_ns > _HOUR_NS:
            reasons.append(f"are {(other.first_ns - one.last_ns) / _HOUR_NS:.1f} hours apart")
        if one.devices != other.devices:
            reasons.append("have different devices")
        if metadata.software(one.meta) != metadata.software(other.meta):
            reasons.append("have different software versions")
        if bool(one.base_ns) != bool(other.base_ns):
            reasons.append("count time from different bases")
        if reasons:
            files = f"{one.name} and {other.name}, taken as captures of one rank,"
            warnings.append(f"{files} {' and '.join(reasons)}: two runs?")
    return warnings
