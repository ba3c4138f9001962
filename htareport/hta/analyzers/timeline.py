"""Timelines of device work. Times are µs."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from htareport.hta.common.timeline import EventType, TimelinePlotSetting, plot_events_timeline, prepare_timeline_events
from htareport.hta.common.trace import Trace
from htareport.hta.common.trace_symbol_table import TraceSymbolTable

Numbers = Sequence[int] | None


def plot_timeline(title: str, events: pd.DataFrame, ranks: Numbers = None) -> None:
    """Draw prepared events, of some ranks (all for None)."""
    plot_events_timeline(title, _selected(events, "rank", ranks), TimelinePlotSetting())


def prepare_timeline_gpu_events(
    df: pd.DataFrame,
    symbol_table: TraceSymbolTable | None = None,
    ranks: Numbers = None,
    iterations: Numbers = None,
    streams: Numbers = None,
    duration_threshold: int = 1000,
) -> pd.DataFrame:
    """Return the device work to show, shorter events `duration_threshold` long; see prepare_timeline_events."""
    for name, numbers in (("rank", ranks), ("iteration", iterations), ("stream", streams)):
        df = _selected(df, name, numbers)
    setting = TimelinePlotSetting(
        event_type=EventType.GPUEvents, multi_ranks="rank" in df, short_events_display_duration=duration_threshold
    )
    return prepare_timeline_events(df, setting, symbol_table)


def plot_timeline_gpu_kernels(
    title: str,
    df: pd.DataFrame,
    symbol_table: TraceSymbolTable | None = None,
    ranks: Numbers = None,
    iterations: Numbers = None,
    streams: Numbers = None,
    duration_threshold: int = 1000,
) -> None:
    """Draw the device work of a frame, of some ranks, steps and streams (all for None)."""
    plot_timeline(title, prepare_timeline_gpu_events(df, symbol_table, ranks, iterations, streams, duration_threshold))


def plot_timeline_gpu_kernels_from_trace(
    title: str,
    trace_data: Trace,
    ranks: Numbers = None,
    iterations: Numbers = None,
    streams: Numbers = None,
    duration_threshold: int = 1000,
) -> None:
    """Draw the device work of some ranks of a run."""
    selected = sorted(trace_data.run.load()) if ranks is None else ranks
    frames = pd.concat([trace_data.get_trace(rank).assign(rank=rank) for rank in selected], ignore_index=True)
    plot_timeline_gpu_kernels(title, frames, None, None, iterations, streams, duration_threshold)


def _selected(df: pd.DataFrame, name: str, numbers: Numbers) -> pd.DataFrame:
    return df if numbers is None or name not in df else df[df[name].isin(list(numbers))]
