"""The Jinja environment of all templates. Everything is escaped; a name that a template misspells is an error."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from htareport.render.charts import ticks as fmt
from htareport.render.kernel_names import visible
from htareport.report import Unit

if TYPE_CHECKING:
    from jinja2 import Environment


_MAX_UNBROKEN_LABEL = 12
_SENTENCE = re.compile(r"(?<!\bvs)(?<!\bno)(?<!\be\.g)(?<!\bi\.e)\. +(?=\S)", re.IGNORECASE)
_CONTROL = re.compile("[\x01-\x08\x0b-\x1f\x7f]")


def templates_dir() -> Path:
    """Return the folder of templates: the installed package's, else the checkout's."""
    packaged = Path(str(files("htareport"))) / "templates"
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[2] / "templates"


def source(name: str) -> str:
    """Return a style sheet or script of the templates folder as text."""
    return (templates_dir() / name).read_text(encoding="utf-8")


@cache
def environment() -> Environment:
    """Return the environment with its filters.

    `autoescape=True`, not `select_autoescape()`: that looks at the last suffix and leaves `*.html.j2` unescaped.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415  not needed for `import`

    from htareport.render import prose  # noqa: PLC0415

    jinja = Environment(
        loader=FileSystemLoader(templates_dir()),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_shown,
    )
    jinja.filters["two_lines"] = _two_lines
    jinja.filters["headline"] = headline
    jinja.filters["whole"] = _exact
    jinja.filters["unit"] = _unit
    jinja.filters["count"] = _count
    jinja.filters["inline"] = prose.inline
    jinja.filters["css_string"] = _css_string
    return jinja


def _shown(value: Any) -> Any:
    """Return a value with its invisible characters, and those that turn the reading direction, spelled out."""
    return visible(value) if type(value) is str else value


def _two_lines(label: str) -> str:
    """Return a heading that breaks no more than once, near its middle, so that headings stay low."""
    if len(label) <= _MAX_UNBROKEN_LABEL:
        return label.replace(" ", "\u00a0")
    words = label.replace(" %", "\u00a0%").split(" ")
    lines = [("\u00a0".join(words[:index]), "\u00a0".join(words[index:])) for index in range(1, len(words))]
    return " ".join(filter(None, min(lines, key=lambda halves: max(map(len, halves)), default=words)))


def headline(text: str) -> tuple[str, str]:
    """Return a text's first sentence, and the text after it (may be empty)."""
    end = _SENTENCE.search(text)
    return (text[: end.start() + 1], text[end.end() :]) if end else (text, "")


def _exact(text: str) -> Markup:
    """Return a text unchanged, its control characters by number: `{{ name|whole }}` is exactly the name."""
    return Markup(_CONTROL.sub(lambda match: f"&#{ord(match[0])};", str(escape(text))))  # noqa: S704  it is escaped


def _unit(value: Any, unit: str) -> str:
    """Format a value: `{{ 1e6|unit("ns") }}`."""
    return fmt.text(value, Unit(unit))


def _css_string(text: str) -> Markup:
    """Return text for a CSS string: all but plain characters are escaped, so that none ends the string or style."""
    plain = (c if c.isascii() and (c.isalnum() or c in " .-_") else f"\\{ord(c):x} " for c in text)
    return Markup("".join(plain))  # noqa: S704  as said


def _count(value: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun: `{{ n|count("rank") }}`."""
    return f"{value:,} {singular if value == 1 else plural or singular + 's'}"
