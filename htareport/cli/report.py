"""`htareport report`: analyses traces, or loads a saved report, and writes it in any format."""

from __future__ import annotations

import dataclasses
import os
import stat
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from htareport.cli import console, opening
from htareport.cli.config import (
    AMOUNTS,
    CACHING,
    READING,
    ReportOptions,
    command_line_options,
    did_you_mean,
    report_options,
)
from htareport.errors import MissingLibraryError, OutputError, UsageError
from htareport.files.locations import is_folder, is_remote, located, paths_of, resolved, shown, size_of
from htareport.files.output import encoded, output_formats, write_all

if TYPE_CHECKING:
    from argparse import Namespace

    from htareport.analyses import Analysis
    from htareport.compare.gates import Gate, Verdict
    from htareport.report import Report
    from htareport.rules.engine.base import AnyRule

EXIT_GATE = 1
FINDINGS = "findings"  # Name of the section with the findings of all rules.
_MAX_FINDINGS = 3  # On the terminal.

_OPTION_NAMES = (
    "output", "title", "ranks", "steps", "only", "set", "jobs", "executor", "allow_partial", "paper", "require_pdf",
    "plotlyjs", "fail_on", "fail_on_inconclusive", *READING, *CACHING, *AMOUNTS,
)  # fmt: skip
READING_WORKERS = ("jobs", "executor")  # Options of the workers that read traces.
_FOR_TRACES = ("ranks", "steps", "only", "set", *READING_WORKERS, *READING, *AMOUNTS)


def run(arguments: Namespace) -> int:
    """Write the report; return the exit status."""
    options, option_names = options_of(arguments)
    gates = checked_gates(options, arguments.source, has_base=False)
    report = load_report(arguments.source, options, option_names, quiet=arguments.quiet)
    return finish(report, options, gates, quiet=arguments.quiet)


def options_of(arguments: Namespace) -> tuple[ReportOptions, set[str]]:
    """Read the options and check that outputs can be written. Returns also which options are on the command line."""
    command_line = command_line_options(arguments, _OPTION_NAMES)
    options = report_options(command_line, arguments.config)
    for output in options.output:
        check_output(output)
    return options, set(command_line)


def checked_gates(options: ReportOptions, source: str, *, has_base: bool) -> list[Gate]:
    """Parse the gates before a source is read. UsageError for one that cannot be judged."""
    if not options.fail_on:
        return []
    from htareport.compare import gates
    from htareport.compare.finding_gates import check_finding
    from htareport.reading.sources.saved_reports import is_saved_report
    from htareport.rules import rule_classes

    parsed = [gates.parse(gate) for gate in options.fail_on]
    gates.check(parsed, has_base=has_base)
    if not is_saved_report(located(source)):  # A saved report may have findings of other rules.
        for gate in parsed:
            if gate.finding:
                check_finding(gate, rule_classes())
    return parsed


def load_report(source: str, options: ReportOptions, option_names: set[str], *, quiet: bool) -> Report:
    """Analyse traces, or load a saved report."""
    if not source:
        raise UsageError("no traces and no report were named: the path is empty")
    from htareport.reading.sources.saved_reports import is_saved_report

    path = located(source)
    if not is_saved_report(path):
        return _analyze(source, options, quiet=quiet)
    if refused := [f"--{name.replace('_', '-')}" for name in _FOR_TRACES if name in option_names]:
        raise UsageError(f"{', '.join(refused)}: needs the traces, and {shown(source)} is a saved report")
    from htareport.report import Report

    report = Report.load(path)
    return dataclasses.replace(report, title=options.title) if options.title else report


def finish(
    report: Report, options: ReportOptions, gates: Sequence[Gate], *, quiet: bool, base: Report | None = None
) -> int:
    """Judge the gates, print problems and findings, write every output; return the exit status."""
    crossed = False
    if gates:
        from htareport.compare import judged

        report, verdicts = judged(report, gates, base, fail_on_inconclusive=options.fail_on_inconclusive)
        crossed = any(verdict.fails for verdict in verdicts)
        _print_gates(verdicts)
    errors = [str(problem) for problem in report.meta.get("problems", ())]
    console.problems(errors, [warning for warning in report.warnings if warning not in errors])
    if not quiet and base is None and "-" not in options.output:
        _print_findings(report)
    failed = _write(report, options, quiet=quiet)
    if failed:
        return OutputError.exit_code
    if crossed:
        return EXIT_GATE
    return opening.EXIT_PARTIAL if errors and not options.allow_partial else 0


def _print_gates(verdicts: Sequence[Verdict]) -> None:
    """Print the gates that did not pass."""
    from htareport.compare.gates import State

    for verdict in verdicts:
        if verdict.state is not State.PASSED:
            text = f"gate {verdict.state}: {verdict.gate}: {verdict.reason}"
            (console.error if verdict.fails else console.warning)(text)


