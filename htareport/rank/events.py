"""The events of a rank as tables: by category as they stand in the file, device work by start, and its launches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.rank.launch_links import UNLINKED, launches_of
from htareport.rank.steps import step_of
from htareport.rows import classify
from htareport.rows.capture import Loaded
from htareport.rows.columns import Columns
from htareport.rows.schema import COPY, CORRELATION, LAUNCH, OPERATOR, SYNC

KIND_DTYPE = pd.CategoricalDtype([str(kind) for kind in classify.KINDS])
_DEVICE_KEYS = ("name", "ts", "dur", "lane", "kind", "correlation", "capture", "source", "row")
_INTEGERS = frozenset(arg.column for arg in (CORRELATION, *COPY, *OPERATOR, *SYNC) if arg.kind == "int") | {"dur"}
_UNSEEN = {"types", "inputs"} | {arg.column for arg in LAUNCH}  # Codes of text, and how kernels were launched.
_LAUNCH_KEYS = ("name", "ts", "dur", "thread", "correlation", "capture", "source", "row")
_STACKED = {**dict.fromkeys(_INTEGERS, np.int64), "thread": np.int32}  # What is calculated with.


class Events(Mapping[str, pd.DataFrame]):
    """The complete events of a rank by category, each a DataFrame in file order; the length is that of all together.

    Columns: name (category), ts, dur (int64 ns; ts counts from the base time of the files, mostly the epoch), pid, tid,
    for device rows device, stream and kind (category: compute, comm, memory), then the arguments of the category:
    correlation (int64, -1 none), bytes, bandwidth (GB/s), and capture.
    """

    def __init__(self, loaded: Loaded, names: pd.CategoricalDtype) -> None:
        self._loaded, self._names = loaded, names

    def __getitem__(self, category: str) -> pd.DataFrame:
        columns, threads, lanes = self._loaded.tables[category], self._loaded.threads, self._loaded.lanes
        name = pd.Categorical.from_codes(columns["name"], dtype=self._names)
        columns = {key: values.astype(np.int64) if key in _INTEGERS else values for key, values in columns.items()}
        out: dict[str, Any] = {"name": name, "ts": columns["ts"], "dur": columns["dur"]}
        out["pid"], out["tid"] = (as_array([t[i] for t in threads])[columns["thread"]] for i in (0, 1))
        if "lane" in columns:
            out["device"], out["stream"] = (as_array([lane[i] for lane in lanes])[columns["lane"]] for i in (0, 1))
            out["kind"] = pd.Categorical.from_codes(columns["kind"], dtype=KIND_DTYPE)
        rest = {name: values for name, values in columns.items() if name not in {*out, *_UNSEEN, "thread", "lane"}}
        return pd.DataFrame(out | rest)

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded.tables)

    def __len__(self) -> int:
        return sum(len(columns["ts"]) for columns in self._loaded.tables.values())


def as_array(values: list[Any]) -> NDArray[Any]:
    """An array of int64 if all values are such integers, else of objects."""
    if all(isinstance(value, int) and -(2**63) <= value < 2**63 for value in values):
        return np.array(values, np.int64)
    out = np.empty(len(values), object)
    out[:] = values
    return out


def launch_table(loaded: Loaded, names: pd.CategoricalDtype) -> pd.DataFrame:
    """Runtime and driver calls by start; for their columns see Rank.launches."""
    tables = [
        _numbered(number, columns)
        for number, (category, columns) in enumerate(loaded.tables.items())
        if classify.is_runtime(category)
    ]
    columns = _stacked(tables, _LAUNCH_KEYS)
    _sort(columns, np.argsort(columns["ts"], kind="stable"))
    is_graph = np.array([classify.is_graph_launch(name) for name in loaded.strings], np.bool_)
    return pd.DataFrame(
        {
            "name": pd.Categorical.from_codes(columns["name"], dtype=names),
            "ts": columns["ts"],
            "end": columns["ts"] + columns["dur"],
            "dur": columns["dur"],
            "thread": columns["thread"],
            "correlation": columns["correlation"],
            "capture": columns["capture"],
            "graph": is_graph[columns["name"]],
            "source": columns["source"],
            "row": columns["row"],
        },
        copy=False,
    )


def device_table(
    loaded: Loaded, names: pd.CategoricalDtype, launches: pd.DataFrame, steps: pd.DataFrame
) -> pd.DataFrame:
    """Work of the devices by start; for its columns see Rank.device_events."""
    tables = [
        _numbered(number, columns)
        for number, (category, columns) in enumerate(loaded.tables.items())
        if category in loaded.device_categories
    ]
    columns = _stacked(tables, _DEVICE_KEYS)
    _sort(columns, np.lexsort((columns["ts"] + columns["dur"], columns["ts"])))
    correlations, captures, starts = (launches[name].to_numpy() for name in ("correlation", "capture", "ts"))
    launch = launches_of(columns["correlation"], columns["capture"], correlations, captures)
    launched = columns["ts"].copy()
    launched[launch != UNLINKED] = starts[launch[launch != UNLINKED]]
    device, stream = (as_array([lane[i] for lane in loaded.lanes])[columns["lane"]] for i in (0, 1))
    return pd.DataFrame(
        {
            "name": pd.Categorical.from_codes(columns["name"], dtype=names),
            "ts": columns["ts"],
            "end": columns["ts"] + columns["dur"],
            "dur": columns["dur"],
            "kind": pd.Categorical.from_codes(columns["kind"], dtype=KIND_DTYPE),
            "lane": columns["lane"],
            "device": device,
            "stream": stream,
            "correlation": columns["correlation"],
            "launch": launch.astype(np.int32),
            "step": step_of(steps, launched),
            "capture": columns["capture"],
            "source": columns["source"],
            "row": columns["row"],
        },
        copy=False,
    )


def collective_table(loaded: Loaded) -> pd.DataFrame:
    """Arguments of collectives, by `source` and `row` of the device events that have them."""
    parts = [
        pd.DataFrame({"source": np.full(len(columns["row"]), number, np.int16), **columns})
        for number, category in enumerate(loaded.tables)
        if (columns := loaded.collectives.get(category))
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame({"source": [], "row": []}, dtype="int64")


def _numbered(number: int, columns: Columns) -> Columns:
    """Columns that know where they come from: the number of their table, and the row in it."""
    size = len(columns["ts"])
    return {**columns, "source": np.full(size, number, np.int16), "row": np.arange(size, dtype=np.int32)}


def _stacked(tables: list[Columns], keys: tuple[str, ...]) -> Columns:
    if not tables:
        return {key: np.zeros(0, np.int64) for key in keys}
    return {key: np.concatenate([table[key] for table in tables], dtype=_STACKED.get(key)) for key in keys}


def _sort(columns: Columns, order: NDArray[np.intp]) -> None:
    """Bring columns into an order, one at a time so that no two copies of all are there."""
    for key in columns:
        columns[key] = columns[key][order]


def copy_table(loaded: Loaded, events: pd.DataFrame) -> pd.DataFrame:
    """The device events of the categories of copies and fills, with copy_kind, bytes (-1 none), bandwidth (GB/s)."""
    parts = []
    for number, (category, columns) in enumerate(loaded.tables.items()):
        if category in classify.COPY_CATEGORIES:
            mine = events[events["source"] == number]
            rows = mine["row"].to_numpy()
            kinds = {name: classify.copy_kind(name) for name in mine["name"].unique()}
            copies = mine.assign(copy_kind=mine["name"].astype(object).map(kinds))
            sizes = columns["bytes"][rows].astype(np.int64)
            parts.append(copies.assign(bytes=sizes, bandwidth=columns["bandwidth"][rows]))
    empty = events.iloc[:0].assign(copy_kind="", bytes=np.int64(0), bandwidth=0.0)
    return pd.concat(parts).sort_index() if parts else empty
