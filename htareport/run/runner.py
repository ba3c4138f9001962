"""Runs analyses over the ranks of a job: every rank is mapped in a task of its own, then everything is combined.

Architecture invariants: a task loads one rank, maps it and drops its events; it never raises. A rank that does not load
and an analysis that raises cost their own part of the report and no more. Nothing assumes that ranks start at 0.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd

from htareport._version import __version__
from htareport.algorithms.frame_packing import pack
from htareport.analyses import Analysis, Job, discover
from htareport.errors import NothingToReadError, UsageError, printable, without_credentials
from htareport.files.locations import paths_of
from htareport.rank.budget import room_for
from htareport.rank.capability import Capability
from htareport.rank.rank import Rank
from htareport.rank.summary import (
    RankFacts,
    consistency_warnings,
    facts_of,
    first_of,
    job_meta,
    left_out_warnings,
    secret_warnings,
    step_warnings,
)
from htareport.rank.window import ALL, Window
from htareport.reading.redact import numbered
from htareport.reading.sources.job import Source, Trace
from htareport.report import Report, Section
from htareport.rows.secret_kinds import HOSTS
from htareport.rules import discover as discover_rules
from htareport.rules.engine.base import AnyRule
from htareport.rules.engine.evaluate import evaluate_rank
from htareport.rules.engine.findings import tell
from htareport.run.executors import NO_MEMORY, Files, is_local_pool, over_ranks, release_freed_memory
from htareport.run.overview import verdict, with_salvage_notes
from htareport.run.shrink import RULES, fit
from htareport.run.summaries import (
    RankSummary,
    Work,
    room_notes,
    salvaged,
    section_of,
    sorted_summaries,
    stride,
    thinned,
    thinned_warnings,
)
from htareport.run.summary_cache import SummaryEntry, load_summary
from htareport.trace import RankTrace

Progress: TypeAlias = Callable[[int, int, str], None]
_STRINGS = ("mode.string_storage", "python")  # Those that pyarrow holds cost a tenth more time, a third more memory.


@pd.option_context(*_STRINGS)
def analyze(  # noqa: PLR0913  the options of a run
    source: Source | Trace,
    *,
    analyses: Sequence[Analysis] | None = None,
    rules: Sequence[AnyRule] | None = None,
    steps: str = "all",
    salvage: bool = False,
    redact: bool = True,
    cache: str | Path | bool = True,
    executor: Executor | None = None,
    title: str = "",
    progress: Progress | None = None,
) -> Report:
    """Run the analyses and rules over every rank of a run and return the report: all by default.

    Where analyses are chosen, no rules run unless they are given too.

    `source` is a folder, file, glob, archive, list of files, {rank: file} or an opened Trace; `steps` is `all`,
    `complete` or numbers such as 3,5-7; `salvage` keeps the complete events of files that are damaged or end early, and
    marks their ranks; `redact` takes tokens, passwords, names of users and hosts and the like out of what the traces
    hold; `cache` is the folder in which what was read of large files is kept for the next time, the user's own for
    True, none for False (only where pyarrow is installed); `executor` is any concurrent.futures one, none: in this
    process. `progress` is called after each rank with (done, total, label). NothingToReadError if no rank can be read.
    """
    trace = source if isinstance(source, Trace) else Trace.open(source)
    how = replace(trace.options, salvage=salvage or trace.options.salvage, redact=redact).cached(cache)
    trace = replace(trace, options=how)
    chosen = discover() if analyses is None else list(analyses)
    asked = list(rules) if rules is not None else [] if analyses is not None else discover_rules()
    window = Window.parse(steps)
    work = Work(chosen, asked, window, how, ranks=len(trace.files))
    return combined(trace, work, _summaries(trace, work, executor, progress), title)


@pd.option_context(*_STRINGS)
def combined(trace: Trace, work: Work, found: Iterable[RankSummary], title: str = "") -> Report:
    """Make the report of what workers found on all ranks, in whatever order that comes."""
    summaries = sorted_summaries(found)
    loaded = [summary for summary in summaries if summary.facts]
    if not loaded:
        reasons = "; ".join(_file_error(trace, summary) for summary in summaries[:3])
        raise NothingToReadError(f"{trace.label}: no trace could be read ({reasons})")
    _check_steps(work.window, loaded)
    job = _job(loaded)
    findings = _findings(loaded, work.rules, job)  # First, since the evidence of many ranks takes room.
    release_freed_memory()
    drawn = [section_of(analysis, loaded, job) for analysis in work.analyses]
    sections = (*findings, *(section for section, _ in drawn))
    problems = [*_file_problems(trace, summaries), *(problem for _, problem in drawn if problem)]
    facts = [summary.facts for summary in loaded if summary.facts]
    meta = job_meta(facts, trace.left_out, work.window) | {
        "version": __version__,
        "source": trace.label,
        "options": _options(work.analyses, work.rules),
        "problems": first_of(problems, "problem"),
    }
    damaged = [text for fact in facts for text in fact.salvaged]
    warnings = [
        *problems,
        *damaged,
        *trace.warnings,
        *left_out_warnings(trace.left_out),
        *step_warnings(facts, work.window),
        *thinned_warnings(facts, work.ranks),
        *consistency_warnings(facts, trace.unasked),
        *secret_warnings(facts),
        *(warning for fact in facts for warning in fact.warnings if warning not in damaged),
    ]
    report = Report(
        printable(title) or trace.label, verdict(sections, facts), meta, tuple(first_of(warnings, "warning")), sections
    )
    return _with_numbered_hosts(report, facts) if work.options.redact else report


def _findings(summaries: Sequence[RankSummary], rules: Sequence[AnyRule], job: Job) -> list[Section]:
    """What rules say; it takes the ranks' evidence."""
    evidence = [summary.evidence for summary in summaries if summary.evidence]
    for summary in summaries:
        summary.evidence = None
    if not evidence:
        return []
    told = with_salvage_notes(tell(evidence, rules, job.zero_ns), salvaged(summaries))
    return [replace(told, notes=(*told.notes, *room_notes(summaries, RULES)))]


