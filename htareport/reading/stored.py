"""A rank as it was read, in one file: what `cache` keeps.

The file is a zip that packs nothing itself, so that every member has its checksum: `rank.json` says what there is;
each table, the collectives and memory events, and the texts are a Parquet file of their own. Nothing in it is code, and
whatever it says is checked against its lengths before it is believed.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from htareport.rows import classify
from htareport.rows.capture import Capture, Loaded, Salvaged, Slip
from htareport.rows.columns import NONE, Columns
from htareport.rows.options import ReadOptions
from htareport.rows.schema import CODED_COLUMNS, POSITION

# Fields that are written as they are, of a file and of a rank.
CAPTURE_FIELDS = ("name", "size", "meta", "base_ns", "first_ns", "last_ns", "host", "events")
_DTYPES = frozenset({"int8", "int16", "int32", "int64", "float64"})
_ALWAYS = ("ts", "dur", "name", "thread", "capture")  # Columns of every table.
_HEADER, _STRINGS = "rank.json", "strings.parquet"
_MAX_ROWS = 2**31  # Rows are numbered in 32 bits.
_PARQUET = {"compression": "zstd", "compression_level": 1, "use_dictionary": False, "write_statistics": False}

Described: TypeAlias = list[list[Any]]  # Of each column its name, its type, and its one value where it has no rows.


def write(loaded: Loaded, paths: Sequence[Path], file: IO[bytes], name: str) -> None:
    """Write a rank that was read from these files under a name. ValueError for texts that no file can hold."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        header = {
            "name": name,
            "tables": [[name, *_write_columns(archive, columns)] for name, columns in loaded.tables.items()],
            "collectives": [[name, *_write_columns(archive, columns)] for name, columns in loaded.collectives.items()],
            "memory": _write_columns(archive, loaded.memory) if loaded.memory else None,
            "strings": len(loaded.strings),
            "threads": loaded.threads,
            "lanes": loaded.lanes,
            "captures": [_capture(capture) | {"path": paths.index(capture.path)} for capture in loaded.captures],
            "counts": dict(loaded.counts),
            "device_categories": sorted(loaded.device_categories),
            "warnings": loaded.warnings,
            "problems": loaded.problems,
        }
        strings = pa.table([pa.array(loaded.strings, pa.large_string())], _schema([("text", pa.large_string())]))
        archive.writestr(_STRINGS, _parquet(strings, {}))
        archive.writestr(_HEADER, json.dumps(header, separators=(",", ":")))


def read(file: Path, paths: Sequence[Path], options: ReadOptions, *, numbered: bool) -> Loaded:
    """Return a rank as it was read from these files. What is raised where the file does not hold one may be anything.

    Where it was read with the place of each event, those are left out unless asked for.
    """
    with zipfile.ZipFile(file) as archive:
        header = json.loads(archive.read(_HEADER))
        if header["name"] != file.stem:
            raise ValueError("it was kept under another name")
        strings = _parquet_file(archive.read(_STRINGS)).read(use_threads=False)["text"].to_pylist()
        tables = {name: _read_columns(archive, *member, numbered=numbered) for name, *member in header["tables"]}
        collectives = {
            name: _read_columns(archive, *member, numbered=numbered) for name, *member in header["collectives"]
        }
        memory = _read_columns(archive, *header["memory"], numbered=numbered) if header["memory"] else {}
    loaded = Loaded(
        tables=tables,
        collectives=collectives,
        memory=memory,
        strings=strings,
        threads=[(pid, tid) for pid, tid in header["threads"]],
        lanes=[(device, stream) for device, stream in header["lanes"]],
        captures=tuple(_as_capture(capture, paths, options) for capture in header["captures"]),
        counts=Counter(header["counts"]),
        device_categories=frozenset(header["device_categories"]),
        warnings=tuple(header["warnings"]),
        problems=tuple((name, reason) for name, reason in header["problems"]),
    )
    _check(loaded, header["strings"])
    return loaded


# --- columns


def _write_columns(archive: zipfile.ZipFile, columns: Columns) -> list[Any]:
    """Write columns to a member of their own; return its number, their length, and what they are."""
    number, described = len(archive.namelist()), Described()
    rows, full = len(next(iter(columns.values()))), Columns()
    for name, values in columns.items():
        is_one = bool(rows) and values.strides == (0,)  # The number of the only capture, which takes no room.
        described.append([name, values.dtype.name, values[0].item() if is_one else None])
        if not is_one:
            full[name] = values
    fields = [(name, pa.from_numpy_dtype(values.dtype)) for name, values in full.items()]
    table = pa.table([pa.array(values) for values in full.values()], _schema(fields))
    encoding = {
        name: "BYTE_STREAM_SPLIT" if values.dtype.kind == "f" else "DELTA_BINARY_PACKED"
        for name, values in full.items()
    }
    archive.writestr(_member(number), _parquet(table, encoding))
    return [number, rows, described]


