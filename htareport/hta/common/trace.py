"""HTA's `Trace`: the events of a run as one frame for each rank. Times are µs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import pandas as pd

from htareport.files.locations import paths_of
from htareport.hta.common.frames import trace_frame
from htareport.hta.common.links import (
    add_fwd_bwd_links,
    add_iteration,
    get_cpu_gpu_correlation,
    transform_correlation_to_index,
)
from htareport.hta.common.trace_df import get_iterations
from htareport.hta.common.trace_file import read_trace, write_trace
from htareport.hta.common.trace_parser import MetaData, MetaDataKey, infer_gpu_type, parse_trace_file
from htareport.hta.common.trace_symbol_table import TraceSymbolTable, decode_symbol_id_to_symbol_name
from htareport.hta.configs.default_values import DEFAULT_TRACE_DIR
from htareport.hta.configs.parser_config import ParserConfig
from htareport.hta.loading import Run, open_trace
from htareport.hta.units import PER_US
from htareport.rank.rank import Rank
from htareport.rank.window import ALL, Window

__all__ = [
    "MetaData",
    "Trace",
    "add_fwd_bwd_links",
    "add_iteration",
    "get_cpu_gpu_correlation",
    "parse_trace_file",
    "trace_event_timestamp_to_unixtime_ns",
    "transform_correlation_to_index",
]
PHASE_COUNTER, PHASE_FLOW_START, PHASE_FLOW_END = "C", "s", "f"


def trace_event_timestamp_to_unixtime_ns(trace_event_ts_us: float, trace_metadata: MetaData) -> int:
    """Return a time stamp of a file (µs) in ns since 1970. KeyError if the file has no base time."""
    return round(trace_event_ts_us * PER_US) + int(trace_metadata["baseTimeNanoseconds"])


class Trace:
    """The events of a run. The frame of a rank is made on first use.

    `trace_files` is {rank: file or files}, a list of files, or None for all of the folder `trace_dir`. In frames names
    are text, times count from the earliest event of any rank, and only device work has a stream; for the columns see
    `get_trace`.
    """

    def __init__(
        self,
        trace_files: Mapping[int, Any] | Sequence[str] | None = None,
        trace_dir: str | Path = DEFAULT_TRACE_DIR,
        parser_config: ParserConfig | None = None,
    ) -> None:
        self.run = Run(open_trace(trace_files, trace_dir))
        self.parser_config = parser_config or ParserConfig.get_default_cfg()
        self._frames: dict[int, pd.DataFrame] = {}
        self._shortened: bool | None = None  # None: names were not decoded; else whether to short ones.

    @classmethod
    def from_run(cls, run: Run, parser_config: ParserConfig | None = None) -> Self:
        """Return the events of an opened run."""
        trace = cls(run.trace.files, parser_config=parser_config)
        trace.run = run
        return trace

    # --- files and ranks --------------------------------------------------------------------

    @property
    def trace_files(self) -> dict[int, str]:
        """The file of each rank; of several, the first."""
        files = self.run.trace.files
        return {rank: str(paths_of(paths)[0]) for rank, paths in files.items()}

    @property
    def trace_path(self) -> str:
        """The folder of the files."""
        return str(Path(next(iter(self.trace_files.values()))).parent.absolute())

    def rank(self, rank: int) -> Rank:
        """Return the facts of a rank, as analyses use them. ValueError if there is no such rank."""
        if rank not in self.run.trace.files:
            raise ValueError(f"no rank {rank}; there are {list(self.run.trace.files)}")
        return self.run.load([rank])[rank]

    def get_ranks(self) -> list[int]:
        """Return the ranks, in order."""
        return sorted(self.run.trace.files)

    @property
    def is_parsed(self) -> bool:
        """Whether the frames of all ranks are made."""
        return self._frames.keys() >= self.run.ranks.keys() > set()

    # --- frames -----------------------------------------------------------------------------

    def get_trace(self, rank: int) -> pd.DataFrame:
        """Return a rank's events: always the same frame, with added columns. ValueError without such a rank.

        Columns: index, cat, name (text), pid, tid, ts, dur, end, stream (-1 but for device work), correlation, those of
        the parser configuration, index_correlation (launch of device work, first device work of a launch, -1: none) and
        iteration (-1: none); s_name and s_cat after `decode_symbol_ids`.
        """
        if rank not in self._frames:
            frame = trace_frame(self.rank(rank), self.run.start_ns, self.parser_config)
            if self._shortened is not None:
                decode_symbol_id_to_symbol_name(frame, self.symbol_table, self._shortened)
            self._frames[rank] = frame
        return self._frames[rank]

    @property
    def traces(self) -> dict[int, pd.DataFrame]:
        """The frame of each rank that can be read."""
        return {rank: self.get_trace(rank) for rank in sorted(self.run.load())}

    def get_all_traces(self) -> dict[int, pd.DataFrame]:
        """Return the frame of each rank that can be read."""
        return self.traces

    def parse_single_rank(self, rank: int) -> None:
        """Read a rank."""
        self.get_trace(rank)

    def parse_multiple_ranks(
        self, ranks: Iterable[int], use_multiprocessing: bool = True, use_memory_profiling: bool = True
    ) -> None:
        """Read some ranks, in `run.jobs` processes; the switches change nothing."""
        del use_multiprocessing, use_memory_profiling
        for rank in sorted(self.run.load(ranks)):
            self.get_trace(rank)

    def parse_traces(
        self, max_ranks: int = -1, use_multiprocessing: bool = True, use_memory_profiling: bool = True
    ) -> None:
        """Read all ranks, or the first `max_ranks`."""
        ranks = self.get_ranks()[: max_ranks if max_ranks >= 0 else None]
        self.parse_multiple_ranks(ranks, use_multiprocessing, use_memory_profiling)

    def align_and_filter_trace(self, include_last_profiler_step: bool | None = True) -> None:
        """Leave out work that is launched in or after the last profiler step, or do not; times are always aligned."""
        window = ALL if include_last_profiler_step else Window(without_last_step=True)
        if window != self.run.window:
            parsed = list(self._frames)
            self.run, self._frames = self.run.narrowed(window), {}
            self.parse_multiple_ranks(parsed)

    def load_traces(
        self,
        include_last_profiler_step: bool | None = True,
        use_multiprocessing: bool = True,
        use_memory_profiling: bool = True,
    ) -> None:
        """Call align_and_filter_trace, then parse_traces."""
        self.align_and_filter_trace(include_last_profiler_step)
        self.parse_traces(-1, use_multiprocessing, use_memory_profiling)

    def decode_symbol_ids(self, use_shorten_name: bool = True) -> None:
        """Add s_name (short or whole) and s_cat to all frames, also those made later."""
        self._shortened = use_shorten_name
        for frame in self._frames.values():
            decode_symbol_id_to_symbol_name(frame, self.symbol_table, use_shorten_name)

    @cached_property
    def symbol_table(self) -> TraceSymbolTable:
        """Names and categories of all ranks."""
        loaded = [rank.loaded for rank in self.run.load().values()]
        tables = [(rows.strings, table) for rows in loaded for table in rows.tables.values()]
        names = (strings[code] for strings, table in tables for code in pd.unique(table["name"]))
        return TraceSymbolTable([*(category for rows in loaded for category in rows.tables), *names])

    # --- about a rank -----------------------------------------------------------------------

    def _rank_or_first(self, rank: int | None) -> int:
        return self.get_ranks()[0] if rank is None else rank

    def get_iterations(self, rank: int | None = None) -> list[int]:
        """Return the numbers of a rank's profiler steps (of the first rank for None), empty without such a rank."""
        rank = self._rank_or_first(rank)
        return get_iterations(self.get_trace(rank)) if rank in self.get_ranks() else []

    def get_trace_duration(self, rank: int | None = None) -> float:
        """Return the time from the first start to the last end on a rank (the first for None)."""
        trace = self.rank(self._rank_or_first(rank))
        return ((trace.end_ns or 0) - (trace.start_ns or 0)) / PER_US

    @property
    def meta_data(self) -> dict[int, MetaData]:
        """The metadata of each rank's file (of several, the first), and `device_type`."""
        return {rank: self._metadata(rank) for rank in sorted(self.run.load())}

    def _metadata(self, rank: int) -> MetaData:
        trace = self.rank(rank)
        meta = dict(trace.captures[0].meta)
        return meta | {MetaDataKey.DEVICE_TYPE.value: infer_gpu_type(meta, trace.loaded.strings)}

    def get_device_type(self) -> str:
        """Return the kind of device of the first rank: NVIDIA GPU, AMD GPU, MTIA or UNKNOWN GPU."""
        return str(self._metadata(min(self.run.load()))[MetaDataKey.DEVICE_TYPE.value])

    @property
    def min_ts(self) -> float:
        """Zero of the frames' times as a time stamp of the first rank's file (µs)."""
        return (self.run.start_ns - self.rank(min(self.run.load())).captures[0].base_ns) / PER_US

    def get_trace_start_unixtime_ns(self, rank: int) -> int:
        """Return the start of a rank's earliest event in ns since 1970. ValueError if its file has no base time."""
        trace = self.rank(rank)
        if trace.start_ns is None or not trace.captures[0].base_ns:
            raise ValueError(f"rank {rank}: its file gives no base time, or no event")
        return trace.start_ns

    # --- raw events -------------------------------------------------------------------------

    def get_raw_trace_for_one_rank(self, rank: int = 0) -> dict[str, Any]:
        """Return everything in a rank's file (of several, the first) as plain values. ValueError without such a rank.

        All of it is in memory then; `htareport.export.rewrite` changes files without that.
        """
        return read_trace(self.rank(rank).captures[0].path)

    def write_raw_trace(self, output_file: str | Path, trace_contents: Mapping[str, Any]) -> None:
        """Write such values as a trace file; compressed if its name ends with .gz."""
        write_trace(trace_contents, output_file)

    def convert_time_series_to_events(
        self, series: pd.DataFrame, counter_name: str, counter_col: str
    ) -> list[dict[str, Any]]:
        """Return counter events for a series with pid, tid, ts (µs, as in frames) and maybe id; ts as in the file."""
        stamps = (series["ts"] + self.min_ts).tolist()
        ids = series["id"].tolist() if "id" in series else [None] * len(series)
        rows = zip(series["pid"].tolist(), stamps, series[counter_col].tolist(), ids, strict=True)
        return [
            {"ph": PHASE_COUNTER, "name": counter_name, "pid": pid, "ts": ts, "args": {counter_name: value}}
            | ({} if number is None else {"id": number})
            for pid, ts, value, number in rows
        ]

    @staticmethod
    def flow_event(
        id: int,  # noqa: A002  HTA's name
        pid: int,
        tid: int,
        ts: float,
        is_start: bool,
        name: str,
        cat: str,
        args: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the event of one end of an arrow."""
        event = {"ph": PHASE_FLOW_START if is_start else PHASE_FLOW_END, "id": id, "pid": pid, "tid": tid, "ts": ts}
        binding = {} if is_start else {"bp": "e"}
        return {**event, **binding, "cat": cat, "name": name, "args": dict(args or {})}
