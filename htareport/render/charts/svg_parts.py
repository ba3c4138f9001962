"""Building blocks of SVG charts: text that fits, shapes, and the canvas that turns values into pixels.

Only presentation attributes with literal colours are used, since PDF and mail renderers know neither custom properties
nor gradients. Classes let the page's style sheet recolour what it shows on dark pages.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from operator import itemgetter

from htareport.render.charts.palette import Color
from htareport.render.charts.picture import Axis, Picture
from htareport.render.kernel_names import MAX_HOVER, cut, visible

FONT_SIZE = 12
FONTS = "Arial, Helvetica, Liberation Sans, DejaVu Sans, sans-serif"
INK, MUTED, GRID, EMPTY = "#1d2329", "#56606a", "#dfe3e8", "#eceff2"
# Advance widths of Helvetica (and Arial) for the characters from space to tilde, in thousandths of the font size.
_WIDTHS = (
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556,
    556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667, 611, 778, 722, 278,
    500, 667, 556, 833, 722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469,
    556, 333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556, 556, 556, 333, 500,
    278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584,
)  # fmt: skip
_WIDTH_BY_CHARACTER = {chr(32 + i): width * 1.05e-3 for i, width in enumerate(_WIDTHS)} | {
    "\u202f": 0.2,
    "µ": 0.6,
    "…": 1.0,
}
_DEFAULT_WIDTH = 1.0
_FORBIDDEN = re.compile("[\ufffe\uffff]")  # XML 1.0 has no place for these either, not even escaped.
_LABEL_STRIDES = (1, 2, 4, 5, 8, 10, 16, 20, 25, 32, 50, 64, 100, 128, 200, 250, 256, 500, 512, 1000, 2000, 5000, 10000)
MAX_LABELS = 12
_MAX_TEXT = 400  # No picture is so wide.


def clean(text: str) -> str:
    """Return text that XML can hold, with invisible characters spelled out."""
    return _FORBIDDEN.sub("\ufffd", visible(text))


def num(value: float) -> str:
    """Return a coordinate as short as it can be."""
    digits = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if digits == "-0" else digits


def text_width(text: str, size: float = FONT_SIZE) -> float:
    """Estimate a text's width in pixels for Arial-like fonts, rather too wide than too narrow."""
    return sum(_WIDTH_BY_CHARACTER.get(character, _DEFAULT_WIDTH) for character in text) * size


def fitted(text: str, width: float, size: float = FONT_SIZE) -> str:
    """Return text that XML can hold, cut in the middle so that it is no wider than `width` pixels."""
    text = clean(cut(text, _MAX_TEXT))
    if text_width(text, size) <= width + 0.1:
        return text
    min_length, max_length = 1, len(text)
    while min_length < max_length:
        length = (min_length + max_length + 1) // 2
        if text_width(_cut(text, length), size) <= width:
            min_length = length
        else:
            max_length = length - 1
    return _cut(text, min_length)


def _cut(text: str, length: int) -> str:
    head_length = (length * 2) // 3
    return f"{text[:head_length]}…{text[len(text) - (length - head_length) :]}"


def fill(color: Color) -> str:
    """Return the attributes of a filled shape."""
    return f'fill="{color.light}" class="c{color.index}"'


def stroke(color: Color, width: float) -> str:
    """Return the attributes of a line."""
    return f'fill="none" stroke="{color.line}" class="s{color.index}" stroke-width="{num(width)}"'


def thinned_labels(
    ticks: Sequence[tuple[float, str]], tick_width: float, max_labels: int, *, across: bool
) -> list[tuple[float, str]]:
    """Return every k-th label, so that none touch and no more than `max_labels` stay; ticks are `tick_width` apart."""
    for stride in _LABEL_STRIDES:
        labels = list(ticks[::stride])
        label_width = max((text_width(label) + 8 for _, label in labels), default=0.0) if across else FONT_SIZE + 2.0
        if len(labels) <= max_labels and (label_width <= tick_width * stride or len(labels) == 1):
            return labels
    return list(ticks[:1])