def _options(analyses: Sequence[Analysis], rules: Sequence[AnyRule]) -> dict[str, dict[str, Any]]:
    """Options of the analyses, and of the rules the thresholds that are not the default."""
    options = {analyse.name: options for analyse in analyses if (options := analyse.chosen_options())}
    for rule in rules:
        default = rule.options()
        if changed := {name: value for name, value in rule.chosen_options().items() if value != default[name]}:
            options[rule.code] = changed
    return options


def _with_numbered_hosts(report: Report, facts: Sequence[RankFacts]) -> Report:
    """Give hosts, which each worker has replaced for itself, numbers that hold for all ranks."""
    if not any(fact.host or HOSTS in fact.redactions for fact in facts):
        return report
    return Report.from_json(numbered(report.to_json().decode(), [fact.host for fact in facts if fact.host]))


@pd.option_context(*_STRINGS)
def summarize(rank: int, files: Files, work: Work) -> RankSummary:
    """Load one rank, map it for every analysis and look at it with every rule. Never raises: it runs elsewhere."""
    if work.version != __version__:
        return RankSummary(rank, load_error=f"its worker has htareport {__version__}, not {work.version}")
    entry = SummaryEntry.for_rank(rank, files, work)
    if entry and (cached := entry.load()):
        return cached
    summary = _summary(rank, files, work, entry)
    release_freed_memory()  # The events are gone, and what comes next shall not add to where they were.
    return summary


