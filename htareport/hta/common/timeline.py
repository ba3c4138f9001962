"""Timelines of events: prepares a frame of the events to show, and draws it as a chart. Times are µs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from htareport.analyses.time.timeline import marks_of
from htareport.errors import UsageError
from htareport.hta.common.trace_filter import AnyFilter
from htareport.hta.common.trace_symbol_table import TraceSymbolTable
from htareport.hta.show import picture, show
from htareport.hta.units import nanoseconds
from htareport.hta.utils.utils import shorten_name
from htareport.rank.events import KIND_DTYPE
from htareport.report import Chart, Mark, Unit
from htareport.rows.classify import kinds_of_names

AnnotationStreamID, CPUStreamID = 0, -1
DefaultMustHaveColumns = ["name", "ts", "dur"]
DefaultHoverColumns = ["trace", "rank", "iteration", "stream", "cat", "index"]
DefaultTaskLabelColumns = ["stream", "rank", "trace", "depth"]
DefaultCallStackHoverColumns = [
    *("name", "cat", "index", "ts", "dur", "rank", "stream", "height", "depth", "tid", "index_correlation"),
]
REQUIRED_COLUMNS_FOR_CPU_GPU_ALIGNMENT = {
    *("index", "stream", "ts", "dur", "name", "first_kernel_start", "kernel_span", "num_kernels"),
}
_START, _END, _TASK = "calibrated_start_global", "calibrated_end_global", "task"
_MAX_MARKS = 3_000
_WORDS = re.compile(r"\s+|_+|-+")
_COLOURS = {"compute": "compute", "comm": "communication", "memory": "memory"}


class EventType(Enum):
    """Where the events to show run."""

    GPUEvents = 0
    CPUEvents = 1
    AllEvents = 2


class PlotFormat(Enum):
    """The output of a timeline: HTML as text, a picture in the notebook, or a file (.html, .svg, .png)."""

    HTML = "html"
    Inline = "inline"
    File = "file"


@dataclass
class TimelinePlotSetting:
    """Which events are shown and how. Amplified, short ones are shown `short_events_display_duration` (µs) long."""

    auto_detect: bool = True
    event_type: EventType = EventType.GPUEvents
    multi_ranks: bool = False
    multi_traces: bool = False
    multi_streams: bool = True
    x_start_column: str = _START
    x_end_column: str = _END
    task_column: str = _TASK
    color_column: str = "name"
    task_height: int = 30
    amplify_short_events: bool = True
    short_events_display_duration: int = 1000
    use_global_time: bool = False
    plot_format: PlotFormat = PlotFormat.Inline
    compress_threads: bool = True


DefaultTimelinePlotSetting = TimelinePlotSetting()


def auto_detect_setting(events: pd.DataFrame, setting: TimelinePlotSetting) -> None:
    """Set in place whether the events are of several ranks, traces and streams, and where they run."""
    several = {name: name in events and events[name].nunique() > 1 for name in ("rank", "trace", "stream")}
    setting.multi_ranks, setting.multi_traces, setting.multi_streams = several.values()
    if "stream" in events and len(events):
        on_device = events["stream"] >= 0
        device_type = EventType.GPUEvents if on_device.all() else EventType.AllEvents
        setting.event_type = device_type if on_device.any() else EventType.CPUEvents


def prepare_timeline_events(
    df: pd.DataFrame,
    setting: TimelinePlotSetting = DefaultTimelinePlotSetting,
    symbol_table: TraceSymbolTable | None = None,
    hover_columns: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Return the events to show, in order of time, with their lane of the chart as `task`.

    Columns: name, ts, dur, those of `hover_columns` (a common choice by default) that the frame has, and
    calibrated_start_global, calibrated_end_global (from the first event on, unless `use_global_time`), task. ValueError
    if the frame lacks name, ts or dur.
    """
    del symbol_table  # Names are text.
    if missing := [name for name in DefaultMustHaveColumns if name not in df]:
        raise ValueError(f"a timeline needs the columns {', '.join(missing)}")
    rows = df.sort_values("ts", kind="stable")
    if "stream" in rows and setting.event_type is not EventType.AllEvents:
        on_device = rows["stream"] >= 0
        rows = rows[on_device if setting.event_type is EventType.GPUEvents else ~on_device]
    origin = 0 if setting.use_global_time else rows["ts"].min()
    min_duration = setting.short_events_display_duration if setting.amplify_short_events else 0
    columns = [*DefaultMustHaveColumns, *(hover_columns or DefaultHoverColumns), *DefaultTaskLabelColumns]
    shown = rows[[name for name in dict.fromkeys(columns) if name in rows]].copy()
    shown[setting.x_start_column] = rows["ts"] - origin
    shown[setting.x_end_column] = shown[setting.x_start_column] + np.maximum(rows["dur"], min_duration)
    shown[setting.task_column] = _tasks(rows, setting)
    return shown


