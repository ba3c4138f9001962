"""`TraceDiff`: HTA's comparison of two traces by operator and kernel name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd

from htareport.errors import NothingToReadError
from htareport.hta.common.trace import Trace
from htareport.hta.configs.parser_config import ParserConfig
from htareport.hta.loading import Run
from htareport.hta.show import show
from htareport.hta.units import PER_US, nanoseconds
from htareport.hta.utils.utils import shorten_name
from htareport.reading.sources.job import Trace as RunTrace
from htareport.report import Chart, Mark, Unit

_DEVICE_ANNOTATIONS = "gpu_user_annotation"  # A category of rows without a stream that are not of the host.
_MAX_NAMES = 40
TraceDir = str
Selection: TypeAlias = int | Sequence[int] | None


class DeviceType(Enum):
    """Which rows are compared."""

    CPU = 1
    GPU = 2
    ALL = 3


class LabeledTrace:
    """A run with a label for the columns of a comparison: an opened trace, or a folder or files to open."""

    def __init__(
        self,
        label: str | None = None,
        t: Trace | RunTrace | None = None,
        trace_dir: str | Path | None = None,
        trace_files: Mapping[int, str] | None = None,
    ) -> None:
        if isinstance(t, Trace):
            self.t = t
        elif (source := t if t is not None else trace_files if trace_files is not None else trace_dir) is None:
            raise NothingToReadError("LabeledTrace: one of t, trace_files and trace_dir is needed")
        else:
            opened = source if isinstance(source, RunTrace) else RunTrace.open(source)
            self.t = Trace.from_run(Run(opened), ParserConfig(ParserConfig.ARGS_MINIMUM))
        self.label = label or self.t.run.trace.label

    def ranks(self) -> list[int]:
        """Ranks of the run, in order."""
        return self.t.get_ranks()

    def iterations(self) -> list[int]:
        """Numbers of the profiler steps on any rank, in order."""
        return sorted({number for rank in self.ranks() for number in self.t.rank(rank).steps["number"].tolist()})

    def extract_ops(
        self, rank: Selection = None, iteration: Selection = None, device_type: DeviceType = DeviceType.ALL
    ) -> pd.DataFrame:
        """Rows of some ranks (the first by default) and steps, as in Trace.get_trace, with their rank.

        By default the first step is taken, as in HTA; a run without steps is taken whole. Device work belongs
        to the step of its launch; without any launches in the trace, to that of its start.
        """
        ranks = _as_list(rank) if rank is not None else self.ranks()[:1]
        steps = _as_list(iteration) if iteration is not None else self.iterations()[:1]
        frames = [_rows(self.t.get_trace(rank), steps or None, device_type).assign(rank=rank) for rank in ranks]
        return pd.concat(frames, ignore_index=True)

    def get_ops_summary(self, ops: pd.DataFrame) -> pd.DataFrame:
        """Calls and total duration (µs) by category and name, with the name's short form."""
        summary = _summed(ops, ["cat", "name"])
        summary.insert(2, "short_name", summary["name"].map(shorten_name))
        return summary


TraceLike: TypeAlias = LabeledTrace | Trace | RunTrace | str | Path


