"""`htareport report`: traces or a saved report in, report files out."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from htareport import render
from htareport.cli import console, reading
from htareport.config import ReportOptions, did_you_mean, report_options
from htareport.errors import OutputError, UsageError

if TYPE_CHECKING:
    from argparse import Namespace

    from htareport.analyses.base import Analysis
    from htareport.report import Report
    from htareport.trace import Trace

EXIT_PARTIAL = 4

_GIVEN = ("output", "title", "ranks", "steps", "only", "set", "jobs", "allow_partial", "plotlyjs")
_FOR_TRACES = ("ranks", "steps", "only", "set")
_HEAD_BYTES = 65536


def run(arguments: Namespace) -> int:
    """Write the report; return the exit status."""
    given = {name: getattr(arguments, name) for name in _GIVEN if getattr(arguments, name) is not None}
    options = report_options(given, arguments.config)
    for output in options.output:
        check_output(output)
    if is_saved_report(Path(arguments.source)):
        if asked := [f"--{name}" for name in _FOR_TRACES if name in given]:
            raise UsageError(f"{', '.join(asked)}: needs the traces, and {arguments.source} is a saved report")
        report = _saved(Path(arguments.source), options.title)
    else:
        report = _analyzed(arguments.source, options, quiet=arguments.quiet)
    errors = [str(each) for each in report.meta.get("problems", ())]
    console.problems(errors, [each for each in report.warnings if each not in errors])
    failed = _write(report, options, quiet=arguments.quiet)
    if failed:
        return OutputError.exit_code
    return EXIT_PARTIAL if errors and not options.allow_partial else 0


def check_output(output: str) -> None:
    """Refuse, before the long work, a file that could not be written after it."""
    if output == "-":
        return
    path = Path(output)
    if not path.name.lower().endswith(render.SUFFIXES):
        known = f"{' '.join(render.SUFFIXES)}, and - for Markdown on standard output"
        raise UsageError(f"-o {output}: the suffix picks the format; there are {known}")
    if path.is_dir():
        raise UsageError(f"-o {output}: is a folder")
    if not path.parent.is_dir():
        raise OutputError(f"-o {output}: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise OutputError(f"-o {output}: no permission to write there")


def is_saved_report(path: Path) -> bool:
    """Tell by content whether a file is a report's JSON; a trace of the same name is none."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except (OSError, ValueError):
        return False
    if head[:2] == b"\x1f\x8b":
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, _HEAD_BYTES)
        except zlib.error:
            return False
    found = re.match(rb"(?:\xef\xbb\xbf)?\s*\{(.*?)\"schema_version\"\s*:", head, re.DOTALL)
    return found is not None and not re.search(rb'"(traceEvents|schemaVersion)"\s*:', found[1])


def chosen_analyses(options: ReportOptions) -> list[Analysis]:
    """Make the analyses asked for, with their options."""
    from htareport.analyses import analysis_classes

    classes = analysis_classes()
    for name in (*options.only, *options.set):
        if name not in classes:
            raise UsageError(f"no analysis {name!r}{did_you_mean(name, classes)} (there are: {', '.join(classes)})")
    made = {name: each.configured(options.set.get(name, {})) for name, each in classes.items()}
    return [each for name, each in made.items() if not options.only or name in options.only]


def _saved(path: Path, title: str) -> Report:
    from htareport.report import Report

    report = Report.load(path)
    return dataclasses.replace(report, title=title) if title else report


def _analyzed(source: str, options: ReportOptions, *, quiet: bool) -> Report:
    from htareport.runner import analyze

    analyses = chosen_analyses(options)
    trace = reading.open_trace(source, options.ranks)
    _refuse_overwriting(trace, options.output)
    if any(output.lower().endswith(".html") for output in options.output):
        render.prepare(options.plotlyjs)
    with reading.executor(trace, options.jobs) as executor, console.progress(trace.label, quiet=quiet) as progress:
        return analyze(
            trace, analyses=analyses, steps=options.steps, executor=executor, title=options.title, progress=progress
        )


def _refuse_overwriting(trace: Trace, outputs: Sequence[str]) -> None:
    inputs = {path.resolve() for paths in trace.files.values() for path in reading.paths_of(paths)}
    for output in outputs:
        if output != "-" and Path(output).resolve() in inputs:
            raise UsageError(f"-o {output}: is one of the trace files")


def _write(report: Report, options: ReportOptions, *, quiet: bool) -> bool:
    """Write every output, the others too if one fails; return whether one did."""
    failed, written = False, list[str]()
    for output in sorted(options.output, key=lambda each: each == "-"):  # A broken pipe shall cost no file.
        try:
            if output == "-":
                _print_markdown(report)
            else:
                path = render.write(report, output, plotlyjs=options.plotlyjs)
                written.append(f"{path}  {console.size(path.stat().st_size)}")
        except BrokenPipeError:
            console.drop_output()
        except (OSError, OutputError) as error:
            console.error(str(error) if isinstance(error, OutputError) else f"{output}: {error.strerror or error}")
            failed = True
    for line in () if quiet else written:
        (console.err if "-" in options.output else console.out)(line)
    return failed


def _print_markdown(report: Report) -> None:
    sys.stdout.write(render.encoded(report, ".md").decode())
    sys.stdout.flush()
