"""Runs analyses and rules over the ranks of a job: a task summarizes each rank, then all summaries become the report.

Architecture invariants: a task loads one rank, summarizes it and drops its events; it never raises. A rank that does
not load costs its rows in the report, an analysis that raises its section. Nothing assumes that ranks start at 0.
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
from htareport.run.shrink import RULES, shrink_to_budget
from htareport.run.summaries import (
    RankSummary,
    Work,
    budget_notes,
    salvaged,
    section_of,
    sorted_summaries,
    step_stride,
    thinned,
    thinned_warnings,
)
from htareport.run.summary_cache import SummaryEntry, load_summary
from htareport.trace import RankTrace

Progress: TypeAlias = Callable[[int, int, str], None]
PANDAS_STRING_DTYPE = ("mode.string_storage", "python")  # pyarrow takes 10 % more time and a third more memory.


@pd.option_context(*PANDAS_STRING_DTYPE)
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

    With `analyses` but no `rules`, no rules run.

    `source` is a folder, file, glob, archive, list of files, {rank: file} or an opened Trace; `steps` is `all`,
    `complete` or numbers such as 3,5-7; `salvage` keeps the complete events of files that are damaged or end early, and
    marks their ranks; `redact` removes tokens, passwords, names of users and hosts and the like; `cache` is the folder
    that caches what was read of large files, the user's own for True, none for False (needs pyarrow); `executor` is any
    of concurrent.futures, None for this process. `progress` is called after each rank with (done, total, label).
    NothingToReadError if no rank can be read.
    """
    trace = source if isinstance(source, Trace) else Trace.open(source)
    options = replace(trace.options, salvage=salvage or trace.options.salvage, redact=redact).cached(cache)
    trace = replace(trace, options=options)
    requested_analyses = discover() if analyses is None else list(analyses)
    requested_rules = list(rules) if rules is not None else [] if analyses is not None else discover_rules()
    window = Window.parse(steps)
    work = Work(requested_analyses, requested_rules, window, options, ranks=len(trace.files))
    return combined(trace, work, _summaries(trace, work, executor, progress), title)


@pd.option_context(*PANDAS_STRING_DTYPE)
def combined(trace: Trace, work: Work, rank_summaries: Iterable[RankSummary], title: str = "") -> Report:
    """Return the report of the summaries of all ranks, which may come in any order."""
    summaries = sorted_summaries(rank_summaries)
    loaded = [summary for summary in summaries if summary.facts]
    if not loaded:
        reasons = "; ".join(_file_error(trace, summary) for summary in summaries[:3])
        raise NothingToReadError(f"{trace.label}: no trace could be read ({reasons})")
    _check_steps(work.window, loaded)
    job = _job(loaded)
    findings = _findings(loaded, work.rules, job)  # First, as the evidence of many ranks takes memory.
    release_freed_memory()
    section_results = [section_of(analysis, loaded, job) for analysis in work.analyses]
    sections = (*findings, *(section for section, _ in section_results))
    problems = [*_file_problems(trace, summaries), *(problem for _, problem in section_results if problem)]
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
    return _with_hosts_numbered(report, facts) if work.options.redact else report


def _findings(summaries: Sequence[RankSummary], rules: Sequence[AnyRule], job: Job) -> list[Section]:
    """The section of findings; removes the evidence from the summaries."""
    evidence = [summary.evidence for summary in summaries if summary.evidence]
    for summary in summaries:
        summary.evidence = None
    if not evidence:
        return []
    section = with_salvage_notes(tell(evidence, rules, job.zero_ns), salvaged(summaries))
    return [replace(section, notes=(*section.notes, *budget_notes(summaries, RULES)))]


def _options(analyses: Sequence[Analysis], rules: Sequence[AnyRule]) -> dict[str, dict[str, Any]]:
    """Options of analyses by name, and thresholds of rules that are not the default."""
    options = {analysis.name: options for analysis in analyses if (options := analysis.chosen_options())}
    for rule in rules:
        default = rule.options()
        if changed := {name: value for name, value in rule.chosen_options().items() if value != default[name]}:
            options[rule.code] = changed
    return options


def _with_hosts_numbered(report: Report, facts: Sequence[RankFacts]) -> Report:
    """Number redacted hosts consistently over all ranks; each worker has replaced them on its own."""
    if not any(fact.host or HOSTS in fact.redactions for fact in facts):
        return report
    return Report.from_json(numbered(report.to_json().decode(), [fact.host for fact in facts if fact.host]))


@pd.option_context(*PANDAS_STRING_DTYPE)
def summarize(rank: int, files: Files, work: Work) -> RankSummary:
    """Return the summary of one rank: the frames of all analyses, and the evidence of all rules. Never raises."""
    if work.version != __version__:
        return RankSummary(rank, load_error=f"its worker has htareport {__version__}, not {work.version}")
    entry = SummaryEntry.for_rank(rank, files, work)
    if entry and (cached := entry.load()):
        return cached
    summary = _summary(rank, files, work, entry)
    release_freed_memory()  # The events are freed; the next rank shall not add to their memory.
    return summary