class TraceDiff:
    """Comparison of two runs by name."""

    @classmethod
    def compare_traces(
        cls,
        control: TraceLike,
        test: TraceLike,
        control_rank: Selection = None,
        test_rank: Selection = None,
        control_iteration: Selection = None,
        test_iteration: Selection = None,
        device_type: DeviceType = DeviceType.ALL,
        use_short_name: bool = False,
    ) -> pd.DataFrame:
        """Calls and total duration (µs) by name in both runs, and their changes; names of either run, in order.

        Ranks and steps default to the first of each run; a run without steps is taken whole. With `use_short_name`
        names with the same short form count together.
        """
        base, new = _labeled(control), _labeled(test)
        labels = base.label, new.label if new.label != base.label else f"{new.label}_control_test"
        runs = [
            _by_name(base.extract_ops(control_rank, control_iteration, device_type), labels[0], short=use_short_name),
            _by_name(new.extract_ops(test_rank, test_iteration, device_type), labels[1], short=use_short_name),
        ]
        frame = runs[0].join(runs[1], how="outer").fillna(0).sort_index()
        counts = [f"{label}_counts" for label in labels]
        durations = [f"{label}_total_duration" for label in labels]
        frame = frame.astype(dict.fromkeys(counts, "int64"))
        frame["diff_counts"] = frame[counts[1]] - frame[counts[0]]
        frame["diff_duration"] = frame[durations[1]] - frame[durations[0]]
        signs = frame["diff_counts"].map(lambda change: "+" if change > 0 else "-" if change < 0 else "=")
        frame["counts_change_categories"] = signs
        return frame

    @classmethod
    def ops_diff(
        cls,
        control: TraceLike,
        test: TraceLike,
        control_rank: Selection = None,
        test_rank: Selection = None,
        control_iteration: Selection = None,
        test_iteration: Selection = None,
        device_type: DeviceType = DeviceType.ALL,
    ) -> dict[str, list[str]]:
        """Names by how their number of calls changed: added, deleted, increased, decreased, unchanged."""
        frame = cls.compare_traces(
            control, test, control_rank, test_rank, control_iteration, test_iteration, device_type
        )
        control_calls, test_calls = (frame[column] for column in frame.columns[[0, 2]])
        masks = {
            "added": (control_calls == 0) & (test_calls > 0),
            "deleted": (control_calls > 0) & (test_calls == 0),
            "increased": (control_calls > 0) & (test_calls > control_calls),
            "decreased": (test_calls > 0) & (test_calls < control_calls),
            "unchanged": control_calls == test_calls,
        }
        return {kind: list(frame.index[mask]) for kind, mask in masks.items()}

    @classmethod
    def visualize_counts_diff(
        cls, df: pd.DataFrame, show_image: bool = True, export_image_path: str | Path | None = None
    ) -> None:
        """Show calls by name in both runs and their difference, or write the chart to a file (.html, .svg, .png)."""
        show(_chart(df, 0, "diff_counts", "calls", Unit.COUNT), visible=show_image, path=export_image_path)

    @classmethod
    def visualize_duration_diff(
        cls, df: pd.DataFrame, show_image: bool = True, export_image_path: str | Path | None = None
    ) -> None:
        """Show total durations by name in both runs and their difference, or write the chart to a file."""
        chart = _chart(df, 1, "diff_duration", "total duration", Unit.NANOSECONDS, PER_US)
        show(chart, visible=show_image, path=export_image_path)


def _labeled(trace: TraceLike) -> LabeledTrace:
    if isinstance(trace, LabeledTrace):
        return trace
    return LabeledTrace(trace_dir=trace) if isinstance(trace, (str, Path)) else LabeledTrace(t=trace)


def _as_list(selection: Selection) -> list[int]:
    return [selection] if isinstance(selection, int) else list(selection or ())


def _rows(df: pd.DataFrame, steps: list[int] | None, device_type: DeviceType) -> pd.DataFrame:
    """Rows of one rank, of the device, the host or both."""
    on_device = df["stream"] >= 0
    is_kept = {DeviceType.GPU: on_device, DeviceType.CPU: ~on_device}.get(device_type, pd.Series(True, df.index))
    is_kept &= df["cat"] != _DEVICE_ANNOTATIONS
    if steps is not None:
        is_kept &= df["iteration"].isin(steps)
        if (df["index_correlation"][on_device] >= 0).any():
            is_kept &= ~on_device | (df["index_correlation"] >= 0)
    return df[is_kept]


def _summed(ops: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Calls and total duration (µs) by some columns; durations are added as whole ns."""
    times = ops.assign(ns=nanoseconds(ops["dur"]))
    sums = times.groupby(keys)["ns"].agg(counts="size", total_duration="sum").reset_index()
    return sums.assign(total_duration=sums["total_duration"] / PER_US)


def _by_name(ops: pd.DataFrame, label: str, *, short: bool) -> pd.DataFrame:
    column = "short_name" if short else "name"
    if short:
        ops = ops.assign(short_name=ops["name"].map({name: shorten_name(name) for name in ops["name"].unique()}))
    sums = _summed(ops, [column]).set_index(column)
    return sums.set_axis([f"{label}_counts", f"{label}_total_duration"], axis=1)


def _chart(df: pd.DataFrame, column: int, change: str, what: str, unit: Unit, factor: float = 1) -> Chart:
    """Both runs and the difference by name, of the names that changed most."""
    shown = df.loc[df[change].abs().nlargest(_MAX_NAMES, keep="first").index]
    columns: dict[str, pd.Series[Any]] = {
        "control": shown.iloc[:, column],
        "test": shown.iloc[:, column + 2],
        "difference": shown[change],
    }
    tables = [pd.DataFrame({"name": v.index, "value": v.to_numpy() * factor, "run": run}) for run, v in columns.items()]
    rows = pd.concat(tables, ignore_index=True)
    caption = f"The {len(shown)} names that changed most." if len(shown) < len(df) else "All names."
    return Chart(
        "difference", f"{what.capitalize()} by name", Mark.RANGE, rows.assign(low=rows["value"], high=rows["value"]),
        "value", "name", "run", low="low", high="high", x_label=what, x_unit=unit, y_unit=Unit.NAME, caption=caption,
    )  # fmt: skip