def _summary(rank: int, files: Files, work: Work, entry: SummaryEntry | None) -> RankSummary:
    try:
        trace = RankTrace.load(rank, files, work.window, work.options)
        release_freed_memory()
        summary = RankSummary(rank, facts_of(trace))
    except MemoryError:
        return RankSummary(rank, load_error=NO_MEMORY)
    except Exception as error:  # noqa: BLE001  whatever is wrong with a file must cost only its rank
        return RankSummary(rank, load_error=str(error) or type(error).__name__)
    for analysis in work.analyses:
        _map(summary, trace, analysis, work.ranks)
    if work.rules:
        summary.evidence = evaluate_rank(trace, work.rules, stride(len(trace.steps), work.ranks))
    _fit(summary, trace, work)
    if entry and not trace.loaded.is_transient:
        entry.store(summary)
    return summary


def _map(summary: RankSummary, trace: Rank, analysis: Analysis, ranks: int) -> None:
    try:
        lacking = analysis.requires - trace.capabilities
        if lacking:
            summary.missing[analysis.name] = tuple(c.value for c in Capability if c in lacking)
        frames = analysis.without(trace) if lacking else analysis.map(trace)
        if frames:
            summary.frames[analysis.name] = pack(thinned(summary, frames, ranks))
    except Exception:  # noqa: BLE001  an analysis that fails costs only its section
        summary.errors[analysis.name] = traceback.format_exc(limit=-3)


def _fit(summary: RankSummary, trace: Rank, work: Work) -> None:
    """Ask those that send most for less, until all together is little enough."""
    asked = {analysis.name: analysis for analysis in work.analyses}

    def again(part: str, share: float) -> None:
        with room_for(share):
            if part == RULES:
                summary.evidence = evaluate_rank(trace, work.rules, stride(len(trace.steps), work.ranks))
            else:
                _map(summary, trace, asked[part], work.ranks)

    fit(summary, again)


def _summaries(trace: Trace, work: Work, executor: Executor | None, progress: Progress | None) -> Iterator[RankSummary]:
    """Every rank's summary, as they come."""
    known, left = list[RankSummary](), dict(trace.files)
    if executor and is_local_pool(executor):  # Else whoever reads looks for itself.
        known = [each for rank, files in trace.files.items() if (each := load_summary(rank, files, work))]
        there = {each.rank for each in known}
        left = {rank: files for rank, files in left.items() if rank not in there}
    found = chain(known, over_ranks(summarize, left, executor, _not_loaded, work))
    for done, summary in enumerate(found, 1):
        if progress:
            progress(done, len(trace.files), f"rank {summary.rank}")
        yield summary


def _not_loaded(rank: int, reason: str) -> RankSummary:
    return RankSummary(rank, load_error=reason)


def _job(summaries: Sequence[RankSummary]) -> Job:
    facts = [summary.facts for summary in summaries if summary.facts]
    starts = [fact.start_ns for fact in facts if fact.start_ns is not None]
    return Job(
        tuple(s.rank for s in summaries),
        min(starts, default=0),
        any(fact.steps for fact in facts),
        tuple(salvaged(summaries)),
    )


def _check_steps(window: Window, summaries: Sequence[RankSummary]) -> None:
    """UsageError if steps were asked for that no rank has."""
    if window == ALL or any(summary.facts and summary.facts.steps for summary in summaries):
        return
    there = sorted({step for summary in summaries if summary.facts for step in summary.facts.all_steps})
    listed = f"{there[0]} to {there[-1]}" if there else "no ProfilerStep# rows at all"
    raise UsageError(f"--steps: none of these steps is in the traces (they have {listed})")


def _file_problems(trace: Trace, summaries: Sequence[RankSummary]) -> list[str]:
    """What the report could not use, each naming the file."""
    files = [f"{name}: not used: {reason}" for name, reason in trace.unusable]
    ranks = [_file_error(trace, summary) for summary in summaries if summary.load_error]
    captures = [f"{name}: not used: {reason}" for s in summaries if s.facts for name, reason in s.facts.problems]
    return [*files, *ranks, *captures]


def _file_error(trace: Trace, summary: RankSummary) -> str:
    names = ", ".join(path.name for path in paths_of(trace.files[summary.rank]))
    reason = printable(without_credentials(summary.load_error))
    return f"{printable(names)}: not used: {reason} (rank {summary.rank} is missing)"
