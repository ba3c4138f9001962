"""The summary as a mail: see htareport.render.mail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from htareport.files.output import OutputFormat, OutputOptions

if TYPE_CHECKING:
    from htareport.report import Report


class Mail(OutputFormat):
    """A mail with the PDF attached."""

    suffix, order = ".eml", 5

    def encode(self, report: Report, options: OutputOptions) -> bytes:
        """Return the report in this format."""
        from htareport.render.mail import eml  # noqa: PLC0415  so that --help is instant

        del options
        return eml(report)
