"""Shows charts as Plotly figures, or writes them as HTML, SVG or PNG; only PNG needs another package."""

from __future__ import annotations

from pathlib import Path

from htareport.errors import MissingLibraryError, UsageError
from htareport.files.output import write_bytes
from htareport.report import Chart

_ZOOM = 2


def show(chart: Chart, *, visible: bool = True, path: str | Path | None = None, renderer: str = "") -> None:
    """Show a chart, write it to `path` (.html, .svg, .png), or both. UsageError for another suffix."""
    if path:
        write_bytes(path, picture(chart, Path(path).suffix.lower()))
    if visible:
        from htareport.render.charts.plotly import figure  # noqa: PLC0415  only who asks for pictures loads Plotly

        figure(chart).show(renderer=renderer or None)


def picture(chart: Chart, suffix: str) -> bytes:
    """Return a chart as a file of a kind. MissingLibraryError for .png without the package resvg-py."""
    from htareport.render.charts.plotly import figure  # noqa: PLC0415  ditto
    from htareport.render.charts.svg import svg  # noqa: PLC0415  ditto

    if suffix == ".html":
        return str(figure(chart).to_html(include_plotlyjs=True)).encode()
    if suffix == ".svg":
        return svg(chart).encode()
    if suffix != ".png":
        raise UsageError(f"a picture ends with .html, .svg or .png, not {suffix!r}")
    try:
        import resvg_py  # noqa: PLC0415  optional
    except ImportError as error:
        raise MissingLibraryError("a .png needs the package resvg-py: pip install 'htareport[png]'") from error
    return bytes(resvg_py.svg_to_bytes(svg(chart), zoom=_ZOOM, background="#ffffff"))
