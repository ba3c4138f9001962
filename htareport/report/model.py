"""The report as a value: sections with facts, findings, charts and tables, written as JSON and read back.

Architecture invariant: this package knows nothing of traces, analyses or output formats, and a Report survives a round
trip through JSON unchanged. Later versions read that JSON as well; `schema_version` is its version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

import orjson
import pandas as pd

from htareport.errors import ReportFileError
from htareport.files.output import OutputOptions, notebook_cell, write
from htareport.report.charts import Chart
from htareport.report.findings import Finding
from htareport.report.json_codec import DecodeError, decode, encode
from htareport.report.saved import check_charts, check_meta, check_required, read_bytes
from htareport.report.tables import Better, Table, Unit

SCHEMA_VERSION = 1


class Status(StrEnum):
    """How an analysis ended."""

    OK = "ok"
    NOT_APPLICABLE = "not_applicable"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Fact:
    """One key number of the overview; `help` is its definition, `detail` adds what the number alone does not say."""

    name: str
    label: str
    value: float | None
    unit: Unit
    detail: str = ""
    help: str = ""
    better: Better | None = None
    order: int = 50  # Place in the overview, low first.

    def __post_init__(self) -> None:
        if self.value is not None:  # Often a numpy scalar, which JSON does not know.
            object.__setattr__(self, "value", None if self.value != self.value else float(self.value))


@dataclass(frozen=True, slots=True)
class Section:
    """The result of one analysis. `help` has Markdown headings of level two; `notes` explain this run's numbers."""

    name: str
    title: str
    group: str
    help: str = ""
    status: Status = Status.OK
    reason: str = ""
    notes: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    findings: tuple[Finding, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()

    def table(self, name: str | None = None) -> pd.DataFrame:
        """Return the frame of one table, of the first by default. KeyError names the tables there are."""
        for table in self.tables:
            if name in (None, table.spec.name):
                return table.frame
        raise KeyError(f"no table {name or ''!r} in section {self.name}: {[t.spec.name for t in self.tables]}")

    def fact(self, name: str) -> Fact | None:
        """Return one key number, or None where this run does not give it."""
        return next((fact for fact in self.facts if fact.name == name), None)

    def _repr_html_(self) -> str:
        return notebook_cell(self)


@dataclass(frozen=True, slots=True)
class Report:
    """All sections of one run. `report["comm_overlap"].table()` is a DataFrame with times in integer ns."""

    title: str
    verdict: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    warnings: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()

    def __getitem__(self, name: str) -> Section:
        for section in self.sections:
            if section.name == name:
                return section
        raise KeyError(f"no section {name!r}; there are {[section.name for section in self.sections]}")

    def __contains__(self, name: object) -> bool:
        return any(section.name == name for section in self.sections)

    def to_json(self) -> bytes:
        """Return the whole report as strict JSON on one line: equal reports give equal bytes."""
        return orjson.dumps({"schema_version": SCHEMA_VERSION, **encode(self)}, option=orjson.OPT_APPEND_NEWLINE)

    @classmethod
    def from_json(cls, data: bytes | str, source: str = "report.json") -> Self:
        """Read what `to_json` wrote. ReportFileError (naming `source`) if it is something else."""
        try:
            raw = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise ReportFileError(f"{source}: not JSON: {error}") from error
        if not isinstance(raw, dict) or "schema_version" not in raw:
            raise ReportFileError(f"{source}: not a report of htareport (no schema_version)")
        version = raw.pop("schema_version")
        if type(version) is not int or version < 1:
            written = orjson.dumps(version).decode()
            raise ReportFileError(
                f"{source}: damaged report: schema_version: {written:.40} is not a whole number from 1"
            )
        if version > SCHEMA_VERSION:
            raise ReportFileError(f"{source}: schema_version {version} is newer than this htareport reads")
        try:
            report = decode(cls, raw)
            check_required(raw)
            check_meta(report.meta)
            check_charts(report.sections)
        except DecodeError as error:
            raise ReportFileError(f"{source}: damaged report: {error}") from error
        return report

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a .json or .json.gz that `write` made. ReportFileError (naming `path`) if it is something else."""
        try:
            data = read_bytes(path)
        except DecodeError as error:
            raise ReportFileError(f"{path}: {error}") from error
        return cls.from_json(data, str(path))

    def write(self, path: str | Path, **options: Any) -> Path:
        """Write to a file whose suffix picks the format; return its path. `options` are those of OutputOptions."""
        return write(self, path, OutputOptions(**options))

    def _repr_html_(self) -> str:
        return notebook_cell(self)
