"""`htareport report`: traces or a saved report in, report files out."""

from __future__ import annotations

import dataclasses
import os
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from htareport.cli import console, opening
from htareport.cli.config import AMOUNTS, CACHING, READING, ReportOptions, did_you_mean, report_options
from htareport.errors import MissingLibraryError, OutputError, UsageError
from htareport.files.locations import is_folder, is_remote, located, paths_of, resolved, shown, size_of
from htareport.files.output import encoded, output_formats, write_all

if TYPE_CHECKING:
    from argparse import Namespace

    from htareport.analyses import Analysis
    from htareport.compare.gates import Gate, Verdict
    from htareport.reading.sources.job import Trace
    from htareport.report import Report
    from htareport.rules.engine.base import AnyRule

EXIT_GATE, EXIT_PARTIAL = 1, 4
FINDINGS = "findings"  # Name of the section of all rules.
_MOST_FINDINGS = 3  # On the terminal.

_GIVEN = (
    "output", "title", "ranks", "steps", "only", "set", "jobs", "executor", "allow_partial", "paper", "require_pdf",
    "plotlyjs", "fail_on", "fail_on_inconclusive", *READING, *CACHING, *AMOUNTS,
)  # fmt: skip
READERS = ("jobs", "executor")  # Who reads traces.
_FOR_TRACES = ("ranks", "steps", "only", "set", *READERS, *READING, *AMOUNTS)


def run(arguments: Namespace) -> int:
    """Write the report; return the exit status."""
    options, given = options_of(arguments)
    gates = checked_gates(options, arguments.source, has_base=False)
    report = side(arguments.source, options, given, quiet=arguments.quiet)
    return finish(report, options, gates, quiet=arguments.quiet)


def options_of(arguments: Namespace) -> tuple[ReportOptions, set[str]]:
    """Read the options, and check that what they name can be written. Returns also which were given by name."""
    given = {name: getattr(arguments, name) for name in _GIVEN if getattr(arguments, name) is not None}
    options = report_options(given, arguments.config)
    for output in options.output:
        check_output(output)
    return options, set(given)


def checked_gates(options: ReportOptions, source: str, *, has_base: bool) -> list[Gate]:
    """Read the gates before the long work on a source. UsageError for one that could not be judged."""
    if not options.fail_on:
        return []
    from htareport.compare import gates
    from htareport.compare.finding_gates import check_finding
    from htareport.reading.sources.saved_reports import is_saved_report
    from htareport.rules import rule_classes

    checked_gates = [gates.parse(each) for each in options.fail_on]
    gates.check(checked_gates, has_base=has_base)
    if not is_saved_report(located(source)):  # That may come from where there are other rules.
        for gate in checked_gates:
            if gate.finding:
                check_finding(gate, rule_classes())
    return checked_gates


def side(source: str, options: ReportOptions, given: set[str], *, quiet: bool) -> Report:
    """Return the report of traces, or a saved one."""
    if not source:
        raise UsageError("no traces and no report were named: the path is empty")
    from htareport.reading.sources.saved_reports import is_saved_report

    path = located(source)
    if not is_saved_report(path):
        return _analyzed(source, options, quiet=quiet)
    if asked := [f"--{name.replace('_', '-')}" for name in _FOR_TRACES if name in given]:
        raise UsageError(f"{', '.join(asked)}: needs the traces, and {shown(source)} is a saved report")
    return _saved(path, options.title)


def finish(
    report: Report, options: ReportOptions, gates: Sequence[Gate], *, quiet: bool, base: Report | None = None
) -> int:
    """Judge the gates, say what is wrong, write every output; return the exit status."""
    crossed = False
    if gates:
        from htareport.compare import judged

        report, verdicts = judged(report, gates, base, fail_on_inconclusive=options.fail_on_inconclusive)
        crossed = any(verdict.fails for verdict in verdicts)
        _say(verdicts)
    errors = [str(each) for each in report.meta.get("problems", ())]
    console.problems(errors, [warning for warning in report.warnings if warning not in errors])
    if not quiet and base is None and "-" not in options.output:
        _say_findings(report)
    failed = _write(report, options, quiet=quiet)
    if failed:
        return OutputError.exit_code
    if crossed:
        return EXIT_GATE
    return EXIT_PARTIAL if errors and not options.allow_partial else 0


def _say(verdicts: Sequence[Verdict]) -> None:
    """Say which gates did not pass."""
    from htareport.compare.gates import State

    for verdict in verdicts:
        if verdict.state is not State.PASSED:
            told = f"gate {verdict.state}: {verdict.gate}: {verdict.reason}"
            (console.error if verdict.fails else console.warning)(told)


def _say_findings(report: Report) -> None:
    """Say what is most worthwhile, a line for each finding."""
    from htareport.render.findings import findings, saving
    from htareport.render.prose import unmarked

    for number, finding in enumerate(findings(report.sections)[:_MOST_FINDINGS], 1):
        could = f" ({saving(finding)})" if finding.saving_ns else ""
        console.out(" ".join(f"{number}. {finding.severity:6} {unmarked(finding.title)}{could}".split("\n")))