@dataclass(slots=True)
class Canvas:
    """A picture's pixels: margins, the two axes, and the elements drawn so far."""

    picture: Picture
    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    elements: list[tuple[str, str]] = field(default_factory=list)  # Each with attributes that neighbours may share.

    @property
    def plot_width(self) -> float:
        """Pixels between left and right margin."""
        return self.width - self.left - self.right

    @property
    def plot_height(self) -> float:
        """Pixels between top and bottom margin."""
        return self.height - self.top - self.bottom

    def across(self, axis: Axis, value: float) -> float:
        """Return the pixel from the left of a value on a horizontal axis."""
        return self.left + _position_share(axis, value) * self.plot_width

    def down(self, axis: Axis, value: float) -> float:
        """Return the pixel from the top of a value on a vertical axis: numbers grow upwards, categories downwards."""
        share = _position_share(axis, value)
        return self.top + (share if axis.labels else 1 - share) * self.plot_height

    def point(self, base: float, value: float) -> tuple[float, float]:
        """Return the pixels of a point."""
        picture = self.picture
        if picture.is_horizontal:
            return self.across(picture.value, value), self.down(picture.base, base)
        return self.across(picture.base, base), self.down(picture.value, value)

    def box(self, base: tuple[float, float], value: tuple[float, float]) -> tuple[float, float, float, float]:
        """Return x, y, width and height in pixels of the rectangle that spans two ranges."""
        x0, y0 = self.point(base[0], value[0])
        x1, y1 = self.point(base[1], value[1])
        return min(x0, x1), min(y0, y1), abs(x1 - x0), abs(y1 - y0)

    @property
    def slot(self) -> float:
        """Pixels that one category has along the base axis."""
        length = self.plot_height if self.picture.is_horizontal else self.plot_width
        return length / max(len(self.picture.base.labels), 1)

    def rect(self, box: tuple[float, float, float, float], attributes: str, tooltip: str = "") -> None:
        """Draw a rectangle."""
        x, y, width, height = box
        head = f'<rect x="{num(x)}" y="{num(y)}" width="{num(max(width, 0.3))}" height="{num(max(height, 0.3))}"'
        shown = escape(clean(cut(tooltip, MAX_HOVER)), quote=False)
        self.elements.append((attributes, f"{head}><title>{shown}</title></rect>" if tooltip else f"{head}/>"))

    def path(self, d: str, attributes: str) -> None:
        """Draw a path, nothing where it is empty."""
        if d:
            self.elements.append(("", f'<path d="{d}" {attributes}/>'))

    def text(  # noqa: PLR0913  what a text is made of
        self, x: float, y: float, text: str, anchor: str = "start", *, muted: bool = True, extra: str = ""
    ) -> None:
        """Write text at its baseline."""
        color, css_class = (MUTED, "mut") if muted else (INK, "ink")
        anchor_attribute = "" if anchor == "start" else f' text-anchor="{anchor}"'
        attributes = f'fill="{color}" class="{css_class}"{anchor_attribute}'
        shown = escape(clean(text), quote=False)
        self.elements.append((attributes, f'<text x="{num(x)}" y="{num(y)}"{extra}>{shown}</text>'))

    def markup(self) -> str:
        """Return what was drawn; neighbours that share their attributes have them once, on a group."""
        groups = list[str]()
        for attributes, pairs in groupby(self.elements, itemgetter(0)):
            content = "".join(element for _, element in pairs)
            groups.append(f"<g {attributes}>{content}</g>" if attributes else content)
        return "".join(groups)


def _position_share(axis: Axis, value: float) -> float:
    """Return where a value stands between the axis's ends, 0 to 1; outside of them it is less or more."""
    if axis.is_log:
        low, high = math.log(axis.low), math.log(axis.high)
        return (math.log(max(value, axis.low / 10)) - low) / ((high - low) or 1)
    return (value - axis.low) / ((axis.high - axis.low) or 1)


def box_path(boxes: Iterable[tuple[float, float, float, float]]) -> str:
    """Return many rectangles as one path, which keeps files small."""
    return "".join(
        f"M{num(x)} {num(y)}h{num(width)}v{num(height)}h-{num(width)}z"
        for x, y, width, height in boxes
        if width > 0.004 and height > 0.004  # noqa: PLR2004
    )
