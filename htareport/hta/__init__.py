"""HTA's names, parameters and columns over the same code as the report, with the exact definitions of this package."""

from htareport.hta.trace_analysis import TraceAnalysis
from htareport.hta.trace_diff import DeviceType, LabeledTrace, TraceDiff

__all__ = ["DeviceType", "LabeledTrace", "TraceAnalysis", "TraceDiff"]
