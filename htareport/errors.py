"""Errors meant for the user, and text that may be shown. The command line prints it, never a traceback."""

from __future__ import annotations

import re
import unicodedata

_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # Control, format (also of direction), surrogates, ends of lines.
_JOINERS = "\u200c\u200d"  # Format characters that scripts and emoji need.
_URL = re.compile(
    r"""(?P<scheme>[a-z][a-z0-9+.-]*)://(?:[^\s/?#"'<>]*@)?(?P<rest>[^\s?"'<>]*)(?P<query>\?[^\s"'<>)]*(?<![:;,.]))?""",
    re.IGNORECASE,
)


def printable(text: str) -> str:
    r"""Return text that can be written anywhere and shows what it is: what cannot be seen becomes \xNN or \uNNNN.

    Names of files may hold anything: bytes that are no UTF-8 (as lone surrogates), commands to a terminal, marks that
    turn the direction of reading. Every name that becomes part of a report or message goes through here.
    """
    if text.isprintable():
        return text
    return "".join(_escaped(each) if _unseen(each) else each for each in text)


def _unseen(character: str) -> bool:
    return unicodedata.category(character) in _UNSEEN and character not in _JOINERS


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # noqa: PLR2004  How Python shows a byte that it could not decode.
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004


def without_credentials(text: str) -> str:
    """Return text whose URLs have lost user and password, and their query: a signed URL is as good as a password.

    A question mark without any `=` behind it stays, except on the web: in object stores it stands for any letter.
    """
    return _URL.sub(_bare, text) if "://" in text else text


def _bare(url: re.Match[str]) -> str:
    query = url["query"] or ""
    if "=" in query or (len(query) > 1 and url["scheme"].lower().startswith("http")):
        query = "?[redacted]"
    return f"{url['scheme']}://{url['rest']}{query}"


class HtaReportError(Exception):
    """Base of everything that is raised for the user; `exit_code` is what the command line ends with."""

    exit_code = 70

    def __init__(self, text: str) -> None:
        super().__init__(printable(without_credentials(text)))


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


class MissingLibraryError(OutputError):
    """A library of the system that one format needs and that is not there; the text says how to get it."""