def _read_columns(archive: zipfile.ZipFile, number: int, rows: int, described: Described, *, numbered: bool) -> Columns:
    """Read columns back, one at a time: each is a view of what was unpacked, and no second copy is made of it."""
    file, columns = _parquet_file(archive.read(_member(number))), Columns()
    if not 0 <= rows < _MAX_ROWS or file.metadata.num_rows != rows:
        raise ValueError(f"not {rows} rows")
    for name, dtype, only in described:
        if dtype not in _DTYPES:
            raise ValueError(f"columns of {dtype}")
        if name == POSITION and not numbered:
            continue
        if only is not None:
            columns[name] = np.broadcast_to(np.dtype(dtype).type(only), rows)
            continue
        chunks = file.read([name], use_threads=False)[name].chunks
        arrays = [chunk.to_numpy(zero_copy_only=True) for chunk in chunks] or [np.zeros(0, dtype)]
        columns[name] = values = np.concatenate(arrays) if arrays[1:] else arrays[0]
        if values.dtype.name != dtype:
            raise ValueError(f"{name} is no {dtype}")
    return columns


def _member(number: int) -> str:
    return f"{number}.parquet"


def _schema(fields: Sequence[tuple[str, Any]]) -> Any:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in fields])


def _parquet(table: Any, encoding: dict[str, str]) -> bytes:
    """A table as the text of a Parquet file, all rows in one group: what is read is then one piece of memory."""
    out = io.BytesIO()
    pool = pa.system_memory_pool()  # Gives back at once what it no longer needs.
    options = {**_PARQUET, "column_encoding": encoding or None, "memory_pool": pool}
    with pq.ParquetWriter(out, table.schema, **options) as writer:
        writer.write_table(table, row_group_size=max(1, len(table)))
    return out.getvalue()


def _parquet_file(data: bytes) -> Any:
    return pq.ParquetFile(pa.BufferReader(data), memory_map=False, pre_buffer=False)


# --- what is known of the files


def _capture(capture: Capture) -> dict[str, Any]:
    return {
        **{name: getattr(capture, name) for name in CAPTURE_FIELDS},
        "devices": list(capture.devices.items()),  # Their keys are no texts.
        "processes": list(capture.processes.items()),
        "slips": [[what, asdict(slip)] for what, slip in capture.slips.items()],
        "set_aside": [[*which, count] for which, count in capture.set_aside.items()],
        "salvaged": asdict(capture.salvaged) if capture.salvaged else None,
    }


def _as_capture(stored: dict[str, Any], paths: Sequence[Path], options: ReadOptions) -> Capture:
    return Capture(
        **{name: stored[name] for name in CAPTURE_FIELDS},
        devices=dict(stored["devices"]),
        processes=dict(stored["processes"]),
        slips={what: Slip(**slip) for what, slip in stored["slips"]},
        set_aside=Counter({(kind, reason): count for kind, reason, count in stored["set_aside"]}),
        salvaged=Salvaged(**stored["salvaged"]) if stored["salvaged"] else None,
        path=paths[stored["path"]],
        options=options,
    )


# --- what has to hold


def _check(loaded: Loaded, strings: int) -> None:
    """Raise ValueError where a code has no meaning, or columns of one table are of different lengths."""
    if len(loaded.strings) != strings:
        raise ValueError(f"not {strings} texts")
    codes = {"thread": len(loaded.threads), "lane": len(loaded.lanes), "capture": len(loaded.captures)}
    codes |= {"kind": len(classify.KINDS), **dict.fromkeys(CODED_COLUMNS, strings)}
    for columns in (*loaded.tables.values(), *loaded.collectives.values(), loaded.memory):
        rows = len(next(iter(columns.values()), ()))
        for column, values in columns.items():
            if len(values) != rows:
                raise ValueError(f"{column} has {len(values)} rows of {rows}")
            if column in codes and not _are_codes(values, codes[column]):
                raise ValueError(f"{column} goes beyond what it counts")
    for category, columns in loaded.collectives.items():
        if not _are_codes(columns["row"], len(loaded.tables[category]["ts"])):
            raise ValueError("collectives of rows that are not there")
    if any(column not in columns for columns in loaded.tables.values() for column in _ALWAYS):
        raise ValueError("a column is missing")


def _are_codes(codes: NDArray[Any], size: int) -> bool:
    return not len(codes) or (codes.min() >= NONE and codes.max() < size)
