"""One rank's files as columns: times set straight, impossible rows set aside, device rows told from host rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.decimals import MISSING
from htareport.errors import TraceFileError
from htareport.trace import classify, metadata
from htareport.trace.decode import Reader
from htareport.trace.load import read_file

Columns: TypeAlias = dict[str, NDArray[Any]]

_WEEK_NS = 7 * 86_400 * 10**9
_HOUR_NS = 3_600 * 10**9


@dataclass
class Capture:
    """One file of a rank."""

    name: str
    size: int
    meta: Mapping[str, Any]
    base_ns: int = 0
    first_ns: int | None = None  # Earliest start and latest end of its complete events.
    last_ns: int | None = None
    devices: dict[int, str] = field(default_factory=dict)
    processes: dict[Any, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Loaded:
    """Columns by category over all captures of a rank, and what their codes mean.

    Columns: ts, dur (int64 ns, base time added), name (code of `strings`), thread (code of `threads`: pid, tid),
    capture (number), for device rows lane (code of `lanes`: device, stream) and kind, then those of the category.
    """

    tables: dict[str, Columns]
    collectives: dict[str, Columns]  # By category; `row` is the row of its table.
    strings: list[str]
    threads: list[tuple[Any, Any]]
    lanes: list[tuple[Any, Any]]
    captures: tuple[Capture, ...]
    counts: Mapping[str, int]
    device_categories: frozenset[str]
    warnings: tuple[str, ...]
    problems: tuple[tuple[str, str], ...]


def load_rank(paths: tuple[Path, ...]) -> Loaded:
    """Read the files of a rank, in order of name. TraceFileError if none can be used.

    A file that overlaps in time with one before it is not used, and named.
    """
    reader, builder = Reader(), _Builder()
    for path in paths:
        try:
            builder.add(path, reader)
        except TraceFileError as error:
            builder.problems.append((path.name, str(error)))
        except OSError as error:
            builder.problems.append((path.name, error.strerror or str(error)))
        else:
            continue
        if len(paths) == 1:
            raise TraceFileError(builder.problems[0][1])
        reader = builder.discard(reader)
    if not builder.captures:
        raise TraceFileError("; ".join(f"{name}: {reason}" for name, reason in builder.problems))
    return builder.build(reader)


class _Builder:
    """Collects the captures of a rank, each as a stretch of rows of the reader's tables."""

    def __init__(self) -> None:
        self.captures: list[Capture] = []
        self.parts: list[dict[str, Columns]] = []
        self.collectives: list[dict[str, Columns]] = []
        self.problems: list[tuple[str, str]] = []
        self.warnings: list[str] = []
        self.set_aside: list[tuple[str, Counter[str]]] = []
        self.device_categories: set[str] = set()

    def discard(self, reader: Reader) -> Reader:
        """Drop the tables of a file that failed halfway, and keep what the codes mean."""
        fresh = Reader()
        fresh.strings, fresh.threads, fresh.lanes = reader.strings, reader.threads, reader.lanes
        fresh.counts = reader.counts
        return fresh

    def add(self, path: Path, reader: Reader) -> None:
        """Read a file and take its rows over from the reader."""
        reader.tables.clear()
        reader.collectives.clear()
        reader.metadata.clear()
        content = read_file(path, reader)
        meta = content.metadata
        capture = Capture(path.name, path.stat().st_size if path.exists() else 0, meta)
        capture.base_ns = metadata.as_int(meta.get("baseTimeNanoseconds")) or 0
        capture.devices = metadata.device_names(meta)
        capture.processes = metadata.process_names(reader.metadata)
        tables = {category: table.arrays() for category, table in reader.tables.items()}
        collectives = {
            category: {"row": np.array(rows, np.int64)} | {k: v for k, v in table.arrays().items() if k in table.columns}
            for category, (rows, table) in reader.collectives.items()
        }
        strings = list(reader.strings)
        device_categories = self._keep_device_rows(tables, collectives, capture, reader, strings)
        set_aside = self._set_times_straight(tables, collectives, capture, device_categories)
        other = next((each for each in self.captures if _overlap(each, capture)), None)
        if other:
            self.problems.append((path.name, f"overlaps in time with {other.name} of the same rank; not used"))
            return
        if content.repairs:
            what = ", ".join(f"{count} {slip}" for slip, count in sorted(content.repairs.items()))
            self.warnings.append(f"{path.name}: repaired: {what}")
        if set_aside:
            what = ", ".join(f"{count} {reason}" for reason, count in sorted(set_aside.items()))
            self.warnings.append(f"{path.name}: events with impossible times set aside: {what}")
        for columns in tables.values():
            columns["capture"] = np.full(len(columns["ts"]), len(self.captures), np.int16)
        self.device_categories |= device_categories
        self.captures.append(capture)
        self.parts.append(tables)
        self.collectives.append(collectives)

    def _keep_device_rows(
        self,
        tables: dict[str, Columns],
        collectives: dict[str, Columns],
        capture: Capture,
        reader: Reader,
        strings: list[str],
    ) -> set[str]:
        """Class the rows of the device's categories; rows that are no work become host rows."""
        if "" in tables:  # Rows without a category: those of an NPU are device work, others are not.
            npu = {pid for pid, name in capture.processes.items() if name == classify.NPU_PROCESS}
            on_npu = np.array([pid in npu for pid, _ in reader.threads], np.bool_)
            _move(tables, "", on_npu[tables[""]["thread"]], "NPU")
        categories = {c for c in tables if c in classify.KERNEL_CATEGORIES | classify.COPY_CATEGORIES or c == "NPU"}
        for category in sorted(categories):
            columns = tables[category]
            codes, inverse = np.unique(columns["name"], return_inverse=True)
            names = [strings[code] for code in codes.tolist()]
            if category in classify.COPY_CATEGORIES:
                columns["kind"] = np.full(len(inverse), classify.MEMORY, np.int8)
                continue
            kinds = classify.kinds_of_names(names)[inverse]
            if category in collectives:
                kinds[collectives[category]["row"]] = classify.COMM
            columns["kind"] = kinds
            idle = classify.no_work(names)[inverse]
            if idle.any():
                _drop(tables, collectives, category, ~idle)
        if "" in tables:
            tables[""].pop("lane")
        return categories

    def _set_times_straight(
        self,
        tables: dict[str, Columns],
        collectives: dict[str, Columns],
        capture: Capture,
        device_categories: set[str],
    ) -> Counter[str]:
        """Drop rows without times, set impossible ones aside, add the base time."""
        for category, columns in tables.items():
            complete = (columns["ts"] != MISSING) & (columns["dur"] != MISSING)
            if not complete.all():
                _drop(tables, collectives, category, complete)
        first_stamp = min((int(t["ts"][t["ts"] != 0].min()) for t in tables.values() if (t["ts"] != 0).any()), default=0)
        set_aside = Counter[str]()
        for category in list(tables):
            columns = tables[category]
            if not len(columns["ts"]):
                del tables[category]
                continue
            kind = "device" if category in device_categories else "host"
            faults = {
                f"{kind} events ending before they start": columns["dur"] < 0,
                f"{kind} events longer than seven days": columns["dur"] > _WEEK_NS,
                f"{kind} events at time 0": (columns["ts"] == 0) & (first_stamp > _HOUR_NS),
            }
            bad = np.zeros(len(columns["ts"]), np.bool_)
            for reason, rows in faults.items():
                set_aside[reason] += int((rows & ~bad).sum())
                bad |= rows
            if bad.any():
                _drop(tables, collectives, category, ~bad)
            columns = tables[category]
            if capture.base_ns:
                columns["ts"] += capture.base_ns
            if len(columns["ts"]):
                first, last = int(columns["ts"].min()), int((columns["ts"] + columns["dur"]).max())
                capture.first_ns = first if capture.first_ns is None else min(first, capture.first_ns)
                capture.last_ns = last if capture.last_ns is None else max(last, capture.last_ns)
        return +set_aside

    def build(self, reader: Reader) -> Loaded:
        """Join the captures, in order of time."""
        order = sorted(range(len(self.captures)), key=lambda n: (self.captures[n].first_ns or 0, n))
        captures = tuple(self.captures[n] for n in order)
        for number, position in enumerate(order):
            for columns in self.parts[position].values():
                columns["capture"][:] = number
        categories = sorted({category for part in self.parts for category in part})
        tables, collectives = dict[str, Columns](), dict[str, Columns]()
        for category in categories:
            parts = [self.parts[n][category] for n in order if category in self.parts[n]]
            tables[category] = {key: np.concatenate([p[key] for p in parts]) for key in parts[0]} if parts[1:] else parts[0]
            offset, found = 0, []
            for n in order:
                if category in self.collectives[n]:
                    columns = self.collectives[n][category]
                    found.append(columns | {"row": columns["row"] + offset})
                offset += len(self.parts[n][category]["ts"]) if category in self.parts[n] else 0
            if found:
                collectives[category] = {key: np.concatenate([p[key] for p in found]) for key in found[0]}
        warnings = (*self.warnings, *_differences(captures))
        return Loaded(
            tables,
            collectives,
            list(reader.strings),
            list(reader.threads),
            [lane_of(written) for written in reader.lanes],
            captures,
            dict(reader.counts),
            frozenset(self.device_categories),
            warnings,
            tuple(self.problems),
        )


