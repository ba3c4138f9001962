"""The events of a rank as one frame with HTA's columns; times are exact."""

from __future__ import annotations

import re
from itertools import chain, compress
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.export.numbered import index_of
from htareport.hta.configs.default_values import AttributeSpec, ValueType
from htareport.hta.configs.parser_config import AVAILABLE_ARGS, ParserConfig
from htareport.hta.units import PER_US
from htareport.rank.events import as_array
from htareport.rank.rank import Rank
from htareport.rank.steps import step_of
from htareport.rank.window import ALL
from htareport.reading.arguments import Values, read_arguments

_FROM_LOADER = ("stream", "correlation")  # Columns that the loader works out, from more than one argument.
_NO_WORK = re.compile(r" \(no work\)'*$")  # The loader adds it to the category of records and waits among kernels.
_TRAILING_NUMBER = re.compile(r"(\d+)$")
_MISSING = -1


def trace_frame(rank: Rank, zero_ns: int, config: ParserConfig) -> pd.DataFrame:
    """Return the complete events of a rank in the order of its file, by `index`, their number in it.

    Columns: index, cat, name (text), pid, tid, ts, dur, end (µs, ts and end from `zero_ns` on), stream (of device work;
    -1 for all else), correlation (-1: none), those of the configuration, index_correlation (the launch of device work,
    the first device work of a launch; -1: none), iteration (number of the profiler step, -1: none).
    """
    base = _base(rank, zero_ns)
    is_kept = ~base["cat"].isin(_skipped(config)) & _window_mask(rank, base)
    frame = base[is_kept].sort_values("index", kind="stable").drop(columns=["source", "row", "capture", "ns"])
    last_columns = frame.pop("index_correlation"), frame.pop("iteration")
    indices = frame["index"].to_numpy()
    for spec, values in _arguments(rank, config):
        if not config.parse_all_args or np.isin(values.positions, indices).any():
            frame[spec.name] = _column(spec, values, indices)
    frame["index_correlation"], frame["iteration"] = last_columns
    return frame.set_index("index", drop=False).rename_axis(None)


def _skipped(config: ParserConfig) -> set[str]:
    return {*config.skip_event_types, *(["gpu_user_annotation"] if config.drop_gpu_user_annotation else [])}


def _base(rank: Rank, zero_ns: int) -> pd.DataFrame:
    """All rows of the event tables, category by category, with the columns that need no arguments."""
    loaded, tables = rank.loaded, rank.loaded.tables
    sizes = [len(columns["ts"]) for columns in tables.values()]
    source = np.repeat(np.arange(len(sizes)), sizes)

    def stacked(name: str) -> NDArray[np.int64]:
        columns = [table[name] if name in table else np.full(len(table["ts"]), _MISSING) for table in tables.values()]
        return np.concatenate([*columns, np.zeros(0, np.int64)])

    rows = pd.DataFrame({"source": source, "row": np.concatenate([*map(np.arange, sizes), np.zeros(0, np.int64)])})
    rows["capture"] = stacked("capture")
    ts, dur, thread = stacked("ts") - zero_ns, stacked("dur"), stacked("thread")
    rows["ns"] = stacked("ts")
    pids, tids = (as_array([thread[i] for thread in loaded.threads])[thread] for i in (0, 1))
    categories = np.array([_NO_WORK.sub("", category) for category in tables], object)
    links = _Links(rank, sizes)
    index = index_of(rank, rows)
    return rows.assign(
        index=index,
        cat=categories[source],
        name=np.array([*loaded.strings, ""], object)[stacked("name")],
        pid=pids,
        tid=tids,
        ts=ts / PER_US,
        dur=dur / PER_US,
        end=(ts + dur) / PER_US,
        stream=links.streams(),
        correlation=stacked("correlation"),
        index_correlation=links.index_correlation(index),
        iteration=links.iterations(rows["ns"].to_numpy()),
    )


