"""HTA's names, parameters and columns over the same code as the report, with the exact definitions of this package.

A script changes `hta` to `htareport.hta`; examples/hta/README.md lists the differences.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from htareport.hta.version import __version__

if TYPE_CHECKING:
    from htareport.hta.trace_analysis import TimeSeriesTypes, TraceAnalysis
    from htareport.hta.trace_diff import DeviceType, LabeledTrace, TraceDiff

__all__ = ["DeviceType", "LabeledTrace", "TimeSeriesTypes", "TraceAnalysis", "TraceDiff", "__version__"]
_HOMES = {
    **dict.fromkeys(("TimeSeriesTypes", "TraceAnalysis"), "htareport.hta.trace_analysis"),
    **dict.fromkeys(("DeviceType", "LabeledTrace", "TraceDiff"), "htareport.hta.trace_diff"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