def _tasks(rows: pd.DataFrame, setting: TimelinePlotSetting) -> pd.Series[Any]:
    """The lane of each event: its stream; on the host its depth, its thread, or one for all."""
    stream = rows["stream"] if "stream" in rows else pd.Series(CPUStreamID, rows.index)
    if "depth" in rows and setting.event_type is not EventType.GPUEvents:
        host = "cpu level " + rows["depth"].astype(int).astype(str).str.zfill(3)
    elif "tid" in rows and not setting.compress_threads:
        host = "thread " + rows["tid"].astype(str)
    else:
        host = pd.Series("cpu events", rows.index)
    tasks = host.where(stream < 0, "gpu stream " + stream.astype(str).str.zfill(3))
    for is_shown, name in ((setting.multi_ranks, "rank"), (setting.multi_traces, "trace")):
        if is_shown and name in rows:
            tasks = f"{name} " + rows[name].astype(str) + " " + tasks
    return tasks


def plot_events_timeline(
    title: str,
    events: pd.DataFrame,
    setting: TimelinePlotSetting = DefaultTimelinePlotSetting,
    hover_columns: Sequence[str] | None = None,
    output_image_path: str | Path | None = None,
) -> str | None:
    """Draw prepared events by the setting's format; return HTML for PlotFormat.HTML. UsageError without a file name.

    Events of one kind that fall into the same pixel become one mark, named after the longest.
    """
    chart = timeline_chart(title, events, setting, hover_columns)
    if setting.plot_format is PlotFormat.HTML:
        if output_image_path:
            show(chart, visible=False, path=output_image_path)
        return picture(chart, ".html").decode()
    if setting.plot_format is PlotFormat.File and not output_image_path:
        raise UsageError("a timeline in a file needs output_image_path (.html, .svg or .png)")
    show(chart, visible=setting.plot_format is PlotFormat.Inline, path=output_image_path)
    return None


def timeline_chart(
    title: str,
    events: pd.DataFrame,
    setting: TimelinePlotSetting = DefaultTimelinePlotSetting,
    hover_columns: Sequence[str] | None = None,
) -> Chart:
    """Return prepared events as a chart. ValueError if they are not prepared."""
    if not Timeline.is_timeline_events(events, setting):
        raise ValueError("these are no events of prepare_timeline_events")
    lanes = sorted(events[setting.task_column].unique().tolist())
    kinds = dict(zip(names := events["name"].unique().tolist(), kinds_of_names(names).tolist(), strict=True))
    on_device = events["stream"] >= 0 if "stream" in events else pd.Series(True, events.index)
    codes = events["name"].map(kinds).where(on_device, -1).to_numpy(np.int8)
    starts, ends = (nanoseconds(events[name]) for name in (setting.x_start_column, setting.x_end_column))
    rows = pd.DataFrame({"ts": starts, "end": ends, "dur": ends - starts, "name": _mark_texts(events, hover_columns)})
    rows["lane"] = events[setting.task_column].map({lane: code for code, lane in enumerate(lanes)}).to_numpy()
    rows["kind"] = pd.Categorical.from_codes(codes, dtype=KIND_DTYPE)
    marks = marks_of(rows, _MAX_MARKS)
    marks = marks.assign(lane=[lanes[code] for code in marks["lane"]])
    marks["kind"] = marks["kind"].map(_COLOURS).fillna("host")
    return Chart(
        "timeline", title, Mark.TIMELINE, marks, "start", "lane", "kind", x2="end", text="name",
        x_label="time", x_unit=Unit.NANOSECONDS, y_unit=Unit.TEXT,
    )  # fmt: skip


