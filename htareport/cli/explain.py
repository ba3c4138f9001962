"""`htareport explain`: the analyses and rules, and each with its definitions; the same texts as in the report."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from htareport.cli import console
from htareport.cli.config import did_you_mean
from htareport.errors import UsageError
from htareport.render.prose import unmarked

if TYPE_CHECKING:
    from argparse import Namespace

    from htareport.analyses import Analysis
    from htareport.report import TableSpec
    from htareport.rules.engine.base import AnyRule


_ITEM = re.compile(r"\s*[-*] +")


def run(arguments: Namespace) -> int:
    """Print the list, one analysis or rule, or what findings, the Compare chapter and gates are."""
    from htareport.analyses import analysis_classes
    from htareport.rules import rule_classes
    from htareport.rules.engine.base import Rule

    analyses, rules = analysis_classes(), rule_classes()
    if arguments.name is None:
        lines = _list(analyses, rules)
    else:
        found = _named(arguments.name, analyses, rules)
        lines = _topic(found) if isinstance(found, str) else _rule(found) if issubclass(found, Rule) else _one(found)
    console.write("".join(f"{line}\n" for line in lines))  # Our own texts only, so that headings may be bold.
    return 0


def _named(
    wanted: str, analyses: dict[str, type[Analysis]], rules: dict[str, type[AnyRule]]
) -> type[Analysis | AnyRule] | str:
    """The analysis, rule or name of a topic that is called so: by name, code or title. UsageError if nothing is."""
    topics = _topics()
    known: dict[str, type[Analysis | AnyRule] | str] = {}
    for titles in (
        {rule.title: rule for rule in rules.values()},
        {analyse.title: analyse for analyse in analyses.values()},
        {title: name for name, title in topics.items()},
        rules,
        analyses,
        {name: name for name in topics},
    ):
        known |= {title.casefold(): each for title, each in titles.items()}
    named = known.get(" ".join(wanted.split()).casefold())
    if named is None:
        names = [*analyses, *rules, *topics]
        hint = did_you_mean(wanted, [*names, *known])
        raise UsageError(f"nothing is called {wanted!r}{hint} (there are: {', '.join(names)})")
    return named


def _topics() -> dict[str, str]:
    """What is neither analysis nor rule: names and titles."""
    from htareport.compare.topics import TITLES
    from htareport.rules.engine import findings

    return {findings.NAME: findings.TITLE} | TITLES


def _help_of(topic: str) -> str:
    from htareport.compare.topics import help_of
    from htareport.rules.engine import findings

    return findings.HELP if topic == findings.NAME else help_of(topic)


def _list(analyses: dict[str, type[Analysis]], rules: dict[str, type[AnyRule]]) -> Iterator[str]:
    topics = _topics()
    first, *others = topics
    groups: dict[str, list[tuple[str, str, str]]] = {}
    for name, analysis in analyses.items():
        groups.setdefault(str(analysis.group), []).append((name, analysis.title, analysis.help()))
    groups["Findings (below by rule; htareport explain CODE)"] = [(first, topics[first], _help_of(first))]
    for code, rule in rules.items():
        groups.setdefault(f"Findings: {rule.family}", []).append((code, rule.title, rule.help()))
    groups["Two runs (htareport diff), and gates (--fail-on)"] = [
        (other, topics[other], _help_of(other)) for other in others
    ]
    every = [row for rows in groups.values() for row in rows]
    width, title_width = (max(len(row[place]) for row in every) for place in (0, 1))
    for number, (group, rows) in enumerate(groups.items()):
        yield ("\n" if number else "") + console.heading(group)
        for name, title, text in rows:
            yield _fitted(f"  {name:{width}}  {title:{title_width}}  {_first_sentence(text) or title}")


def _fitted(line: str) -> str:
    fits = len(line) <= console.width() or not console.is_terminal()
    return line if fits else f"{line[: console.width() - 1]}…"


def _first_sentence(text: str) -> str:
    intro = unmarked(" ".join(text.partition("\n\n")[0].split()))
    return re.split(r"(?<=[.?!])\s", intro, maxsplit=1)[0]


def _topic(name: str) -> Iterator[str]:
    from htareport.compare.gates import grammar
    from htareport.compare.topics import GROUP, METRICS, TITLES

    title = f"{_topics()[name]} ({name})"
    yield console.heading(f"{title}, chapter {GROUP}" if name in TITLES else title)
    yield ""
    yield from _help(_help_of(name).strip())
    if name == "gates":
        yield console.heading("Grammar")
        yield from (f"  {line}" for line in grammar())
        yield ""
        yield console.heading("Metrics")
        for metric, meaning in METRICS.items():  # Those without are told with the one before.
            yield from _wrapped(f"{metric}: {meaning}", "  ") if meaning else ()


def _rule(each: type[AnyRule]) -> Iterator[str]:
    from htareport.analyses import analysis_classes

    yield console.heading(f"{each.title} ({each.code}), a finding about: {each.family}")
    yield ""
    help_ = each.help().strip()
    for name, default in each.options().items():
        help_ = help_.replace(f"`{name}`", f"`{name}` ({default})")
    yield from _help(help_)
    yield from _settings(each, "Thresholds (defaults)")
    yield from _needs(each)
    if each.section in analysis_classes():
        yield from _wrapped(f"Its numbers are in the section *{analysis_classes()[each.section].title}*.", "")
    yield from _wrapped(f'As a gate: --fail-on "finding: {each.code}".', "")


def _settings(each: type[Analysis | AnyRule], heading: str) -> Iterator[str]:
    if options := each.options():
        yield from (console.heading(heading), "")
        ranges = each.ranges()
        for name, default in options.items():
            known = f"   ({ranges[name]})" if name in ranges else ""
            yield f"  --set {each.settings_name()}.{name}={default}{known}"
        yield ""


def _needs(each: type[Analysis | AnyRule]) -> Iterator[str]:
    if each.requires:
        yield from (console.heading("What it needs, and what to do if that is missing"), "")
        for capability in sorted(each.requires):
            yield from _wrapped(f"{capability.name}: {capability}", "  ")
        yield ""


def _one(each: type[Analysis]) -> Iterator[str]:
    yield console.heading(f"{each.title} ({each.name}), chapter {each.group}")
    yield ""
    yield from _help(each.help().strip())
    yield from _settings(each, "Options (defaults)")
    yield from _needs(each)
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
