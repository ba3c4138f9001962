"""The tables of one rank, derived from its rows: steps, launches, device events, copies, host calls."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms import intervals
from htareport.rank.capability import Capability
from htareport.rank.events import Events, collective_table, copy_table, device_table, launch_table
from htareport.rank.host_calls import Host
from htareport.rank.launch_links import UNLINKED, link_warnings
from htareport.rank.steps import step_table, step_warnings
from htareport.rank.window import ALL, Window
from htareport.rows import classify
from htareport.rows.capture import Capture, Loaded

_ANNOTATIONS = ("user_annotation", "gpu_user_annotation")


@dataclass(frozen=True)
class RankTables:
    """The rows of one rank, and tables derived from them, each computed at most once.

    Of device events only those within `window` are seen in `device_events` and what follows from it.
    """

    rank: int
    loaded: Loaded
    window: Window = ALL

    def narrowed(self, window: Window) -> Self:
        """Return the same events seen through another window."""
        return replace(self, window=window)

    # --- what was read ----------------------------------------------------------------------

    @property
    def captures(self) -> tuple[Capture, ...]:
        """The files used, in order of time."""
        return self.loaded.captures

    @property
    def problems(self) -> tuple[tuple[str, str], ...]:
        """Name and reason of each file that could not be used."""
        return self.loaded.problems

    @property
    def salvaged(self) -> tuple[str, ...]:
        """What was kept of each of its files that is damaged or ends early, in words."""
        kept = ((capture.name, capture.salvaged) for capture in self.captures)
        return tuple(f"rank {self.rank} is salvaged: {name}: {salvaged}" for name, salvaged in kept if salvaged)

    @property
    def start_ns(self) -> int | None:
        """Earliest start of a complete event, None without any."""
        return min((c.first_ns for c in self.captures if c.first_ns is not None), default=None)

    @property
    def end_ns(self) -> int | None:
        """Latest end of a complete event, None without any."""
        return max((c.last_ns for c in self.captures if c.last_ns is not None), default=None)

    @cached_property
    def events(self) -> Events:
        """Events by category."""
        return Events(self.loaded, self._names)

    def names(self, codes: NDArray[np.int32]) -> pd.Categorical:
        """Names of name codes."""
        return pd.Categorical.from_codes(codes, dtype=self._names)

    @cached_property
    def _names(self) -> pd.CategoricalDtype:
        return pd.CategoricalDtype(pd.Index(self.loaded.strings, dtype=object))

    # --- derived ----------------------------------------------------------------------------

    @cached_property
    def steps(self) -> pd.DataFrame:
        """Profiler steps within the window: number, start, end (ns), capture, next (whether another step follows)."""
        steps = self._all_steps
        return steps[self.window.holds_steps(steps, self._cut_steps)].reset_index(drop=True)

    @property
    def all_step_numbers(self) -> tuple[int, ...]:
        """Numbers of all steps recorded, within the window or not."""
        return tuple(self._all_steps["number"].tolist())

    @property
    def cut_steps(self) -> frozenset[int]:
        """Numbers of the steps whose device work is cut off, because recording stopped before it ran."""
        return self._cut_steps

    @cached_property
    def _all_steps(self) -> pd.DataFrame:
        return step_table(self.loaded)

    @cached_property
    def _cut_steps(self) -> frozenset[int]:
        """The last step, if launches at its end have lost their device work: recording stopped before it ran."""
        launch, steps = self._all_device_events["launch"].to_numpy(), self._all_steps
        if not len(steps) or not (launch != UNLINKED).any():
            return frozenset()
        last_start, number = steps["start"].to_numpy()[-1], steps["number"].to_numpy()[-1]
        starts = self.launches["ts"].to_numpy()
        lost = starts[self._lost_launches]
        cut = (lost > starts[launch.max()]) & (lost >= last_start)
        return frozenset({int(number)}) if cut.any() else frozenset()

    @cached_property
    def launches(self) -> pd.DataFrame:
        """Runtime and driver calls by start.

        Columns: name, ts, end, dur (ns), thread, correlation, capture, graph (bool), source and row (of the events
        table).
        """
        return launch_table(self.loaded, self._names)

    @cached_property
    def _all_device_events(self) -> pd.DataFrame:
        return device_table(self.loaded, self._names, self.launches, self._all_steps)

    @cached_property
    def device_events(self) -> pd.DataFrame:
        """Work of the devices within the window, by start: kernels, copies and fills.

        Columns: name, kind (category: compute, comm, memory), ts, end, dur (ns), lane, device, stream, correlation,
        launch (row of `launches`, -1 none), step (-1 outside), capture, source and row (of the events table).
        """
        events = self._all_device_events
        keep = self.window.holds_events(events, self.launches, self._all_steps, self._cut_steps)
        return events if keep is None else events[keep].reset_index(drop=True)

    @cached_property
    def devices(self) -> dict[Any, pd.DataFrame]:
        """The device events of each device; empty without any."""
        events = self.device_events
        devices = sorted(events["device"].unique(), key=_by_type)
        if len(devices) == 1:
            return {devices[0]: events}
        return {device: events[events["device"] == device] for device in devices}

    @cached_property
    def collectives(self) -> pd.DataFrame:
        """Arguments of collectives, by `source` and `row` of the device events that have them."""
        return collective_table(self.loaded)

    @cached_property
    def copies(self) -> pd.DataFrame:
        """Device events that copy or fill, with copy_kind, bytes (-1 where not given) and bandwidth (GB/s, nan)."""
        return copy_table(self.loaded, self.device_events)

    @cached_property
    def host(self) -> Host:
        """Annotations, operators and runtime calls as a tree."""
        return Host(self.loaded, self._names, self.launches, python=False)

    @cached_property
    def host_with_python(self) -> Host:
        """The same with Python functions."""
        return Host(self.loaded, self._names, self.launches, python=True)

    @cached_property
    def cache(self) -> dict[Any, Any]:
        """Results of functions of this rank, for `cached_on_rank`."""
        return {}

    @cached_property
    def releasable(self) -> dict[Any, Any]:
        """The same for `cached_until_release`."""
        return {}

    def device_name(self, device: Any) -> str:
        """Return what the trace calls a device, empty if it does not."""
        return next((c.devices[device] for c in self.captures if device in c.devices), "")

    def busy_by_capture(self, events: pd.DataFrame, *kinds: str) -> list[intervals.Intervals]:
        """Unions of the device events of some kinds (of any kind by default), one per capture."""
        if kinds:
            events = events[events["kind"].isin(kinds)]
        captures = events["capture"].to_numpy()
        starts, ends = events["ts"].to_numpy(), events["end"].to_numpy()
        chosen = (captures == number for number in range(len(self.captures)))
        return [intervals.union(starts[mine], ends[mine]) for mine in chosen]

    @cached_property
    def capabilities(self) -> frozenset[Capability]:
        """What this trace holds."""
        events, tables = self.device_events, self.loaded.tables
        capabilities = {
            Capability.GPU: len(events) > 0,
            Capability.STEPS: len(self.steps) > 0,
            Capability.COMM: bool((events["kind"] == classify.Kind.COMM).any()),
            Capability.HOST_OPS: any(category in tables for category in ("cpu_op", "Operator")),
            Capability.COPIES: len(self.copies) > 0,
            Capability.ANNOTATIONS: any(category in tables for category in _ANNOTATIONS),
            Capability.SYNC: "cuda_sync" in tables,
            Capability.CUPTI: "cuda_profiler_range" in tables,
            Capability.MEMORY: bool(self.loaded.memory),
            Capability.SHAPES: any((table["shapes"] >= 0).any() for table in tables.values() if "shapes" in table),
            Capability.LAUNCHES: bool((events["launch"] != UNLINKED).any()),
        }
        return frozenset(capability for capability, present in capabilities.items() if present)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What is odd about the data, each naming the rank or the file."""
        events, calls, lost = self._all_device_events, int(self._launching_calls.sum()), int(self._lost_launches.sum())
        about_links = link_warnings(events, self.launches, calls, lost)
        about_steps = step_warnings(self._all_steps)
        derived = (f"rank {self.rank}: {text}" for text in (*about_links, *about_steps))
        return (*self.salvaged, *self.loaded.warnings, *derived)

    @cached_property
    def answered(self) -> NDArray[np.bool_]:
        """Which launches have a device event, within the window or not."""
        linked = self._all_device_events["launch"].to_numpy()
        used = np.zeros(len(self.launches), np.bool_)
        used[linked[linked != UNLINKED]] = True
        return used

    @cached_property
    def _lost_launches(self) -> NDArray[np.bool_]:
        """Which launches should have started device work, but none is in the trace."""
        return self._launching_calls & ~self.answered & (self.launches["correlation"].to_numpy() > 0)

    @cached_property
    def _launching_calls(self) -> NDArray[np.bool_]:
        """Which launches are calls that start device work."""
        launching = classify.launching_calls(self.loaded.strings)
        return launching[self.launches["name"].cat.codes.to_numpy()]


def _by_type(value: Any) -> tuple[bool, Any]:
    return isinstance(value, str), value