def lane_of(written: tuple[Any, ...]) -> tuple[Any, Any]:
    """Device and stream of a device row: its arguments, else its process and thread id."""
    device, stream, queue, stream_id, pid, tid = written
    chosen = next((value for value in (stream, queue, stream_id) if value is not None), tid)
    return tuple(value if (number := metadata.as_int(value)) is None else number for value in (
        pid if device is None else device, chosen))  # type: ignore[return-value]  # fmt: skip


def _move(tables: dict[str, Columns], source: str, rows: NDArray[np.bool_], target: str) -> None:
    moved = {key: values[rows] for key, values in tables[source].items()}
    tables[source] = {key: values[~rows] for key, values in tables[source].items()}
    if rows.any():
        tables[target] = moved


def _drop(
    tables: dict[str, Columns], collectives: dict[str, Columns], category: str, keep: NDArray[np.bool_]
) -> None:
    """Keep some rows of a category, and of its collectives."""
    tables[category] = {key: values[keep] for key, values in tables[category].items()}
    if category in collectives:
        columns = collectives[category]
        kept = keep[columns["row"]]
        position = np.cumsum(keep) - 1
        collectives[category] = {key: values[kept] for key, values in columns.items()}
        collectives[category]["row"] = position[columns["row"][kept]]


def _overlap(one: Capture, other: Capture) -> bool:
    if one.first_ns is None or one.last_ns is None or other.first_ns is None or other.last_ns is None:
        return False
    return one.first_ns < other.last_ns and other.first_ns < one.last_ns


def _differences(captures: tuple[Capture, ...]) -> list[str]:
    """Warnings about files of one rank that look like two runs."""
    warnings = []
    for one, other in zip(captures, captures[1:], strict=False):
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
            warnings.append(f"{one.name} and {other.name}, taken as captures of one rank, {' and '.join(reasons)}: two runs?")
    return warnings
