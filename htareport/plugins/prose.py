"""The prose of an analysis or rule: its docstring, which the report, `htareport explain` and findings all read.

A docstring has headings of level two. `{name|words}` stands for a value that a finding fills in; without one, and in
the help, the words stand there. A list of `- **case**: text` says something for each case, of which a finding takes
those that it found.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_SLOT = re.compile(r"\{(\w+)\|([^{}]*)\}")
_CASE = re.compile(r"^- \*\*([^*]+)\*\*: ")


def section(doc: str, heading: str) -> str:
    """Return what stands below a heading of level two, empty without."""
    _, _, after_heading = f"\n{doc}\n".partition(f"\n## {heading}\n")
    return after_heading.partition("\n## ")[0].strip()


def slots(text: str) -> list[str]:
    """Names of the values that a text can be given."""
    return [name for name, _ in _SLOT.findall(text)]


def fill(text: str, values: Mapping[str, str] | None = None) -> str:
    """Return a text with these values in it; where there is none, the words that stand for it."""
    slot_values = values or {}
    return _SLOT.sub(lambda slot: slot_values.get(slot[1], slot[2]), text)


def cases_of(text: str) -> dict[str, str]:
    """The cases that a text lists, each with what it says of it on one line."""
    return {name: words for name, words in _paragraphs(text) if name}


def words_for(text: str, values: Mapping[str, str] | None = None, cases: Sequence[str] = ()) -> str:
    """Return a text on one line, filled in; of what it lists by case only these. KeyError for a case that it lacks."""
    by_case = cases_of(text)
    common = [words for name, words in _paragraphs(text) if not name]
    chosen_words = [by_case[case] for case in cases] if by_case else []
    return " ".join(fill(words, values) for words in (*common, *chosen_words) if words)


def _paragraphs(text: str) -> list[tuple[str, str]]:
    """Paragraphs (without a name) and cases (with theirs), each on one line."""
    paragraphs = list[tuple[str, list[str]]]()
    for line in text.splitlines():
        if case := _CASE.match(line):
            paragraphs.append((case[1], [line[case.end() :]]))
        elif not line.strip() or not paragraphs:
            paragraphs.append(("", [line]))
        else:
            paragraphs[-1][1].append(line)
    return [(name, " ".join(" ".join(lines).split())) for name, lines in paragraphs]
