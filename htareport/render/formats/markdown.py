"""The summary as Markdown: see htareport.render.markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from htareport.files.output import OutputFormat, OutputOptions

if TYPE_CHECKING:
    from htareport.report import Report


class Markdown(OutputFormat):
    """A summary as Markdown."""

    suffix, order = ".md", 2

    def encode(self, report: Report, options: OutputOptions) -> bytes:
        """Return the report in this format."""
        from htareport.render.markdown import markdown  # noqa: PLC0415  so that --help is instant

        del options
        return markdown(report).encode("utf-8", "replace")
