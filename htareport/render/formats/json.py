"""The report as JSON, from which it can be made again without its traces."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

from htareport.files.output import OutputFormat, OutputOptions

if TYPE_CHECKING:
    from htareport.report import Report


class Json(OutputFormat):
    """Everything, to render or compare again without the traces."""

    suffix, order = ".json", 3

    def encode(self, report: Report, options: OutputOptions) -> bytes:
        """Return the report in this format."""
        del options
        return report.to_json()


class GzippedJson(OutputFormat):
    """The same, compressed."""

    suffix, order = ".json.gz", 4

    def encode(self, report: Report, options: OutputOptions) -> bytes:
        """Return the report in this format."""
        del options
        return gzip.compress(report.to_json(), 6, mtime=0)