def _mark_texts(events: pd.DataFrame, hover_columns: Sequence[str] | None) -> list[str]:
    """The text of each event: its short name and its values of some columns."""
    short_names = {name: shorten_name(str(name)) for name in events["name"].unique()}
    names = [short_names[name] for name in events["name"]]
    columns = [name for name in hover_columns or () if name in events and name != "name"]
    if not columns:
        return names
    texts = []
    for name, values in zip(names, events[columns].itertuples(index=False, name=None), strict=True):
        details = (f"{column}: {value}" for column, value in zip(columns, values, strict=True))
        texts.append(f"{name} ({', '.join(details)})")
    return texts


def align_module_with_kernels(
    events_df: pd.DataFrame,
    module_list: Sequence[str],
    sym_table: TraceSymbolTable | None = None,
    include_original_cpu_events: bool = False,
) -> pd.DataFrame:
    """Return a frame's device work with copies of some host rows: each from its first kernel's start to the last's end.

    The host rows are those of the names in `module_list` that launch anything; the copies get stream 0. The frame needs
    the columns that CallGraph writes: ValueError without.
    """
    del sym_table  # Names are text.
    if missing := sorted(REQUIRED_COLUMNS_FOR_CPU_GPU_ALIGNMENT - set(events_df)):
        raise ValueError(f"the frame lacks {', '.join(missing)}: CallGraph writes these columns")
    modules = events_df[events_df["name"].isin(module_list) & (events_df["num_kernels"] > 0)]
    copies = modules.assign(stream=AnnotationStreamID, ts=modules["first_kernel_start"], dur=modules["kernel_span"])
    frames = [events_df[events_df["stream"] >= 0], copies, *([modules] if include_original_cpu_events else [])]
    return pd.concat(frames).sort_values("ts", kind="stable")


def get_fig_title_from_fig_name(fig_name: str, sep: str = _WORDS.pattern) -> str:
    """Return a file's name as a title: its words, each with a capital."""
    return " ".join(word.capitalize() for word in re.split(sep, Path(fig_name).stem) if word)


def get_fig_name_from_fig_title(title: str) -> str:
    """Return a title as a file's name: its words in small letters, joined by underscores."""
    return "_".join(re.findall(r"\w+", title.lower()))


class Timeline:
    """Events of a frame as a timeline; `filter_func` selects some; `setting.auto_detect` adapts it to them."""

    def __init__(
        self,
        timeline_events: pd.DataFrame,
        symbol_table: TraceSymbolTable | None = None,
        filter_func: AnyFilter | None = None,
        setting: TimelinePlotSetting = DefaultTimelinePlotSetting,
        hover_columns: Sequence[str] | None = None,
    ) -> None:
        self.symbol_table, self.hover_columns = symbol_table, hover_columns
        self.setting = replace(setting)
        self.timeline_events = timeline_events
        if setting.auto_detect:
            auto_detect_setting(timeline_events, self.setting)
            self.setting.event_type = setting.event_type
        self.prepare(filter_func)

    @staticmethod
    def is_timeline_events(df: pd.DataFrame, setting: TimelinePlotSetting) -> bool:
        """Whether a frame has the columns of prepare_timeline_events."""
        return {"name", setting.x_start_column, setting.x_end_column, setting.task_column} <= set(df)

    def prepare(self, filter_func: AnyFilter | None = None) -> None:
        """Filter the events, and prepare them unless they are prepared."""
        if filter_func is not None:
            self.timeline_events = filter_func(self.timeline_events, self.symbol_table)
        if not self.is_timeline_events(self.timeline_events, self.setting):
            self.timeline_events = prepare_timeline_events(
                self.timeline_events, self.setting, self.symbol_table, self.hover_columns
            )

    def plot(self, title: str, save_path: str | Path | None = None) -> str | None:
        """Draw the events by the setting's format; see plot_events_timeline."""
        return plot_events_timeline(title, self.timeline_events, self.setting, self.hover_columns, save_path)
