"""The one Jinja environment. Everything is escaped; a name that a template misspells is an error."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from htareport.render import format as fmt
from htareport.report import Unit

if TYPE_CHECKING:
    from jinja2 import Environment


def templates_dir() -> Path:
    """Return the folder of templates: the installed package's, else the checkout's."""
    packaged = Path(str(files("htareport"))) / "templates"
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[2] / "templates"


def source(name: str) -> str:
    """Return one file of the templates folder as text: style sheets and scripts, which are not templates."""
    return (templates_dir() / name).read_text(encoding="utf-8")


@cache
def environment() -> Environment:
    """Return the environment with its filters.

    `autoescape=True`, not `select_autoescape()`: that looks at the last suffix and leaves `*.html.j2` unescaped.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415  not needed for `import`

    from htareport.render import prose  # noqa: PLC0415

    made = Environment(
        loader=FileSystemLoader(templates_dir()),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["unit"] = _unit
    made.filters["count"] = _count
    made.filters["inline"] = prose.inline
    return made


def _unit(value: Any, unit: str) -> str:
    """Format a value: `{{ 1e6|unit("ns") }}`."""
    return fmt.text(value, Unit(unit))


def _count(value: int, singular: str, plural: str = "") -> str:
    """Say how many: `{{ n|count("rank") }}`."""
    return f"{value:,} {singular if value == 1 else plural or singular + 's'}"
