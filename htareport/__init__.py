"""Reports from folders of PyTorch Kineto traces.

    report = htareport.analyze("traces/")
    report.write("report.html")

Importing this package loads no libraries: names are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from htareport._version import __version__

if TYPE_CHECKING:
    from htareport.analyses import Analysis
    from htareport.compare.entry import diff
    from htareport.hta import DeviceType, LabeledTrace, TraceAnalysis, TraceDiff
    from htareport.integrations.torch import profile_training
    from htareport.report import Report
    from htareport.run.runner import analyze
    from htareport.trace import RankTrace, Trace

__all__ = [
    "Analysis",
    "DeviceType",
    "LabeledTrace",
    "RankTrace",
    "Report",
    "Trace",
    "TraceAnalysis",
    "TraceDiff",
    "__version__",
    "analyze",
    "diff",
    "profile_training",
]

_HOMES = {
    "Analysis": "htareport.analyses",
    "RankTrace": "htareport.trace",
    "Report": "htareport.report",
    "Trace": "htareport.trace",
    "TraceAnalysis": "htareport.hta",
    "DeviceType": "htareport.hta",
    "LabeledTrace": "htareport.hta",
    "TraceDiff": "htareport.hta",
    "analyze": "htareport.run.runner",
    "diff": "htareport.compare.entry",
    "profile_training": "htareport.integrations.torch",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
