"""`htareport send`: mails the report of traces, or a saved one."""

from __future__ import annotations

import dataclasses
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from htareport.cli import console, opening
from htareport.cli.config import CACHING, READING, command_line_options, report_options
from htareport.cli.report import READING_WORKERS, check_output, load_report
from htareport.errors import OutputError, UsageError
from htareport.files.locations import located, shown
from htareport.files.output import write_bytes

if TYPE_CHECKING:
    from argparse import Namespace

    from htareport.render.mail import Mail

_OPTION_NAMES = ("title", *CACHING, "ranks", "steps", *READING_WORKERS, *READING)
_UNSENT_NAME = "report.eml"
_MAX_UNSENT = 1000


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
    command_line = command_line_options(arguments, _OPTION_NAMES)
    options = dataclasses.replace(report_options(command_line), output=())
    report = load_report(arguments.source, options, set(command_line), quiet=arguments.quiet)
    errors = [str(problem) for problem in report.meta.get("problems", ())]
    console.problems(errors, [warning for warning in report.warnings if warning not in errors])
    email = mail.mail(report, subject=arguments.subject or "", sender=server.sender, to=to, date=datetime.now(UTC))
    console.problems([], [f"the mail {reason}" for reason in email.missing])
    if arguments.output:
        write_bytes(arguments.output, email.encoded())
    try:
        smtp.send(server, email.message, to)
    except OutputError as error:
        raise OutputError(f"{error}; {_save_unsent(email, arguments.output)}") from error
    if not arguments.quiet:
        recipients = ", ".join(address.addr_spec for address in to)
        console.out(f"sent to {recipients}  {console.size(len(email.encoded()))}")
    return opening.EXIT_PARTIAL if errors and not arguments.allow_partial else 0


def _check_output(output: str) -> None:
    if not output.lower().endswith(".eml"):
        raise UsageError(f"-o {output}: the mail is kept as .eml")
    check_output(output)


def _save_unsent(email: Mail, output: str | None) -> str:
    """Write a mail that was not delivered to a file, unless -o has done so; return a text that names the file."""
    try:
        path = located(output) if output else _free_name()
        if not output:
            write_bytes(path, email.encoded())
    except OutputError as error:
        return f"nor could the mail be kept: {error}"
    return f"the mail is kept in {shown(path)}"


def _free_name() -> Path:
    """Return the name of a new file in this folder."""
    first = Path(_UNSENT_NAME)
    names = (first, *(first.with_name(f"{first.stem}-{number}.eml") for number in range(2, _MAX_UNSENT)))
    return next((path for path in names if not path.exists()), first)
