"""Every table as CSV in one zip file: raw numbers, units in the headings."""

from __future__ import annotations

import csv
import io
import zipfile
from typing import Any

from htareport.render.charts import ticks as fmt
from htareport.report import Report, Table
from htareport.report.json_codec import column_values

_EPOCH = (1980, 1, 1, 0, 0, 0)  # No clock: equal reports give equal files.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
_BOM = "\ufeff"  # Without it spreadsheets take UTF-8 for something else.


def csv_zip(report: Report) -> bytes:
    """Return a zip file with `SECTION.TABLE.csv` for every table."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for section in report.sections:
            for table in section.tables:
                entry = zipfile.ZipInfo(f"{section.name}.{table.spec.name}.csv", _EPOCH)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, (_BOM + csv_text(table)).encode("utf-8", "replace"))
    return buffer.getvalue()


def csv_text(table: Table) -> str:
    """Return a table as RFC 4180 text. What a spreadsheet would run as a formula gets a quotation mark in front."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\r\n")
    columns = table.spec.columns
    writer.writerow([neutral(fmt.csv_label(column.label, column.unit)) for column in columns])
    cells = [[neutral(value) for value in column_values(table.frame[column.name])] for column in columns]
    writer.writerows(zip(*cells, strict=True))
    return buffer.getvalue()


def neutral(value: Any) -> Any:
    """Return a cell that no spreadsheet takes for a formula: numbers and harmless texts as they are."""
    if fmt.is_missing(value):
        return ""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA_STARTS) else value
    return value if fmt.number(value) is not None else neutral(str(value))
