"""The gates as JUnit XML: see htareport.render.junit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from htareport.files.output import OutputFormat, OutputOptions

if TYPE_CHECKING:
    from htareport.report import Report


class JUnit(OutputFormat):
    """The gates as JUnit tests."""

    suffix, order = ".xml", 6

    def encode(self, report: Report, options: OutputOptions) -> bytes:
        """Return the report in this format."""
        from htareport.render.junit import junit  # noqa: PLC0415  so that --help is instant

        del options
        return junit(report).encode("utf-8", "replace")