def check_output(output: str) -> None:
    """Refuse, before the long work, a file that could not be written after it."""
    if output == "-":
        if console.is_closed():
            raise OutputError("-o -: there is no standard output")
        return
    path = located(output)
    suffixes = tuple(output_formats())
    if not path.name.lower().endswith(suffixes):
        known = f"{' '.join(suffixes)}, and - for Markdown on standard output"
        raise UsageError(f"-o {shown(output)}: the suffix picks the format; there are {known}")
    try:
        if is_remote(path):
            if is_folder(path):
                raise UsageError(f"-o {shown(output)}: is a folder")
            return
        _try_output(Path(os.path.realpath(path)) if path.is_symlink() else path)
    except PermissionError as error:
        raise OutputError(f"-o {shown(output)}: no permission to write there") from error
    except (OSError, ValueError) as error:
        raise OutputError(f"-o {shown(output)}: {getattr(error, 'strerror', None) or error}") from error


def _try_output(path: Path) -> None:
    """Raise what writing the file would raise: its name, its folder, or what is there under its name is not fit."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    else:
        if not os.access(path, os.W_OK):
            raise PermissionError
    if stat.S_ISDIR(mode):
        raise UsageError(f"-o {path}: is a folder")
    if not stat.S_ISREG(mode):
        raise OSError(None, "is not a regular file")
    if not path.parent.is_dir():
        raise OSError(None, f"there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise PermissionError
    with tempfile.TemporaryFile(dir=path.parent):  # A folder that was deleted under us is writable, by what it says.
        pass


def chosen_analyses(options: ReportOptions) -> list[Analysis]:
    """Make the analyses asked for, with their options."""
    from htareport.analyses import analysis_classes
    from htareport.rules import rule_classes

    classes, rules = analysis_classes(), rule_classes()
    for name in options.only:
        if name not in {*classes, FINDINGS}:
            there = [*classes, FINDINGS]
            raise UsageError(f"no analysis {name!r}{did_you_mean(name, there)} (there are: {', '.join(there)})")
    for name in options.set:
        if name not in {*classes, *rules}:
            there = [*classes, *rules]
            raise UsageError(f"no analysis or rule {name!r}{did_you_mean(name, there)} (there are: {', '.join(there)})")
    made = {name: each.configured(options.set.get(name, {})) for name, each in classes.items()}
    return [each for name, each in made.items() if not options.only or name in options.only]


def chosen_rules(options: ReportOptions) -> list[AnyRule]:
    """Make the rules, with their thresholds; none where other sections were asked for."""
    from htareport.rules import rule_classes

    if options.only and FINDINGS not in options.only:
        return []
    return [each.configured(options.set.get(code, {})) for code, each in rule_classes().items()]


def _saved(path: Path, title: str) -> Report:
    from htareport.report import Report

    report = Report.load(path)
    return dataclasses.replace(report, title=title) if title else report


def _analyzed(source: str, options: ReportOptions, *, quiet: bool) -> Report:
    from htareport.run.runner import analyze

    analyses, rules = chosen_analyses(options), chosen_rules(options)
    trace = opening.open_trace(source, options)
    _refuse_overwriting(trace, options.output)
    if any(output.lower().endswith(".html") for output in options.output):
        from htareport.render.html import plotly_bundle

        plotly_bundle.prepare(options.plotlyjs)
    with opening.executor(trace, options) as executor, console.progress(trace.label, quiet=quiet) as progress:
        return analyze(
            trace,
            analyses=analyses,
            rules=rules,
            steps=options.steps,
            redact=not options.no_redact,
            executor=executor,
            title=options.title,
            progress=progress,
        )


def _refuse_overwriting(trace: Trace, outputs: Sequence[str]) -> None:
    inputs = {resolved(path) for paths in trace.files.values() for path in paths_of(paths)}
    for output in outputs:
        if output != "-" and resolved(located(output)) in inputs:
            raise UsageError(f"-o {output}: is one of the trace files")


def _write(report: Report, options: ReportOptions, *, quiet: bool) -> bool:
    """Write every output, the others too if one fails; return whether one did."""
    failed, written = False, list[str]()
    files = [output for output in options.output if output != "-"]
    for path, error in write_all(report, files, plotlyjs=options.plotlyjs, paper=options.paper):
        if error is None:
            written.append(f"{shown(path)}  {console.size(size_of(path))}")
        elif isinstance(error, MissingLibraryError):  # The others are worth having: a failure only if asked to be one.
            console.warning(f"{shown(path)}: not written: {error}")
            failed = failed or options.require_pdf
        else:
            console.error(str(error))
            failed = True
    if "-" in options.output:  # Last, since whoever reads us may leave.
        try:
            console.write(encoded(report, ".md").decode())
        except OSError as error:
            console.error(f"-: {error.strerror or error}")
            failed = True
    for line in () if quiet else written:
        (console.err if "-" in options.output else console.out)(line)
    return failed
