"""`htareport report`: traces or a saved report in, report files out."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import stat
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from htareport import render
from htareport.cli import console, reading
from htareport.config import AMOUNTS, READING, ReportOptions, did_you_mean, report_options
from htareport.errors import MissingLibraryError, OutputError, UsageError, printable

if TYPE_CHECKING:
    from argparse import Namespace

    from htareport.analyses.base import Analysis
    from htareport.report import Report
    from htareport.trace import Trace

EXIT_PARTIAL = 4

_GIVEN = (
    "output", "title", "ranks", "steps", "only", "set", "jobs", "allow_partial", "paper", "require_pdf", "plotlyjs",
    *READING,
    *AMOUNTS,
)  # fmt: skip
_FOR_TRACES = ("ranks", "steps", "only", "set", *READING, *AMOUNTS)
_HEAD_BYTES = 65536


def run(arguments: Namespace) -> int:
    """Write the report; return the exit status."""
    given = {name: getattr(arguments, name) for name in _GIVEN if getattr(arguments, name) is not None}
    options = report_options(given, arguments.config)
    if not arguments.source:
        raise UsageError("no traces and no report were named: the path is empty")
    for output in options.output:
        check_output(output)
    if is_saved_report(Path(arguments.source)):
        if asked := [f"--{name.replace('_', '-')}" for name in _FOR_TRACES if name in given]:
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
        if console.is_closed():
            raise OutputError("-o -: there is no standard output")
        return
    path = Path(output)
    if not path.name.lower().endswith(render.SUFFIXES):
        known = f"{' '.join(render.SUFFIXES)}, and - for Markdown on standard output"
        raise UsageError(f"-o {output}: the suffix picks the format; there are {known}")
    try:
        _try_output(Path(os.path.realpath(path)) if path.is_symlink() else path)
    except PermissionError as error:
        raise OutputError(f"-o {output}: no permission to write there") from error
    except (OSError, ValueError) as error:
        raise OutputError(f"-o {output}: {getattr(error, 'strerror', None) or error}") from error


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


def is_saved_report(path: Path) -> bool:
    """Tell by content whether a file is a report's JSON; a trace of the same name is none."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except (OSError, ValueError):
        return False
    from htareport.trace.discover import is_report

    if head[:2] == b"\x1f\x8b":
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, _HEAD_BYTES)
        except zlib.error:
            return False
    return is_report(head)


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
    trace = reading.open_trace(source, options)
    _refuse_overwriting(trace, options.output)
    if any(output.lower().endswith(".html") for output in options.output):
        render.prepare(options.plotlyjs)
    with reading.executor(trace, options.jobs) as executor, console.progress(trace.label, quiet=quiet) as progress:
        return analyze(
            trace, analyses=analyses, steps=options.steps, redact=not options.no_redact,
            executor=executor, title=options.title, progress=progress,
        )  # fmt: skip


def _refuse_overwriting(trace: Trace, outputs: Sequence[str]) -> None:
    inputs = {path.resolve() for paths in trace.files.values() for path in reading.paths_of(paths)}
    for output in outputs:
        if output != "-" and Path(output).resolve() in inputs:
            raise UsageError(f"-o {output}: is one of the trace files")


def _write(report: Report, options: ReportOptions, *, quiet: bool) -> bool:
    """Write every output, the others too if one fails; return whether one did."""
    failed, written, full_report = False, list[str](), None
    for output in sorted(options.output, key=_turn):
        try:
            if output == "-":
                console.write(render.encoded(report, ".md").decode())
                continue
            path = render.write(report, output, plotlyjs=options.plotlyjs, paper=options.paper, full_report=full_report)
            written.append(f"{path}  {console.size(path.stat().st_size)}")
            if path.suffix.lower() == ".html":
                full_report = printable(path.name), hashlib.sha256(path.read_bytes()).hexdigest()
        except MissingLibraryError as error:  # The other outputs are worth having: a failure only if asked to be one.
            console.warning(f"{output}: not written: {error}")
            failed = failed or options.require_pdf
        except (OSError, OutputError) as error:
            console.error(str(error) if isinstance(error, OutputError) else f"{output}: {error.strerror or error}")
            failed = True
    for line in () if quiet else written:
        (console.err if "-" in options.output else console.out)(line)
    return failed


def _turn(output: str) -> int:
    """The page first, since a PDF names it; standard output last, since whoever reads us may leave."""
    return 2 if output == "-" else 0 if output.lower().endswith(".html") else 1
