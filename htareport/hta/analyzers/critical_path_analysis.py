"""Critical paths: their graph, its parts, and the analysis as class methods."""

from __future__ import annotations

from htareport.hta.analyzers.delegate import of_trace
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
    """See the methods of TraceAnalysis."""

    critical_path_analysis = of_trace(TraceAnalysis.critical_path_analysis)
    overlay_critical_path_analysis = of_trace(TraceAnalysis.overlay_critical_path_analysis)