def _summary(rank: int, files: Files, work: Work, entry: SummaryEntry | None) -> RankSummary:
    try:
        trace = RankTrace.load(rank, files, work.window, work.options)
        release_freed_memory()
        summary = RankSummary(rank, facts_of(trace))
    except MemoryError:
        return RankSummary(rank, load_error=NO_MEMORY)
    except Exception as error:  # noqa: BLE001  a file that cannot be read costs only its rank
        return RankSummary(rank, load_error=str(error) or type(error).__name__)
    for analysis in work.analyses:
        _map(summary, trace, analysis, work.ranks)
    if work.rules:
        summary.evidence = evaluate_rank(trace, work.rules, step_stride(len(trace.steps), work.ranks))
    _shrink(summary, trace, work)
    if entry and not trace.loaded.is_transient:
        entry.store(summary)
    return summary


def _map(summary: RankSummary, rank: Rank, analysis: Analysis, ranks: int) -> None:
    try:
        lacking = analysis.requires - rank.capabilities
        if lacking:
            summary.missing[analysis.name] = tuple(c.value for c in Capability if c in lacking)
        frames = analysis.without(rank) if lacking else analysis.map(rank)
        if frames:
            summary.frames[analysis.name] = pack(thinned(summary, frames, ranks))
    except Exception:  # noqa: BLE001  an analysis that fails costs only its section
        summary.errors[analysis.name] = traceback.format_exc(limit=-3)


def _shrink(summary: RankSummary, rank: Rank, work: Work) -> None:
    """Run the analyses and rules that send most again for fewer rows, until the summary is small enough."""
    analyses = {analysis.name: analysis for analysis in work.analyses}

    def remeasure(name: str, share: float) -> None:
        with room_for(share):
            if name == RULES:
                summary.evidence = evaluate_rank(rank, work.rules, step_stride(len(rank.steps), work.ranks))
            else:
                _map(summary, rank, analyses[name], work.ranks)

    shrink_to_budget(summary, remeasure)


def _summaries(trace: Trace, work: Work, executor: Executor | None, progress: Progress | None) -> Iterator[RankSummary]:
    """Yield the summary of every rank: cached ones first, others as workers complete them."""
    cached, missing = list[RankSummary](), dict(trace.files)
    if executor and is_local_pool(executor):  # Otherwise each task looks for its own.
        cached = [summary for rank, missing in trace.files.items() if (summary := load_summary(rank, missing, work))]
        cached_ranks = {summary.rank for summary in cached}
        missing = {rank: missing for rank, missing in missing.items() if rank not in cached_ranks}
    summaries = chain(cached, over_ranks(summarize, missing, executor, _not_loaded, work))
    for done, summary in enumerate(summaries, 1):
        if progress:
            progress(done, len(trace.files), f"rank {summary.rank}")
        yield summary


def _not_loaded(rank: int, reason: str) -> RankSummary:
    return RankSummary(rank, load_error=reason)


def _job(summaries: Sequence[RankSummary]) -> Job:
    facts = [summary.facts for summary in summaries if summary.facts]
    starts = [fact.start_ns for fact in facts if fact.start_ns is not None]
    return Job(
        tuple(summary.rank for summary in summaries),
        min(starts, default=0),
        any(fact.steps for fact in facts),
        tuple(salvaged(summaries)),
    )


def _check_steps(window: Window, summaries: Sequence[RankSummary]) -> None:
    """UsageError if no rank has any of the requested steps."""
    if window == ALL or any(summary.facts and summary.facts.steps for summary in summaries):
        return
    recorded = sorted({step for summary in summaries if summary.facts for step in summary.facts.all_steps})
    listed = f"{recorded[0]} to {recorded[-1]}" if recorded else "no ProfilerStep# rows at all"
    raise UsageError(f"--steps: none of these steps is in the traces (they have {listed})")


def _file_problems(trace: Trace, summaries: Sequence[RankSummary]) -> list[str]:
    """Problems of files and ranks that cannot be used; each text names the file."""
    files = [f"{name}: not used: {reason}" for name, reason in trace.unusable]
    ranks = [_file_error(trace, summary) for summary in summaries if summary.load_error]
    captures = [f"{name}: not used: {reason}" for s in summaries if s.facts for name, reason in s.facts.problems]
    return [*files, *ranks, *captures]


def _file_error(trace: Trace, summary: RankSummary) -> str:
    names = ", ".join(path.name for path in paths_of(trace.files[summary.rank]))
    reason = printable(without_credentials(summary.load_error))
    return f"{printable(names)}: not used: {reason} (rank {summary.rank} is missing)"
