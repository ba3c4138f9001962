"""Help texts as HTML or plain text. Their Markdown has level-two headings, paragraphs, lists, code, bold, emphasis."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from markupsafe import Markup

from htareport.render.kernel_names import visible

_MARKS = re.compile(
    r"(?P<fence>`+)(?P<code>.+?)(?P=fence)|\*\*(?P<strong>[^*\n]+)\*\*|(?<![\w*])\*(?P<em>[^*\s][^*\n]*)\*(?![\w*])",
    re.DOTALL,
)
_ITEM = re.compile(r"^\s*[-*] +")


@dataclass(frozen=True, slots=True)
class Help:
    """A help text as HTML: its first paragraph, and the text after it (may be empty)."""

    lead: Markup
    more: Markup


def split_help(text: str) -> Help:
    """Return a help text as HTML, split after its first paragraph."""
    lead, _, more = text.strip().partition("\n\n")
    if lead.startswith("#"):
        lead, more = "", text.strip()
    return Help(inline(lead), _to_html(more))


def _to_html(text: str) -> Markup:
    """Return a help text's Markdown as HTML; all other markup is escaped."""
    return Markup("\n").join(map(_block, _blocks(text)))


def _blocks(text: str) -> list[list[str]]:
    """Return the blocks of a text as lists of lines: a heading, a paragraph, or a list."""
    blocks: list[list[str]] = [[]]
    for line in text.splitlines():
        starts_list = bool(_ITEM.match(line)) and not (blocks[-1] and _ITEM.match(blocks[-1][0]))
        if not line.strip() or line.startswith("#") or starts_list:
            blocks.append([])
        if line.strip():
            blocks[-1].append(line)
        if line.startswith("#"):
            blocks.append([])
    return [block for block in blocks if block]


def _block(lines: list[str]) -> Markup:
    if lines[0].startswith("#"):
        return Markup("<h4>{}</h4>").format(inline(lines[0].lstrip("#").strip()))
    if not _ITEM.match(lines[0]):
        return Markup("<p>{}</p>").format(inline(" ".join(line.strip() for line in lines)))
    items = list[str]()
    for line in lines:
        if _ITEM.match(line):
            items.append(_ITEM.sub("", line))
        else:
            items[-1] += f" {line.strip()}"
    return Markup("<ul>{}</ul>").format(Markup("").join(Markup("<li>{}</li>").format(inline(item)) for item in items))


def inline(text: str) -> Markup:
    """Return one line of text as HTML with code, bold and emphasis; all other markup is escaped."""
    spans = (
        f"<{kind}>{escape(words)}</{kind}>" if kind else escape(words) for kind, words in marked_spans(visible(text))
    )
    return Markup("".join(spans))  # noqa: S704  every part is escaped


def unmarked(text: str) -> str:
    """Return a text without marks; emphasised words (terms, titles) get quotation marks."""
    return "".join(f'"{words}"' if kind == "em" else words for kind, words in marked_spans(text))


def marked_spans(text: str) -> Iterator[tuple[str, str]]:
    """Yield the spans of a text with their kind: code, strong, em, or empty for unmarked text."""
    end = 0
    for match in _MARKS.finditer(text):
        yield "", text[end : match.start()]
        kind = next(kind for kind in ("code", "strong", "em") if match[kind])
        yield kind, match[kind].strip()
        end = match.end()
    yield "", text[end:]
