"""A rank's events as one frame, with HTA's columns and exact times."""

from __future__ import annotations

import re
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

_OWN = ("stream", "correlation")  # Columns that come from the loader, which knows them better than one argument does.
_NO_WORK = re.compile(r" \(no work\)'*$")  # What the loader calls records and waits among kernels.
_TRAILING_NUMBER = re.compile(r"(\d+)$")
_NONE = -1


def trace_frame(trace: Rank, zero_ns: int, config: ParserConfig) -> pd.DataFrame:
    """Complete events in the order of the file, by `index`, their place among all events of it.

    Columns: index, cat, name (text), pid, tid, ts, dur, end (µs, ts and end from `zero_ns` on), stream (of device work;
    -1 for all else), correlation (-1: none), those of the configuration, index_correlation (the launch of device work,
    the first device work of a launch; -1: none), iteration (number of the profiler step, -1: none).
    """
    base = _base(trace, zero_ns)
    keep = ~base["cat"].isin(_skipped(config)) & _within_window(trace, base)
    frame = base[keep].sort_values("index", kind="stable").drop(columns=["source", "row", "capture", "ns"])
    linked = frame.pop("index_correlation"), frame.pop("iteration")
    index = frame["index"].to_numpy()
    for spec, values in _arguments(trace, config):
        if not config.parse_all_args or np.isin(values.places, index).any():
            frame[spec.name] = _column(spec, values, index)
    frame["index_correlation"], frame["iteration"] = linked
    return frame.set_index("index", drop=False).rename_axis(None)


def _skipped(config: ParserConfig) -> set[str]:
    return {*config.skip_event_types, *(["gpu_user_annotation"] if config.drop_gpu_user_annotation else [])}


