"""The report as a value that knows the meaning of its columns; everything after it is generic."""

from htareport.report.charts import Chart, Mark, chart_of, stacked_rows
from htareport.report.findings import Finding, Severity, Span
from htareport.report.model import SCHEMA_VERSION, Fact, Report, Section, Status
from htareport.report.tables import Better, Column, Table, TableSpec, Unit, key

__all__ = [
    "SCHEMA_VERSION", "Better", "Chart", "Column", "Fact", "Finding", "Mark", "Report", "Section", "Severity", "Span",
    "Status", "Table", "TableSpec", "Unit", "chart_of", "key", "stacked_rows",
]  # fmt: skip
