"""`htareport.diff`: two runs, as traces or as reports, into one report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, TypeAlias

from htareport.analyses import Analysis
from htareport.compare import compare, judged
from htareport.compare.gates import check, parse
from htareport.files.locations import located
from htareport.reading.sources.job import Source, Trace
from htareport.reading.sources.saved_reports import is_saved_report
from htareport.report import Report
from htareport.run.runner import Progress, analyze

Side: TypeAlias = Report | Source | Trace


def diff(  # noqa: PLR0913  the options of a run, and gates
    base: Side,
    new: Side,
    *,
    analyses: Sequence[Analysis] | None = None,
    steps: str = "all",
    salvage: bool = False,
    redact: bool = True,
    cache: str | Path | bool = True,
    executor: Executor | None = None,
    title: str = "",
    gates: Sequence[str] = (),
    progress: Progress | None = None,
) -> Report:
    """Compare two runs: the report of `new` with what changed against `base` before it.

    Each is whatever `analyze` takes, a Report, or a saved one (.json, .json.gz), which needs no traces. `gates` are
    limits such as "step_time > +5%"; how they came out stands in the report and in `meta["gates"]`. The other options
    are those of `analyze`. UsageError for a gate that is none; NothingToReadError where a side cannot be read.
    """
    limits = [parse(gate) for gate in gates]
    check(limits, has_base=True)
    reading = {"salvage": salvage, "redact": redact, "cache": cache, "executor": executor, "progress": progress}
    how = {"analyses": analyses, "steps": steps, **reading}
    before, after = (_report(side, how) for side in (base, new))
    return judged(compare(before, after, title=title), limits, before)[0]


def _report(side: Side, how: dict[str, Any]) -> Report:
    if isinstance(side, Report):
        return side
    if isinstance(side, str) or not isinstance(side, (Trace, Iterable)):
        path = located(side)
        if is_saved_report(path):
            return Report.load(path)
    return analyze(side, **how)
