"""The summary as a PDF: see htareport.render.pdf."""

from __future__ import annotations

from typing import TYPE_CHECKING

from htareport.files.output import OutputFormat, OutputOptions

if TYPE_CHECKING:
    from htareport.report import Report


class Pdf(OutputFormat):
    """A summary of up to 4 pages."""

    suffix, order = ".pdf", 1

    def encode(self, report: Report, options: OutputOptions) -> bytes:
        """Return the report in this format."""
        from htareport.render.pdf import pdf  # noqa: PLC0415  so that --help is instant

        return pdf(report, paper=options.paper, full_report=options.full_report)
