"""The small part of Markdown that help texts use: headings of level two, paragraphs, lists, code, bold and emphasis."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from markupsafe import Markup

from htareport.render.kernel_names import visible

_MARKED = re.compile(
    r"(?P<fence>`+)(?P<code>.+?)(?P=fence)|\*\*(?P<strong>[^*\n]+)\*\*|(?<![\w*])\*(?P<em>[^*\s][^*\n]*)\*(?![\w*])",
    re.DOTALL,
)
_ITEM = re.compile(r"^\s*[-*] +")


@dataclass(frozen=True, slots=True)
class Help:
    """A help text: what it is about, and the rest (may be empty) as HTML."""

    lead: Markup
    more: Markup


def split_help(text: str) -> Help:
    """Return a help text as HTML: the first paragraph, and what follows it."""
    lead, _, more = text.strip().partition("\n\n")
    if lead.startswith("#"):
        lead, more = "", text.strip()
    return Help(inline(lead), to_html(more))


def plain(text: str) -> str:
    """Return a text's first paragraph without marks, on one line."""
    return " ".join(text.strip().partition("\n\n")[0].replace("`", "").replace("*", "").split())


def to_html(text: str, heading: str = "h4") -> Markup:
    """Return Markdown of the small kind as HTML; everything else in it is shown as it is."""
    return Markup("\n").join(_block(block, heading) for block in _blocks(text))


def _blocks(text: str) -> list[list[str]]:
    """Split into runs of lines: headings stand alone, an empty line ends a run, a list starts one."""
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


def _block(lines: list[str], heading: str) -> Markup:
    if lines[0].startswith("#"):
        return Markup("<{0}>{1}</{0}>").format(heading, inline(lines[0].lstrip("#").strip()))
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
    """Return one line of text as HTML: code, bold and emphasis, everything else as it is."""
    shown = (f"<{kind}>{escape(said)}</{kind}>" if kind else escape(said) for kind, said in pieces(visible(text)))
    return Markup("".join(shown))  # noqa: S704  every part is escaped


def unmarked(text: str) -> str:
    """Return a text without its marks: code and bold as they are, emphasised words (terms, titles) in quotes."""
    return "".join(f'"{said}"' if kind == "em" else said for kind, said in pieces(text))


def pieces(text: str) -> Iterator[tuple[str, str]]:
    """Cut a text at its marks: kind (code, strong, em, or empty for what is not marked) and words of each piece."""
    end = 0
    for match in _MARKED.finditer(text):
        yield "", text[end : match.start()]
        kind = next(kind for kind in ("code", "strong", "em") if match[kind])
        yield kind, match[kind].strip()
        end = match.end()
    yield "", text[end:]