class _Links:
    """Stream, launch and step of rows, which are numbered through all categories, from the device events of a rank."""

    def __init__(self, rank: Rank, sizes: list[int]) -> None:
        self._rank, self._size = rank, sum(sizes)
        starts = np.cumsum([0, *sizes])
        self._device = starts[rank.device_events["source"]] + rank.device_events["row"].to_numpy()
        self._launches = starts[rank.launches["source"]] + rank.launches["row"].to_numpy()

    def streams(self) -> NDArray[np.int64]:
        """Stream of each row, -1 for all but device work."""
        values = np.full(self._size, _MISSING, np.int64)
        values[self._device] = _numbers(self._rank.device_events["stream"])
        return values

    def index_correlation(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Index of the launch of each device row, and of the first device row of each launch."""
        values = np.full(self._size, _MISSING, np.int64)
        launch = self._rank.device_events["launch"].to_numpy()
        device, launch = self._device[launch >= 0], self._launches[launch[launch >= 0]]
        values[launch[::-1]] = index[device[::-1]]  # The first of several is written last.
        values[device] = index[launch]
        return values

    def iterations(self, stamps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of the step that each row starts in, or is launched in."""
        values = step_of(self._rank.steps, stamps).astype(np.int64)
        values[self._device] = self._rank.device_events["step"].to_numpy()
        return values


def _numbers(streams: pd.Series[Any]) -> NDArray[np.int64]:
    """Streams as numbers; of text the number at its end, 0 without one."""
    if streams.dtype != object:
        return streams.to_numpy(np.int64)
    numbers = {stream: _TRAILING_NUMBER.search(str(stream)) for stream in streams.unique()}
    return streams.map({stream: int(match[1]) if match else 0 for stream, match in numbers.items()}).to_numpy(np.int64)


def _window_mask(rank: Rank, rows: pd.DataFrame) -> NDArray[np.bool_]:
    """Which rows to keep without the last step: host rows that start before it, and device work of the window."""
    steps = rank.narrowed(ALL).steps
    if rank.window == ALL or len(steps) < 2:  # noqa: PLR2004  no step would be left
        return np.ones(len(rows), np.bool_)
    categories = [category in rank.loaded.device_categories for category in rank.loaded.tables]
    on_device = np.array([*categories, False])[rows["source"].to_numpy()]
    return np.where(on_device, rows["stream"] >= 0, rows["ns"] < steps["start"].max()).astype(np.bool_)


# --- arguments ------------------------------------------------------------------------------


def _arguments(rank: Rank, config: ParserConfig) -> list[tuple[AttributeSpec, Values]]:
    """The arguments that become columns, from all files of the rank, with the indices of their events."""
    takes_all = config.parse_all_args and config.selected_arg_keys is None
    specs = {} if takes_all else {spec.raw_name: spec for spec in config.selected() if spec.name not in _FROM_LOADER}
    if not specs and not takes_all:
        return []
    values_by_name: dict[str, list[Values]] = {}
    num_before = 0
    for capture in rank.captures:
        names = None if takes_all else set(specs)
        for name, values in read_arguments(capture.path, names, capture.options).items():
            values_by_name.setdefault(name, []).append(Values(values.positions + num_before, values.items))
        num_before += capture.events
    if takes_all:
        available = {spec.raw_name: spec for spec in AVAILABLE_ARGS.values() if not spec.name.startswith("name")}
        specs = {
            name: available.get(name) or config.make_attribute_spec(name, captures[0].items[0])
            for name, captures in values_by_name.items()
        }
    empty = [Values(np.zeros(0, np.int64), [])]
    columns = {name: spec for name, spec in specs.items() if spec.name not in _FROM_LOADER}
    return [(spec, _joined(values_by_name.get(name, empty))) for name, spec in columns.items()]


def _joined(captures: list[Values]) -> Values:
    indices = np.concatenate([values.positions for values in captures])
    return Values(indices, list(chain.from_iterable(values.items for values in captures)))


def _column(spec: AttributeSpec, values: Values, index: NDArray[np.int64]) -> NDArray[Any]:
    """The column of an argument: its value, as the column's type, for events that have one, else the default."""
    rows = np.searchsorted(index, values.positions)
    is_in_frame = rows < len(index)
    is_in_frame[is_in_frame] = index[rows[is_in_frame]] == values.positions[is_in_frame]
    rows, arguments = rows[is_in_frame], list(compress(values.items, is_in_frame.tolist()))
    if spec.value_type in (ValueType.Int, ValueType.Float):
        dtype = np.int64 if spec.value_type is ValueType.Int else np.float64
        numbers = pd.to_numeric(pd.Series(arguments, dtype=object), errors="coerce").to_numpy(np.float64)
        is_number = np.isfinite(numbers)
        column: NDArray[Any] = np.full(len(index), spec.default_value, dtype)
        column[rows[is_number]] = list(map(dtype, compress(arguments, is_number.tolist())))
        return column
    column = np.full(len(index), None, object)
    column[:] = [spec.default_value] * len(index)
    texts_or_objects = list(map(str, arguments)) if spec.value_type is ValueType.String else arguments
    column[rows] = pd.Series(texts_or_objects, dtype=object)
    return column
