"""`TraceDiff`: HTA's comparison of two traces by operator and kernel name."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TypeAlias

import pandas as pd

from htareport.errors import NothingToReadError
from htareport.trace import Capability, RankTrace, Trace
from htareport.trace.steps import step_of

_PER_US = 1000.0
_HOST_ONLY_SKIPPED = {"gpu_user_annotation"}
Chosen: TypeAlias = int | Sequence[int] | None


class DeviceType(Enum):
    """Which rows are compared."""

    CPU = 1
    GPU = 2
    ALL = 3


class LabeledTrace:
    """A run with a name for the columns of a comparison."""

    def __init__(
        self,
        label: str | None = None,
        t: Trace | None = None,
        trace_files: dict[int, str] | None = None,
        trace_dir: str | Path | None = None,
    ) -> None:
        source = t if t is not None else trace_files if trace_files is not None else trace_dir
        if source is None:
            raise NothingToReadError("LabeledTrace: one of t, trace_files and trace_dir is needed")
        self.trace = source if isinstance(source, Trace) else Trace.open(source)
        self.label = label or self.trace.label
        self._loaded: dict[int, RankTrace] = {}

    def ranks(self) -> list[int]:
        """Ranks of the run, in order."""
        return list(self.trace.files)

    def iterations(self) -> list[int]:
        """Numbers of the profiler steps on any rank, in order."""
        return sorted({number for rank in self.ranks() for number in self.rank(rank).steps["number"].tolist()})

    def rank(self, rank: int) -> RankTrace:
        """Load a rank, once."""
        if rank not in self._loaded:
            if rank not in self.trace.files:
                raise ValueError(f"{self.label} has no rank {rank}; there are {self.ranks()}")
            self._loaded[rank] = RankTrace.load(rank, self.trace.files[rank])
        return self._loaded[rank]

    def extract_ops(
        self, rank: Chosen = None, iteration: Chosen = None, device_type: DeviceType = DeviceType.ALL
    ) -> pd.DataFrame:
        """Rows of the chosen ranks (the first by default) and steps: name, cat, dur (ns).

        Without a choice of steps the first is taken, as in HTA; a run without steps is taken whole.
        """
        ranks = _listed(rank) if rank is not None else self.ranks()[:1]
        steps = _listed(iteration) if iteration is not None else self.iterations()[:1]
        parts = [_rows(self.rank(each), steps or None, device_type) for each in ranks]
        return pd.concat(parts, ignore_index=True)

    def get_ops_summary(self, ops: pd.DataFrame) -> pd.DataFrame:
        """Calls and total duration (µs) by category and name."""
        groups = ops.groupby(["cat", "name"], observed=True)["dur"]
        out = groups.agg(counts="size", total_duration="sum").reset_index()
        return out.assign(total_duration=out["total_duration"] / _PER_US)


TraceLike: TypeAlias = LabeledTrace | Trace | str | Path


class TraceDiff:
    """Comparison of two runs by name."""

    @classmethod
    def compare_traces(
        cls,
        control: TraceLike,
        test: TraceLike,
        control_rank: Chosen = None,
        test_rank: Chosen = None,
        control_iteration: Chosen = None,
        test_iteration: Chosen = None,
        device_type: DeviceType = DeviceType.ALL,
    ) -> pd.DataFrame:
        """Calls and total duration (µs) by name in both runs, and what changed; names of either run, in order.

        Ranks and steps default to the first of each run; a run without steps is taken whole.
        """
        base, new = _labeled(control), _labeled(test)
        labels = base.label, new.label if new.label != base.label else f"{new.label}_control_test"
        sides = [
            _by_name(base.extract_ops(control_rank, control_iteration, device_type), labels[0]),
            _by_name(new.extract_ops(test_rank, test_iteration, device_type), labels[1]),
        ]
        frame = sides[0].join(sides[1], how="outer").fillna(0).sort_index()
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
        control_rank: Chosen = None,
        test_rank: Chosen = None,
        control_iteration: Chosen = None,
        test_iteration: Chosen = None,
        device_type: DeviceType = DeviceType.ALL,
    ) -> dict[str, list[str]]:
        """Names by what happened to their number of calls: added, deleted, increased, decreased, unchanged."""
        frame = cls.compare_traces(
            control, test, control_rank, test_rank, control_iteration, test_iteration, device_type
        )
        old, new = (frame[column] for column in frame.columns[[0, 2]])
        chosen = {
            "added": (old == 0) & (new > 0),
            "deleted": (old > 0) & (new == 0),
            "increased": (old > 0) & (new > old),
            "decreased": (new > 0) & (new < old),
            "unchanged": old == new,
        }
        return {kind: list(frame.index[rows]) for kind, rows in chosen.items()}


def _labeled(trace: TraceLike) -> LabeledTrace:
    if isinstance(trace, LabeledTrace):
        return trace
    return LabeledTrace(t=trace) if isinstance(trace, Trace) else LabeledTrace(trace_dir=trace)


def _listed(chosen: Chosen) -> list[int]:
    return [chosen] if isinstance(chosen, int) else list(chosen or ())


def _rows(trace: RankTrace, steps: list[int] | None, device_type: DeviceType) -> pd.DataFrame:
    """Rows of one rank. GPU rows belong to the step of their launch; without any launches, to that of their start."""
    parts = []
    if device_type is not DeviceType.CPU:
        events = trace.device_events
        if steps is not None and Capability.LAUNCHES in trace.capabilities:
            events = events[events["launch"] >= 0]
        parts.append(
            pd.DataFrame(
                {
                    "name": events["name"].astype(object),
                    "cat": events["kind"].astype(object),
                    "dur": events["dur"],
                    "step": events["step"],
                }
            )
        )
    if device_type is not DeviceType.GPU:
        for category, columns in trace.loaded.tables.items():
            if category in trace.loaded.device_categories or category in _HOST_ONLY_SKIPPED:
                continue
            names = trace.names(columns["name"]).astype(object)
            parts.append(
                pd.DataFrame(
                    {"name": names, "cat": category, "dur": columns["dur"], "step": step_of(trace.steps, columns["ts"])}
                )
            )
    rows = pd.concat(parts, ignore_index=True)
    if steps is not None:
        rows = rows[rows["step"].isin(steps)]
    return rows[["name", "cat", "dur"]]


def _by_name(ops: pd.DataFrame, label: str) -> pd.DataFrame:
    groups = ops.groupby("name")["dur"]
    out = groups.agg(["size", "sum"]).set_axis([f"{label}_counts", f"{label}_total_duration"], axis=1)
    out[f"{label}_total_duration"] = out[f"{label}_total_duration"] / _PER_US
    return out
