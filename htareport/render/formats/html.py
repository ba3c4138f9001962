"""The report as a page: see htareport.render.html."""

from __future__ import annotations

from typing import TYPE_CHECKING

from htareport.files.output import OutputFormat, OutputOptions

if TYPE_CHECKING:
    from htareport.report import Report


class Html(OutputFormat):
    """The whole report as one page that opens from disk."""

    suffix, order = ".html", 0

    def encode(self, report: Report, options: OutputOptions) -> bytes:
        """Return the report in this format."""
        from htareport.render.html.page import html  # noqa: PLC0415  so that --help is instant

        return html(report, plotlyjs=options.plotlyjs).encode()
