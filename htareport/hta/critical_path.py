"""The critical path, under HTA's names."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence

from htareport.analyses import path_window
from htareport.analyses.activity import Activity, Span
from htareport.analyses.activity_graph import Rules, activity_graph
from htareport.analyses.critical_path import CriticalPath as Section
from htareport.hta.cp_graph import CPGraph, restore_cpgraph
from htareport.hta.cp_types import CPEdge, CPEdgeType, CPNode
from htareport.hta.ranks import LoadedRanks
from htareport.trace import RankTrace

__all__ = ["CPEdge", "CPEdgeType", "CPGraph", "CPNode", "CriticalPath", "restore_cpgraph"]

_DATA_LOADING = tuple(str(Section.data_loading).split(","))


class CriticalPath(LoadedRanks):
    """What the length of a stretch of time hangs on."""

    def critical_path_analysis(
        self,
        rank: int,
        annotation: str,
        instance_id: int | tuple[int, int] | None = None,
        data_load_events: Sequence[str] | None = None,
        python_time: bool = False,
    ) -> tuple[CPGraph, bool] | None:
        """Find the longest path through a rank's events that start within some rows of the host.

        `annotation` is part of their name, empty for everything recorded; `instance_id` which of them (the first by
        default), or the first and last of a range. `data_load_events` are parts of names of rows that load data.
        As in HTA, time between outermost operators and time spent waiting are free; with `python_time` they count as
        they do in the report. CRITICAL_PATH_ADD_ZERO_WEIGHT_LAUNCH_EDGE=1 in the environment keeps every kernel behind
        its launch when weights are changed. None, and a warning, if no row has such a name; ValueError if there are
        fewer instances.
        """
        trace = self.rank(rank)
        span = _span(trace, annotation, instance_id)
        if span is None:
            warnings.warn(f"rank {rank}: no row of the host has {annotation!r} in its name", stacklevel=2)
            return None
        loading = _DATA_LOADING if data_load_events is None else tuple(data_load_events)
        activity = Activity(trace, span, loading, host_collectives=python_time)
        constraints = python_time or os.environ.get("CRITICAL_PATH_ADD_ZERO_WEIGHT_LAUNCH_EDGE") == "1"
        found = activity_graph(activity, Rules(python_time, constraints))
        return CPGraph.of(found, rank, min(t.start_ns or 0 for t in self.ranks_loaded.values())), True


def _span(trace: RankTrace, annotation: str, instance: int | tuple[int, int] | None) -> Span | None:
    if not annotation:
        return path_window.whole_span(trace)
    rows = path_window.annotation_rows(trace, annotation)
    if not len(rows):
        return None
    first, last = instance if isinstance(instance, tuple) else (instance or 0, instance or 0)
    if not 0 <= first <= last < len(rows):
        raise ValueError(f"no instance {instance} of {annotation!r}: there are {len(rows)}, counted from 0")
    chosen = rows.iloc[first : last + 1]
    begin = chosen.iloc[0]
    end = int(chosen["end"].max())
    return Span(int(chosen["ts"].min()), end, int(begin["capture"]), int(begin["thread"]))
