"""`htareport explain`: the analyses, and each with its definitions; the same texts as in the report."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from htareport.cli import console
from htareport.config import did_you_mean
from htareport.errors import UsageError
from htareport.render.prose import unmarked

if TYPE_CHECKING:
    from argparse import Namespace

    from htareport.analyses.base import Analysis
    from htareport.report import TableSpec


_ITEM = re.compile(r"\s*[-*] +")


def run(arguments: Namespace) -> int:
    """Print the list, one analysis, or what the Compare chapter and gates are."""
    from htareport.analyses import analysis_classes

    classes = analysis_classes()
    if arguments.name is None:
        lines = _list(classes)
    else:
        found = _named(arguments.name, classes)
        lines = _topic(found) if isinstance(found, str) else _one(found)
    console.write("".join(f"{line}\n" for line in lines))  # Our own texts only, so that headings may be bold.
    return 0


def _named(wanted: str, classes: dict[str, type[Analysis]]) -> type[Analysis] | str:
    """The analysis, or the topic's name, of a name or title, in capitals or not. UsageError if there is none."""
    from htareport.comparison.topics import TITLES

    titles = {each.title: each for each in classes.values()} | {title: name for name, title in TITLES.items()}
    names: dict[str, type[Analysis] | str] = dict(classes) | {name: name for name in TITLES}
    known = {title.casefold(): each for title, each in titles.items()} | names
    found = known.get(wanted) or known.get(" ".join(wanted.split()).casefold())
    if found is None:
        hint = did_you_mean(wanted, [*names, *titles])
        raise UsageError(f"nothing is called {wanted!r}{hint} (there are: {', '.join(names)})")
    return found


def _list(classes: dict[str, type[Analysis]]) -> Iterator[str]:
    chapter, width = "", max(map(len, classes), default=0)
    title_width = max((len(each.title) for each in classes.values()), default=0)
    for name, each in classes.items():
        if each.group != chapter:
            yield ("\n" if chapter else "") + console.heading(str(each.group))
            chapter = each.group
        line = f"  {name:{width}}  {each.title:{title_width}}  {_first_sentence(each.help()) or each.title}"
        yield _fitted(line)
    yield f"\n{console.heading('Two runs (htareport diff), and gates (--fail-on)')}"
    from htareport.comparison.topics import TITLES, help_of

    for name, title in TITLES.items():
        yield _fitted(f"  {name:{width}}  {title:{title_width}}  {_first_sentence(help_of(name)) or title}")


def _fitted(line: str) -> str:
    fits = len(line) <= console.width() or not console.is_terminal()
    return line if fits else f"{line[: console.width() - 1]}…"


def _first_sentence(text: str) -> str:
    intro = unmarked(" ".join(text.partition("\n\n")[0].split()))
    return re.split(r"(?<=[.?!])\s", intro, maxsplit=1)[0]


def _topic(name: str) -> Iterator[str]:
    from htareport.comparison.gates import grammar
    from htareport.comparison.topics import METRICS, TITLES, help_of

    yield console.heading(f"{TITLES[name]} ({name}), chapter Compare")
    yield ""
    yield from _help(help_of(name).strip())
    if name == "gates":
        yield console.heading("Grammar")
        yield from (f"  {line}" for line in grammar())
        yield ""
        yield console.heading("Metrics")
        for metric, meaning in METRICS.items():  # Those without are told with the one before.
            yield from _wrapped(f"{metric}: {meaning}", "  ") if meaning else ()


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
    """Wrap paragraphs and the items of lists; headings lose their marks, indented blocks stay as they are."""
    for block in re.split(r"\n\s*\n", text):
        heading, _, rest = block.partition("\n") if block.startswith("#") else ("", "", block)
        if heading:
            yield console.heading(heading.lstrip("# "))
        if re.match(r"[|\s]", rest) and not _ITEM.match(rest):
            yield from rest.splitlines()
        else:
            for mark, words in _items(rest):
                yield from _wrapped(words, mark, " " * len(mark))
        yield ""


def _items(block: str) -> list[tuple[str, str]]:
    """Mark and text of each item of a list; a paragraph is one without a mark."""
    items = list[tuple[str, str]]()
    for line in block.splitlines():
        found = _ITEM.match(line)
        if found or not items:
            mark = found[0] if found else ""
            items.append((mark, line[len(mark) :]))
        else:
            items[-1] = (items[-1][0], f"{items[-1][1]} {line.strip()}")
    return items


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


def _wrapped(text: str, first: str, rest: str | None = None) -> list[str]:
    """Lines no longer than the terminal is wide, the first behind `first`, the others behind `rest` (as the first)."""
    return textwrap.wrap(
        unmarked(text),
        console.width(),
        initial_indent=first,
        subsequent_indent=first if rest is None else rest,
        break_on_hyphens=False,  # Names are to be copied.
        break_long_words=False,
    )
