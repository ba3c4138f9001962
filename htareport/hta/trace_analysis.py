"""`TraceAnalysis`: HTA's class of analyses, whose results are DataFrames in µs."""

from __future__ import annotations

from htareport.hta.breakdowns import Breakdowns
from htareport.hta.counters import Counters, TimeSeriesTypes
from htareport.hta.critical_path import CriticalPath
from htareport.hta.operators import Operators
from htareport.hta.ranks_compared import RanksCompared
from htareport.hta.sequences import Sequences

__all__ = ["TimeSeriesTypes", "TraceAnalysis"]


class TraceAnalysis(Breakdowns, Counters, CriticalPath, Operators, RanksCompared, Sequences):
    """Analyses of one run, under HTA's names and parameters. All times in the returned frames are µs.

    `trace_files` is {rank: file or files}, a list of files, or None for all traces of the folder `trace_dir`.
    `include_last_profiler_step=False` leaves out GPU work that is launched in or after each rank's last profiler step.
    `salvage=True` keeps the complete events of files that are damaged or end early, and warns of each.
    """
