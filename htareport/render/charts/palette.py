"""Colours of charts by role: a series has the same colour in every chart, on light and on dark pages.

The first four can be told apart with the common colour-vision deficiencies and in grey; the others follow Okabe and Ito
and Tol. Pictures carry the light colour and a class; the page's style sheet turns it dark.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Color:
    """One colour: its fill on light and dark pages, and the colour of lines where the fill is too faint for these."""

    index: int
    light: str
    dark: str
    light_line: str = ""
    dark_line: str = ""

    @property
    def line(self) -> str:
        """Colour of lines and points on light pages."""
        return self.light_line or self.light


_PAIRS: tuple[tuple[str, str], ...] = (
    ("#1F6FB2", "#4A9BE0"),  # 0 compute
    ("#E69F00", "#F0B429"),  # 1 exposed communication
    ("#882255", "#D47FA6"),  # 2 exposed memory
    ("#D0D5DA", "#4A545E"),  # 3 idle
    ("#009E73", "#3CC298"),  # 4 hidden
    ("#D55E00", "#FF7A45"),  # 5 worst
    ("#CC6677", "#E58E9C"),  # 6 host wait
    ("#44AA99", "#6BD0BF"),  # 7 kernel wait
    ("#8A939C", "#8E99A4"),  # 8 the rest
    ("#56B4E9", "#8CCDF2"),  # 9
    ("#7A6BC4", "#A79BE6"),  # 10
    ("#999933", "#C7C75A"),  # 11
    ("#5B3A29", "#C39B86"),  # 12
)
_IDLE = 3
COLORS = tuple(
    Color(i, light, dark, *(("#808890", "#8D97A1") if i == _IDLE else ())) for i, (light, dark) in enumerate(_PAIRS)
)
WORST = COLORS[5]

_INDEX_BY_ROLE = {
    "compute": 0, "computation": 0, "median": 0, "busy": 0, "base": 8, "baseline": 8, "new": 0,
    "exposed communication": 1, "communication": 1, "exposed": 1, "exposed comm": 1,
    "exposed memory": 2, "memory": 2, "memcpy": 2,
    "idle": 3, "hidden": 4, "overlapped": 4, "slowest rank": 5, "slowest": 5, "worst": 5,
    "holds up the others": 5, "waits for the last": 8, "moving bytes": 1, "waiting for the last rank": 8,
    "host wait": 6, "kernel wait": 7, "other": 8, "others": 8, "rest": 8,
    "host operators": 6, "python": 10, "data loading": 9, "launch overhead": 11, "copies and fills": 2,
    "kernel gaps": 7, "earlier device work": 8,
    "longer": 5, "shorter": 4, "in all": 8, "slower calls": 5, "faster calls": 4, "more calls": 1, "fewer calls": 7,
    "swapped, slower": 2, "swapped, faster": 10, "gone": 8,
}  # fmt: skip
_CYCLE = (0, 1, 4, 2, 9, 5, 10, 6, 7, 11, 12, 8)


def assign(series_names: Iterable[str]) -> dict[str, Color]:
    """Return a colour for each series: its role's, or the next free one of the chart; beyond twelve they repeat."""
    series_names = list(dict.fromkeys(series_names))
    roles = {name: name.strip().lower() for name in series_names}
    color_by_name = {name: COLORS[_INDEX_BY_ROLE[role]] for name, role in roles.items() if role in _INDEX_BY_ROLE}
    used_indices = {color.index for color in color_by_name.values()}
    free_colors = [COLORS[i] for i in _CYCLE if i not in used_indices] or [COLORS[i] for i in _CYCLE]
    other_names = [name for name in series_names if name not in color_by_name]
    color_by_name |= {name: free_colors[i % len(free_colors)] for i, name in enumerate(other_names)}
    return {name: color_by_name[name] for name in series_names}


def dark_by_light() -> dict[str, str]:
    """Return the dark page's colour for each light one, for charts that are drawn in the browser."""
    dark_colors = {color.light: color.dark for color in COLORS}
    return dark_colors | {color.light_line: color.dark_line for color in COLORS if color.light_line}


def css() -> str:
    """Return the style rules that give pictures the colours of the page's theme (on screens; print stays light)."""
    light = "".join(f"--c{c.index}:{c.light};--s{c.index}:{c.line};" for c in COLORS)
    dark = "".join(f"--c{c.index}:{c.dark};--s{c.index}:{c.dark_line or c.dark};" for c in COLORS)
    rules = "".join(f".c{c.index}{{fill:var(--c{c.index})}}.s{c.index}{{stroke:var(--s{c.index})}}" for c in COLORS)
    return (
        f":root{{{light}}}\n"
        f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}\n"
        f":root[data-theme=dark]{{{dark}}}\n"
        f"@media screen{{{rules}}}\n"
    )


_VIRIDIS = (
    (68, 1, 84), (72, 40, 120), (62, 74, 137), (49, 104, 142), (38, 130, 142),
    (31, 158, 137), (53, 183, 121), (109, 205, 89), (180, 222, 44), (253, 231, 37),
)  # fmt: skip


def viridis(share: float) -> str:
    """Return Viridis at `share` from 0 to 1 as #rrggbb."""
    position = max(0.0, min(1.0, share)) * (len(_VIRIDIS) - 1)
    low = min(len(_VIRIDIS) - 2, int(position))
    fraction = position - low
    channels = (round(a + (b - a) * fraction) for a, b in zip(_VIRIDIS[low], _VIRIDIS[low + 1], strict=True))
    return "#" + "".join(f"{channel:02x}" for channel in channels)
