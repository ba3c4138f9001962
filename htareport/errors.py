"""Errors meant for the user. The command line prints their text, never a traceback."""

from __future__ import annotations


class HtaReportError(Exception):
    """Base of everything that is raised for the user; `exit_code` is what the command line ends with."""

    exit_code = 1


class UsageError(HtaReportError):
    """An option or argument that makes no sense."""

    exit_code = 2


class NothingToReadError(HtaReportError):
    """No usable trace where one was asked for; the text says what was looked for and what was found."""

    exit_code = 3


class TraceFileError(HtaReportError):
    """One trace file that cannot be used; the text is the reason, with its place where there is one."""

    exit_code = 3


class ReportFileError(HtaReportError):
    """A file that was given as a saved report and is none."""

    exit_code = 3


class OutputError(HtaReportError):
    """A report that could not be written or delivered."""

    exit_code = 5
