"""`htareport send`: the report of traces, or a saved one, by mail."""

from __future__ import annotations

import dataclasses
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from htareport.cli import console, opening
from htareport.cli.config import CACHING, READING, report_options
from htareport.cli.report import EXIT_PARTIAL, check_output, chosen_analyses, chosen_rules
from htareport.errors import OutputError, UsageError
from htareport.files.locations import located, shown
from htareport.files.output import write_bytes

if TYPE_CHECKING:
    from argparse import Namespace

    from htareport.render.mail import Mail
    from htareport.report import Report

_FOR_TRACES = ("ranks", "steps", "jobs", "executor", *READING)
_KEPT = "report.eml"
_MOST_KEPT = 1000


def run(arguments: Namespace) -> int:
    """Send the mail; return the exit status."""
    from htareport.deliver import smtp
    from htareport.render import mail

    to = smtp.addresses(arguments.to)
    if arguments.subject is not None:
        mail.subject_line(arguments.subject)
    if arguments.output:
        _check_output(arguments.output)
    server = smtp.Server.from_environment(os.environ)
    report = _report(arguments)
    errors = [str(each) for each in report.meta.get("problems", ())]
    console.problems(errors, [warning for warning in report.warnings if warning not in errors])
    made = mail.mail(report, subject=arguments.subject or "", sender=server.sender, to=to, date=datetime.now(UTC))
    console.problems([], [f"the mail {reason}" for reason in made.missing])
    if arguments.output:
        write_bytes(arguments.output, made.encoded())
    try:
        smtp.send(server, made.message, to)
    except OutputError as error:
        raise OutputError(f"{error}; {_keep(made, arguments.output)}") from error
    if not arguments.quiet:
        told = ", ".join(each.addr_spec for each in to)
        console.out(f"sent to {told}  {console.size(len(made.encoded()))}")
    return EXIT_PARTIAL if errors and not arguments.allow_partial else 0


def _check_output(output: str) -> None:
    if not output.lower().endswith(".eml"):
        raise UsageError(f"-o {output}: the mail is kept as .eml")
    check_output(output)


def _report(arguments: Namespace) -> Report:
    """Load the report, or make it."""
    from htareport.report import Report

    if not arguments.source:
        raise UsageError("no traces and no report were named: the path is empty")
    names = ("title", *CACHING, *_FOR_TRACES)
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    options = report_options(given)
    from htareport.reading.sources.saved_reports import is_saved_report

    if is_saved_report(located(arguments.source)):
        if asked := [f"--{name.replace('_', '-')}" for name in _FOR_TRACES if name in given]:
            raise UsageError(f"{', '.join(asked)}: needs the traces, and {shown(arguments.source)} is a saved report")
        report = Report.load(arguments.source)
        return dataclasses.replace(report, title=options.title) if options.title else report
    from htareport.run.runner import analyze

    analyses, rules = chosen_analyses(options), chosen_rules(options)
    trace = opening.open_trace(arguments.source, options)
    with (
        opening.executor(trace, options) as executor,
        console.progress(trace.label, quiet=arguments.quiet) as progress,
    ):
        return analyze(
            trace, analyses=analyses, rules=rules, steps=options.steps, redact=not options.no_redact,
            executor=executor, title=options.title, progress=progress,
        )  # fmt: skip


def _keep(made: Mail, output: str | None) -> str:
    """Write a mail that was not delivered where nothing is in its way, and say where."""
    try:
        path = located(output) if output else _free_name()
        if not output:
            write_bytes(path, made.encoded())
    except OutputError as error:
        return f"nor could the mail be kept: {error}"
    return f"the mail is kept in {shown(path)}"


def _free_name() -> Path:
    """Return a name in this folder that no file has."""
    first = Path(_KEPT)
    names = (first, *(first.with_name(f"{first.stem}-{number}.eml") for number in range(2, _MOST_KEPT)))
    return next((path for path in names if not path.exists()), first)
