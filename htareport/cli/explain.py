"""`htareport explain`: the analyses, and each with its definitions; the same texts as in the report."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from htareport.cli import console
from htareport.config import did_you_mean
from htareport.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace

    from htareport.analyses.base import Analysis
    from htareport.report import TableSpec


def run(arguments: Namespace) -> int:
    """Print the list or one analysis."""
    from htareport.analyses import analysis_classes

    classes = analysis_classes()
    if arguments.name is None:
        lines = _list(classes)
    elif arguments.name in classes:
        lines = _one(classes[arguments.name])
    else:
        name = arguments.name
        raise UsageError(f"no analysis {name!r}{did_you_mean(name, classes)} (there are: {', '.join(classes)})")
    console.write("".join(f"{line}\n" for line in lines))  # Our own texts only, so that headings may be bold.
    return 0


def _list(classes: dict[str, type[Analysis]]) -> Iterator[str]:
    chapter, width = "", max(map(len, classes), default=0)
    for name, each in classes.items():
        if each.group != chapter:
            yield ("\n" if chapter else "") + console.heading(str(each.group))
            chapter = each.group
        line = f"  {name:{width}}  {_first_sentence(each)}"
        fits = len(line) <= console.width() or not console.is_terminal()
        yield line if fits else f"{line[: console.width() - 1]}…"


def _first_sentence(each: type[Analysis]) -> str:
    intro = " ".join(each.help().partition("\n\n")[0].split())
    return re.split(r"(?<=[.?!])\s", intro, maxsplit=1)[0] if intro else each.title


def _one(each: type[Analysis]) -> Iterator[str]:
    yield console.heading(f"{each.title} ({each.name}), chapter {each.group}")
    yield ""
    yield from _help(each.help().strip())
    if options := each.options():
        yield from (console.heading("Options (defaults)"), "")
        ranges = each.ranges()
        for name, default in options.items():
            yield f"  --set {each.name}.{name}={default}" + (f"   ({ranges[name]})" if name in ranges else "")
        yield ""
    if each.requires:
        yield from (console.heading("What it needs, and what to do if that is missing"), "")
        for capability in sorted(each.requires):
            yield from _wrapped(f"{capability.name}: {capability}", "  ")
        yield ""
    yield console.heading("Tables")
    for spec in each.tables:
        yield from _table(spec)


def _help(text: str) -> Iterator[str]:
    """Wrap paragraphs; headings lose their marks, lists and indented blocks stay as they are."""
    for block in re.split(r"\n\s*\n", text):
        heading, _, rest = block.partition("\n") if block.startswith("#") else ("", "", block)
        if heading:
            yield console.heading(heading.lstrip("# "))
        if re.match(r"[-*|\s]|\d+\.", rest):
            yield from rest.splitlines()
        elif rest:
            yield from _wrapped(" ".join(rest.split()), "")
        yield ""


def _table(spec: TableSpec) -> Iterator[str]:
    yield ""
    yield f"  {console.heading(spec.title)} ({spec.name})"
    if spec.help:
        yield from _wrapped(spec.help, "  ")
    for column in spec.columns:
        kind = f"{column.unit}, key" if column.is_key else str(column.unit)
        yield f"    {column.name} [{kind}]  {column.label}"
        if column.help:
            yield from _wrapped(column.help, " " * 8)


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, console.width(), initial_indent=indent, subsequent_indent=indent)
