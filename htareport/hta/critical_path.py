"""The critical path, under HTA's names."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from pathlib import Path

from htareport.analyses.time.critical_path import CriticalPath as Section
from htareport.export.critical_path import write_path
from htareport.export.files import CopyFolder
from htareport.hta.configs.env_options import (
    critical_path_add_zero_weight_launch_edges,
    critical_path_show_zero_weight_launch_edges,
)
from htareport.hta.cp_graph import CPGraph, restore_cpgraph
from htareport.hta.cp_types import SHOWN, CPEdge, CPEdgeType, CPNode
from htareport.hta.ranks import LoadedRanks
from htareport.rank.critical_path import stretch
from htareport.rank.critical_path.activity import Activity, Span
from htareport.rank.critical_path.graph import Rules, activity_graph
from htareport.rank.rank import Rank

__all__ = ["CPEdge", "CPEdgeType", "CPGraph", "CPNode", "CriticalPath", "restore_cpgraph"]

_DATA_LOADING = tuple(str(Section.data_loading).split(","))


class CriticalPath(LoadedRanks):
    """Analysis of the longest path through the events of a window."""

    def critical_path_analysis(
        self,
        rank: int,
        annotation: str,
        instance_id: int | tuple[int, int] | None = None,
        data_load_events: Sequence[str] | None = None,
        python_time: bool = False,
    ) -> tuple[CPGraph, bool] | None:
        """Return the longest path through a rank's events that start within some rows of the host.

        `annotation` is part of their name, empty for everything recorded; `instance_id` which of them (the first by
        default), or the first and last of a range. `data_load_events` are parts of names of rows that load data.
        As in HTA, time between outermost operators and time spent waiting do not count; with `python_time` they count
        as in the report. CRITICAL_PATH_ADD_ZERO_WEIGHT_LAUNCH_EDGE=1 in the environment keeps every kernel after
        its launch when weights are changed. None, and a warning, if no row has such a name; ValueError if there are
        fewer instances.
        """
        trace = self.rank(rank)
        span = annotated_span(trace, annotation, instance_id)
        if span is None:
            warnings.warn(f"rank {rank}: no row of the host has {annotation!r} in its name", stacklevel=2)
            return None
        loading = _DATA_LOADING if data_load_events is None else tuple(data_load_events)
        activity = Activity(trace, span, loading, host_collectives=python_time)
        constraints = python_time or critical_path_add_zero_weight_launch_edges()
        graph = activity_graph(activity, Rules(python_time, constraints))
        return CPGraph.from_activity(graph, rank, self.run.start_ns, self.t), True

    def overlay_critical_path_analysis(
        self,
        rank: int,
        critical_path_graph: CPGraph,
        output_dir: str | Path,
        only_show_critical_events: bool = True,
        show_all_edges: bool = False,
        edge_types_to_viz: Collection[CPEdgeType] | None = None,
    ) -> str:
        """Write a copy of the rank's file with its critical path into a folder; return the copy's path.

        Events on the path get the argument `critical`, and arrows go along its edges between events (of all edges with
        `show_all_edges`, unless only events of the path are shown). UsageError if it is the folder of the traces.
        """
        trace = self.rank(rank)
        marks = critical_path_graph.marks(
            all_edges=show_all_edges and not only_show_critical_events,
            zero_launches=critical_path_show_zero_weight_launch_edges(),
            types=SHOWN if edge_types_to_viz is None else edge_types_to_viz,
        )
        folder = CopyFolder(Path(output_dir).expanduser(), [capture.path for capture in trace.captures])
        return str(write_path(trace, folder, marks, only_critical=only_show_critical_events))


def annotated_span(rank: Rank, annotation: str, instance: int | tuple[int, int] | None) -> Span | None:
    """Return the span of host rows that contain a text; None if there are none. ValueError if there are too few."""
    if not annotation:
        return stretch.whole_span(rank)
    rows = stretch.annotation_rows(rank, annotation)
    if not len(rows):
        return None
    first, last = instance if isinstance(instance, tuple) else (instance or 0, instance or 0)
    if not 0 <= first <= last < len(rows):
        raise ValueError(f"no instance {instance} of {annotation!r}: there are {len(rows)}, counted from 0")
    instances = rows.iloc[first : last + 1]
    first_row = instances.iloc[0]
    end = int(instances["end"].max())
    return Span(int(instances["ts"].min()), end, int(first_row["capture"]), int(first_row["thread"]))