def _base(trace: Rank, zero_ns: int) -> pd.DataFrame:
    """All rows of the events table, one category after the other, with the columns that need no arguments."""
    loaded, tables = trace.loaded, trace.loaded.tables
    sizes = [len(columns["ts"]) for columns in tables.values()]
    number = np.repeat(np.arange(len(sizes)), sizes)

    def stacked(name: str) -> NDArray[np.int64]:
        parts = [c[name] if name in c else np.full(len(c["ts"]), _NONE) for c in tables.values()]
        return np.concatenate([*parts, np.zeros(0, np.int64)])

    rows = pd.DataFrame({"source": number, "row": np.concatenate([*map(np.arange, sizes), np.zeros(0, np.int64)])})
    rows["capture"] = stacked("capture")
    ts, dur, thread = stacked("ts") - zero_ns, stacked("dur"), stacked("thread")
    rows["ns"] = stacked("ts")
    pids, tids = (as_array([thread[i] for thread in loaded.threads])[thread] for i in (0, 1))
    categories = np.array([_NO_WORK.sub("", category) for category in tables], object)
    links = _Links(trace, sizes)
    index = index_of(trace, rows)
    return rows.assign(
        index=index,
        cat=categories[number],
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
    """What the device events of a rank say about rows, which are numbered through all categories."""

    def __init__(self, trace: Rank, sizes: list[int]) -> None:
        self._trace, self._size = trace, sum(sizes)
        starts = np.cumsum([0, *sizes])
        self._device = starts[trace.device_events["source"]] + trace.device_events["row"].to_numpy()
        self._launches = starts[trace.launches["source"]] + trace.launches["row"].to_numpy()

    def streams(self) -> NDArray[np.int64]:
        """Stream of each row, -1 for all but device work."""
        out = np.full(self._size, _NONE, np.int64)
        out[self._device] = _numbers(self._trace.device_events["stream"])
        return out

    def index_correlation(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Index of the launch of each device row, and of the first device row of each launch."""
        out = np.full(self._size, _NONE, np.int64)
        launch = self._trace.device_events["launch"].to_numpy()
        device, launch = self._device[launch >= 0], self._launches[launch[launch >= 0]]
        out[launch[::-1]] = index[device[::-1]]  # Of several the first is written last.
        out[device] = index[launch]
        return out

    def iterations(self, stamps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of the step that each row starts in, or is launched in."""
        out = step_of(self._trace.steps, stamps).astype(np.int64)
        out[self._device] = self._trace.device_events["step"].to_numpy()
        return out


def _numbers(streams: pd.Series[Any]) -> NDArray[np.int64]:
    """Streams as numbers: those that the file writes as text by the number at their end, else 0."""
    if streams.dtype != object:
        return streams.to_numpy(np.int64)
    numbers = {each: _TRAILING_NUMBER.search(str(each)) for each in streams.unique()}
    return streams.map({each: int(match[1]) if match else 0 for each, match in numbers.items()}).to_numpy(np.int64)


def _within_window(trace: Rank, base: pd.DataFrame) -> NDArray[np.bool_]:
    """Without the last step: rows of the host that start before it, and device work that the window holds."""
    steps = trace.narrowed(ALL).steps
    if trace.window == ALL or len(steps) < 2:  # noqa: PLR2004  nothing would be left
        return np.ones(len(base), np.bool_)
    categories = [category in trace.loaded.device_categories for category in trace.loaded.tables]
    on_device = np.array([*categories, False])[base["source"].to_numpy()]
    return np.where(on_device, base["stream"] >= 0, base["ns"] < steps["start"].max()).astype(np.bool_)


# --- arguments ------------------------------------------------------------------------------


def _arguments(trace: Rank, config: ParserConfig) -> list[tuple[AttributeSpec, Values]]:
    """The arguments that become columns, over all files of the rank, by the index of their events."""
    everything = config.parse_all_args and config.selected_arg_keys is None
    specs = {} if everything else {spec.raw_name: spec for spec in config.selected() if spec.name not in _OWN}
    if not specs and not everything:
        return []
    found: dict[str, list[Values]] = {}
    before = 0
    for capture in trace.captures:
        wanted = None if everything else set(specs)
        for name, values in read_arguments(capture.path, wanted, capture.options).items():
            found.setdefault(name, []).append(Values(values.places + before, values.given))
        before += capture.events
    if everything:
        known = {spec.raw_name: spec for spec in AVAILABLE_ARGS.values() if not spec.name.startswith("name")}
        specs = {
            name: known.get(name) or config.make_attribute_spec(name, parts[0].given[0])
            for name, parts in found.items()
        }
    empty = [Values(np.zeros(0, np.int64), [])]
    return [(spec, _joined(found.get(name, empty))) for name, spec in specs.items() if spec.name not in _OWN]


def _joined(parts: list[Values]) -> Values:
    return Values(np.concatenate([part.places for part in parts]), [each for part in parts for each in part.given])


def _column(spec: AttributeSpec, values: Values, index: NDArray[np.int64]) -> NDArray[Any]:
    """A column of an argument: its value for the events that have one, of the column's type, else the default."""
    at = np.searchsorted(index, values.places)
    there = at < len(index)
    there[there] = index[at[there]] == values.places[there]
    chosen = [value for value, fits in zip(values.given, there.tolist(), strict=True) if fits]
    if spec.value_type in (ValueType.Int, ValueType.Float):
        kind = np.int64 if spec.value_type is ValueType.Int else np.float64
        numbers = pd.to_numeric(pd.Series(chosen, dtype=object), errors="coerce").to_numpy(np.float64)
        fine = np.isfinite(numbers)
        exact = [value for value, is_fine in zip(chosen, fine.tolist(), strict=True) if is_fine]
        out: NDArray[Any] = np.full(len(index), spec.default_value, kind)
        out[at[there][fine]] = [kind(value) for value in exact]
        return out
    out = np.full(len(index), None, object)
    out[:] = [spec.default_value] * len(index)
    out[at[there]] = pd.Series(
        [str(v) for v in chosen] if spec.value_type is ValueType.String else chosen, dtype=object
    )
    return out
