"""`htareport explain`: lists analyses and rules, or prints one with its definitions, in the words of the report."""

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
    """Print the list, one analysis or rule, or one topic: findings, the Compare chapter or gates."""
    from htareport.analyses import analysis_classes
    from htareport.rules import rule_classes
    from htareport.rules.engine.base import Rule

    analyses, rules = analysis_classes(), rule_classes()
    if arguments.name is None:
        lines = _list(analyses, rules)
    else:
        entry = _named(arguments.name, analyses, rules)
        lines = (
            _topic(entry) if isinstance(entry, str) else _rule(entry) if issubclass(entry, Rule) else _analysis(entry)
        )
    console.write("".join(f"{line}\n" for line in lines))  # Not `out`, which would print the escapes of bold headings.
    return 0


def _named(
    name: str, analyses: dict[str, type[Analysis]], rules: dict[str, type[AnyRule]]
) -> type[Analysis | AnyRule] | str:
    """The analysis, rule or topic with a name, code or title. UsageError if there is none."""
    topics = _topics()
    entries: dict[str, type[Analysis | AnyRule] | str] = {}
    for titles in (
        {rule.title: rule for rule in rules.values()},
        {analyse.title: analyse for analyse in analyses.values()},
        {title: topic for topic, title in topics.items()},
        rules,
        analyses,
        {topic: topic for topic in topics},
    ):
        entries |= {title.casefold(): entry for title, entry in titles.items()}
    entry = entries.get(" ".join(name.split()).casefold())
    if entry is None:
        names = [*analyses, *rules, *topics]
        hint = did_you_mean(name, [*names, *entries])
        raise UsageError(f"nothing is called {name!r}{hint} (there are: {', '.join(names)})")
    return entry


def _topics() -> dict[str, str]:
    """Titles of topics that are neither analyses nor rules, by name."""
    from htareport.compare.topics import TITLES
    from htareport.rules.engine import findings

    return {findings.NAME: findings.TITLE} | TITLES


def _help_of(topic: str) -> str:
    from htareport.compare.topics import help_of
    from htareport.rules.engine import findings

    return findings.HELP if topic == findings.NAME else help_of(topic)


def _list(analyses: dict[str, type[Analysis]], rules: dict[str, type[AnyRule]]) -> Iterator[str]:
    topic_rows = [(name, title, _help_of(name)) for name, title in _topics().items()]
    groups: dict[str, list[tuple[str, str, str]]] = {}
    for name, analysis in analyses.items():
        groups.setdefault(str(analysis.group), []).append((name, analysis.title, analysis.help()))
    groups["Findings (below by rule; htareport explain CODE)"] = topic_rows[:1]
    for code, rule in rules.items():
        groups.setdefault(f"Findings: {rule.family}", []).append((code, rule.title, rule.help()))
    groups["Two runs (htareport diff), and gates (--fail-on)"] = topic_rows[1:]
    all_rows = [row for rows in groups.values() for row in rows]
    width, title_width = (max(len(row[column]) for row in all_rows) for column in (0, 1))
    for number, (group, rows) in enumerate(groups.items()):
        yield ("\n" if number else "") + console.heading(group)
        for name, title, help_text in rows:
            yield _fitted(f"  {name:{width}}  {title:{title_width}}  {_first_sentence(help_text) or title}")


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
        for metric, meaning in METRICS.items():  # Metrics without are explained with the one before.
            yield from _wrapped(f"{metric}: {meaning}", "  ") if meaning else ()


def _rule(rule: type[AnyRule]) -> Iterator[str]:
    from htareport.analyses import analysis_classes

    yield console.heading(f"{rule.title} ({rule.code}), a finding about: {rule.family}")
    yield ""
    definition = rule.help().strip()
    for name, default in rule.options().items():
        definition = definition.replace(f"`{name}`", f"`{name}` ({default})")
    yield from _help(definition)
    yield from _settings(rule, "Thresholds (defaults)")
    yield from _needs(rule)
    if rule.section in analysis_classes():
        yield from _wrapped(f"Its numbers are in the section *{analysis_classes()[rule.section].title}*.", "")
    yield from _wrapped(f'As a gate: --fail-on "finding: {rule.code}".', "")


def _settings(kind: type[Analysis | AnyRule], heading: str) -> Iterator[str]:
    if options := kind.options():
        yield from (console.heading(heading), "")
        ranges = kind.ranges()
        for name, default in options.items():
            allowed = f"   ({ranges[name]})" if name in ranges else ""
            yield f"  --set {kind.settings_name()}.{name}={default}{allowed}"
        yield ""


def _needs(kind: type[Analysis | AnyRule]) -> Iterator[str]:
    if kind.requires:
        yield from (console.heading("What it needs, and what to do if that is missing"), "")
        for capability in sorted(kind.requires):
            yield from _wrapped(f"{capability.name}: {capability}", "  ")
        yield ""


def _analysis(analysis: type[Analysis]) -> Iterator[str]:
    yield console.heading(f"{analysis.title} ({analysis.name}), chapter {analysis.group}")
    yield ""
    yield from _help(analysis.help().strip())
    yield from _settings(analysis, "Options (defaults)")
    yield from _needs(analysis)
    yield console.heading("Tables")
    for spec in analysis.tables:
        yield from _table(spec)


def _help(text: str) -> Iterator[str]:
    """Wrap paragraphs and the items of lists; headings lose their marks, indented blocks stay as they are."""
    for block in re.split(r"\n\s*\n", text):
        heading, _, content = block.partition("\n") if block.startswith("#") else ("", "", block)
        if heading:
            yield console.heading(heading.lstrip("# "))
        if re.match(r"[|\s]", content) and not _ITEM.match(content):
            yield from content.splitlines()
        else:
            for mark, words in _items(content):
                yield from _wrapped(words, mark, " " * len(mark))
        yield ""


def _items(block: str) -> list[tuple[str, str]]:
    """Mark and text of each item of a list; a paragraph is an item without a mark."""
    items = list[tuple[str, str]]()
    for line in block.splitlines():
        match = _ITEM.match(line)
        if match or not items:
            mark = match[0] if match else ""
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


def _wrapped(text: str, indent: str, next_indent: str | None = None) -> list[str]:
    """Lines no longer than the terminal is wide: the first after `indent`, others after `next_indent` or the same."""
    return textwrap.wrap(
        unmarked(text),
        console.width(),
        initial_indent=indent,
        subsequent_indent=indent if next_indent is None else next_indent,
        break_on_hyphens=False,  # So that names can be copied.
        break_long_words=False,
    )
