"""Critical paths: their graph, its parts, and the analysis as class methods."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from htareport.hta.common.trace import Trace
from htareport.hta.cp_graph import CPGraph, restore_cpgraph
from htareport.hta.cp_types import SHOWN as DEFAULT_EDGE_TYPES_IN_VIZ
from htareport.hta.cp_types import BoundType, CPEdge, CPEdgeType, CPNode
from htareport.hta.trace_analysis import TraceAnalysis

__all__ = [
    "DEFAULT_EDGE_TYPES_IN_VIZ",
    "BoundType",
    "CPEdge",
    "CPEdgeType",
    "CPGraph",
    "CPNode",
    "CriticalPathAnalysis",
    "restore_cpgraph",
]


class CriticalPathAnalysis:
    """See TraceAnalysis for what each answers."""

    @classmethod
    def critical_path_analysis(
        cls,
        t: Trace,
        rank: int,
        annotation: str,
        instance_id: int | tuple[int, int] | None = None,
        data_load_events: Sequence[str] | None = None,
    ) -> tuple[CPGraph, bool] | None:
        """Find the longest path through a window of a rank."""
        return TraceAnalysis.of(t).critical_path_analysis(rank, annotation, instance_id, data_load_events)

    @classmethod
    def overlay_critical_path_analysis(
        cls,
        t: Trace,
        rank: int,
        critical_path_graph: CPGraph,
        output_dir: str,
        only_show_critical_events: bool = True,
        show_all_edges: bool = False,
        edge_types_to_viz: Collection[CPEdgeType] | None = None,
    ) -> str:
        """Write a copy of the rank's file with the path."""
        return TraceAnalysis.of(t).overlay_critical_path_analysis(
            rank, critical_path_graph, output_dir, only_show_critical_events, show_all_edges, edge_types_to_viz
        )
