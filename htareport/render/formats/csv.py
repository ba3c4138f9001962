"""Every table as CSV: see htareport.render.csv."""

from __future__ import annotations

from typing import TYPE_CHECKING

from htareport.files.output import OutputFormat, OutputOptions

if TYPE_CHECKING:
    from htareport.report import Report


class Csv(OutputFormat):
    """Every table as CSV."""

    suffix, order = ".csv.zip", 7

    def encode(self, report: Report, options: OutputOptions) -> bytes:
        """Return the report in this format."""
        from htareport.render.csv import csv_zip  # noqa: PLC0415  so that --help is instant

        del options
        return csv_zip(report)