def _print_findings(report: Report) -> None:
    """Print the first findings, one line each."""
    from htareport.render.findings import findings, saving
    from htareport.render.prose import unmarked

    for number, finding in enumerate(findings(report.sections)[:_MAX_FINDINGS], 1):
        gain = f" ({saving(finding)})" if finding.saving_ns else ""
        console.out(" ".join(f"{number}. {finding.severity:6} {unmarked(finding.title)}{gain}".split("\n")))


def check_output(output: str) -> None:
    """Raise, before traces are read, if a file could not be written afterwards."""
    if output == "-":
        if console.is_closed():
            raise OutputError("-o -: there is no standard output")
        return
    path = located(output)
    suffixes = tuple(output_formats())
    if not path.name.lower().endswith(suffixes):
        formats = f"{' '.join(suffixes)}, and - for Markdown on standard output"
        raise UsageError(f"-o {shown(output)}: the suffix picks the format; there are {formats}")
    try:
        if is_remote(path):
            if is_folder(path):
                raise UsageError(f"-o {shown(output)}: is a folder")
            return
        _check_writable(Path(os.path.realpath(path)) if path.is_symlink() else path)
    except PermissionError as error:
        raise OutputError(f"-o {shown(output)}: no permission to write there") from error
    except (OSError, ValueError) as error:
        raise OutputError(f"-o {shown(output)}: {getattr(error, 'strerror', None) or error}") from error


def _check_writable(path: Path) -> None:
    """Raise the error that writing the file would raise."""
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
    with tempfile.TemporaryFile(dir=path.parent):  # os.access says that a deleted folder is writable.
        pass


def requested_analyses(options: ReportOptions) -> list[Analysis]:
    """Return the analyses of --only, all by default, with their options."""
    from htareport.analyses import analysis_classes
    from htareport.rules import rule_classes

    classes, rules = analysis_classes(), rule_classes()
    _refuse_unknown("analysis", options.only, [*classes, FINDINGS])
    _refuse_unknown("analysis or rule", options.set, [*classes, *rules])
    analyses = {name: kind.configured(options.set.get(name, {})) for name, kind in classes.items()}
    return [analysis for name, analysis in analyses.items() if not options.only or name in options.only]


def _refuse_unknown(kind: str, names: Iterable[str], known_names: list[str]) -> None:
    for name in names:
        if name not in known_names:
            hint = did_you_mean(name, known_names)
            raise UsageError(f"no {kind} {name!r}{hint} (there are: {', '.join(known_names)})")


def requested_rules(options: ReportOptions) -> list[AnyRule]:
    """Return all rules, with their thresholds; none if --only names other sections."""
    from htareport.rules import rule_classes

    if options.only and FINDINGS not in options.only:
        return []
    return [rule.configured(options.set.get(code, {})) for code, rule in rule_classes().items()]


def _analyze(source: str, options: ReportOptions, *, quiet: bool) -> Report:
    from htareport.run.runner import analyze

    analyses, rules = requested_analyses(options), requested_rules(options)
    trace = opening.open_trace(source, options)
    inputs = (path for paths in trace.files.values() for path in paths_of(paths))
    refuse_overwriting(inputs, options.output, "one of the trace files")
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


def refuse_overwriting(inputs: Iterable[Path], outputs: Sequence[str], role: str) -> None:
    """UsageError if an output is one of the files that are read."""
    resolved_inputs = set(map(resolved, inputs))
    for output in outputs:
        if output != "-" and resolved(located(output)) in resolved_inputs:
            raise UsageError(f"-o {output}: is {role}")


def _write(report: Report, options: ReportOptions, *, quiet: bool) -> bool:
    """Write every output, even if another fails; return whether one failed."""
    failed, written = False, list[str]()
    files = [output for output in options.output if output != "-"]
    for path, error in write_all(report, files, plotlyjs=options.plotlyjs, paper=options.paper):
        if error is None:
            written.append(f"{shown(path)}  {console.size(size_of(path))}")
        elif isinstance(error, MissingLibraryError):  # A failure only with --require-pdf.
            console.warning(f"{shown(path)}: not written: {error}")
            failed = failed or options.require_pdf
        else:
            console.error(str(error))
            failed = True
    if "-" in options.output:  # Last, as its reader may close the pipe.
        try:
            console.write(encoded(report, ".md").decode())
        except OSError as error:
            console.error(f"-: {error.strerror or error}")
            failed = True
    for line in () if quiet else written:
        (console.err if "-" in options.output else console.out)(line)
    return failed
