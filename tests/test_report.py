"""The report model and its JSON."""

from __future__ import annotations

import gzip
import json
import math
import zipfile
from dataclasses import MISSING

import numpy as np
import pandas as pd
import pytest

from htareport.algorithms.frames import concat
from htareport.errors import ReportFileError, UsageError
from htareport.report import (
    SCHEMA_VERSION,
    Better,
    Chart,
    Column,
    Fact,
    Mark,
    Report,
    Section,
    Status,
    Table,
    TableSpec,
    Unit,
    key,
)
from htareport.report.findings import Finding, Severity

SPEC = TableSpec("ranks", "By rank", (key("rank", "Rank"), Column("time", "Time", Unit.NANOSECONDS, "How long.")))


def table(frame: pd.DataFrame, *columns: Column) -> Table:
    return Table(TableSpec("t", "T", columns or tuple(Column(name, name) for name in frame.columns)), frame)


def report_of(*tables: Table, **fields) -> Report:
    return Report("Run", sections=(Section("part", "Part", "Time", tables=tables),), **fields)


def full() -> Report:
    """Return a report with something in every field."""
    frame = pd.DataFrame({"rank": [3, 17], "time": [10, 2**60]})
    chart = Chart("c", "C", Mark.BAR, frame, "time", "rank", x_unit=Unit.BYTES, lines=((1.5, "limit"),), log_x=True)
    fact = Fact("f", "fact", 0.25, Unit.RATIO, "of it", "What it is.", Better.LOWER, 3)
    finding = Finding("N4", Severity.HIGH, "Slow", "seen", "do", 2**60, "likely", (3, 17), (1,))
    section = Section("part", "Part", "Time", "Help", Status.OK, "", ("note",), (fact,), (finding,), (chart,),
                      (Table(SPEC, frame, "cut"),))  # fmt: skip
    failed = Section("bad", "Bad", "Time", status=Status.FAILED, reason="ValueError")
    return Report("Läufe 🚀", "Fine.", {"zero_ns": 2**62, "ranks": [{"rank": 3}]}, ("careful",), (section, failed))


def test_a_table_holds_its_columns_in_order():
    """Others are left out, and rows are numbered anew."""
    frame = pd.DataFrame({"x": [1, 2], "time": [5, 6], "rank": [0, 1]}, index=[7, 9])
    found = Table(SPEC, frame).frame
    assert list(found.columns) == ["rank", "time"]
    assert list(found.index) == [0, 1]


def test_a_table_lacks_a_column():
    """The message names table and column."""
    with pytest.raises(ValueError, match=r"'ranks' lacks its columns time"):
        Table(SPEC, pd.DataFrame({"rank": [0]}))


def test_two_rows_of_one_key():
    """Are refused, missing keys too; without keys rows may repeat."""
    for rank in (0, None):
        with pytest.raises(ValueError, match=r"two rows with the same rank"):
            Table(SPEC, pd.DataFrame({"rank": [rank, rank], "time": [1, 2]}))
    assert len(table(pd.DataFrame({"a": [1, 1]})).frame) == 2


def test_keys_and_measures():
    """Columns of a spec are one or the other."""
    assert SPEC.keys == ["rank"]
    assert [column.name for column in SPEC.measures] == ["time"]


def test_round_trip():
    """Every field comes back, and the same bytes."""
    report = full()
    data = report.to_json()
    again = Report.from_json(data)
    assert again.to_json() == data
    assert (again.title, again.verdict, again.meta, again.warnings) == ("Läufe 🚀", "Fine.", report.meta, ("careful",))
    ours, theirs = report["part"], again["part"]
    assert (theirs.facts, theirs.findings, theirs.notes) == (ours.facts, ours.findings, ours.notes)
    assert theirs.tables[0].spec == SPEC
    assert theirs.tables[0].note == "cut"
    pd.testing.assert_frame_equal(theirs.table(), ours.table())
    assert theirs.charts[0].lines == ((1.5, "limit"),)
    assert theirs.charts[0].mark is Mark.BAR
    assert again["bad"].status is Status.FAILED


def test_json_is_strict():
    """Missing and infinite numbers are null: no NaN that other readers stumble over."""
    data = report_of(table(pd.DataFrame({"a": [1.5, math.nan, math.inf]}))).to_json()

    def refuse(text):
        raise AssertionError(text)

    parsed = json.loads(data, parse_constant=refuse)
    assert parsed["schema_version"] == SCHEMA_VERSION
    assert parsed["sections"][0]["tables"][0]["frame"]["columns"]["a"] == [1.5, None, None]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, 2**62, -(2**62)], "int64"),
        ([2**63 + 5, 1], object),
        ([2**63 + 5, 1], "uint64"),
        ([0.1, math.nan, 1e300], "float64"),
        ([math.nan, math.nan], "float64"),
        ([True, False], "bool"),
        (["a", "ü🚀\u202e", "</script>"], object),
        ([0, "stream 7", None], object),
        ([3, None], object),
        ([3, None], "Int64"),
        ([True, None], "boolean"),
        (["x", None], "str"),
        (["a", "b", "a"], "category"),
        ([], "int64"),
        ([], object),
    ],
)
def test_columns_round_trip(values, dtype):
    """Whatever a frame holds, values come back as they were; what is missing stays missing."""
    frame = pd.DataFrame({"a": pd.Series(values, dtype=dtype)})
    report = report_of(table(frame))
    again = Report.from_json(report.to_json())
    found = again["part"].table()["a"]
    assert len(found) == len(values)
    for value, original in zip(found.tolist(), values, strict=True):
        missing = bool(pd.isna(original))
        assert pd.isna(value) if missing else (value == original and isinstance(value, type(original)))
    assert again.to_json() == report.to_json()


def test_integers_stay_exact():
    """Beyond 2**53, in a column without missing values."""
    again = Report.from_json(report_of(table(pd.DataFrame({"a": [2**60 + 1]}))).to_json())
    assert again["part"].table()["a"].dtype == np.int64
    assert again["part"].table()["a"].iloc[0] == 2**60 + 1


def test_an_empty_frame_keeps_its_columns():
    """And their types."""
    frame = pd.DataFrame({"rank": pd.Series(dtype="int64"), "time": pd.Series(dtype="float64")})
    found = Report.from_json(report_of(Table(SPEC, frame)).to_json())["part"].table()
    assert found.dtypes.astype(str).to_dict() == {"rank": "int64", "time": "float64"}


def test_newer_schema_is_refused():
    """The message names the file and says why."""
    raw = json.loads(full().to_json()) | {"schema_version": SCHEMA_VERSION + 1}
    with pytest.raises(ReportFileError, match=r"new\.json: schema_version 2 is newer"):
        Report.from_json(json.dumps(raw), "new.json")


def test_unknown_fields_are_ignored():
    """A later version may write more, at any depth."""
    raw = json.loads(full().to_json())
    raw["later"] = raw["sections"][0]["later"] = raw["sections"][0]["facts"][0]["later"] = {"a": 1}
    assert Report.from_json(json.dumps(raw)).to_json() == full().to_json()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nonsense",
        "[]",
        "7",
        "{}",
        '{"schema_version": 1}',
        '{"schema_version": "one", "title": "x"}',
        '{"schema_version": 1, "title": "x", "sections": "abc"}',
        '{"schema_version": 1, "title": "x", "sections": [1]}',
        '{"schema_version": 1, "title": "x", "sections": null}',
        '{"schema_version": 1, "title": "x", "sections": [{"name": "a", "title": "a", "group": "g", "status": "odd"}]}',
    ],
)
def test_damaged_json(text):
    """Is refused with the file's name, never with another error."""
    with pytest.raises(ReportFileError, match=r"^old\.json: "):
        Report.from_json(text, "old.json")


def test_a_damaged_table():
    """Columns of different lengths, a lost column, a wrong type."""
    for damage in (
        lambda frame: frame["columns"]["time"].append(1),
        lambda frame: frame["columns"].pop("time"),
        lambda frame: frame["columns"].update(time=["x", "y"]),
        lambda frame: frame.pop("dtypes"),
    ):
        raw = json.loads(full().to_json())
        damage(raw["sections"][0]["tables"][0]["frame"])
        with pytest.raises(ReportFileError, match="damaged"):
            Report.from_json(json.dumps(raw), "old.json")


def _put(raw, path, value):
    """Set the part of JSON data at a path such as `sections.0.title`; no value takes it out."""
    *parents, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    for part in parents:
        raw = raw[part]
    if value is MISSING:
        del raw[last]
    else:
        raw[last] = value


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("meta", None, "meta: Expected `object`, got `null`"),
        ("meta", MISSING, "meta: is missing"),
        ("sections", MISSING, "sections: is missing"),
        ("sections", None, "sections: Expected `array`, got `null`"),
        ("sections/1", 7, "sections[1]: Expected `object`, got `int`"),
        ("sections/0/tables", MISSING, "sections[0].tables: is missing"),
        ("sections/0/status", MISSING, "sections[0].status: is missing"),
        ("sections/0/status", "odd", "sections[0].status: Invalid enum value 'odd'"),
        ("sections/0/charts/0/mark", "zzz", "sections[0].charts[0].mark: Invalid enum value 'zzz'"),
        ("sections/0/charts/0/x", "zzz", "sections[0].charts[0].x: its frame has no column 'zzz'"),
        ("sections/0/charts/0/lines", [[1, 2, 3]], "charts[0].lines[0]: Expected `array` of length 2, got 3"),
        ("sections/0/charts/0/log_x", 1, "charts[0].log_x: Expected `bool`, got `int`"),
        ("sections/0/facts/0/order", True, "facts[0].order: Expected `int`, got `bool`"),
        ("sections/0/facts/0/value", "1", "facts[0].value: Expected `float | null`, got `str`"),
        ("sections/0/notes", ["a", None], "notes[1]: Expected `str`, got `null`"),
        ("sections/0/tables/0/spec/columns/0/unit", "zzz", "spec.columns[0].unit: Invalid enum value 'zzz'"),
        ("sections/0/tables/0/spec/columns/0/name", MISSING, "spec.columns[0]: Object missing required field `name`"),
        ("sections/0/tables/0/frame", [], "tables[0].frame: Expected `object`, got `array`"),
        ("sections/0/tables/0/frame/dtypes", MISSING, "tables[0].frame: Object missing required field `dtypes`"),
        ("sections/0/tables/0/frame/dtypes/time", "int7", "frame: columns.time: its type 'int7' is none of int64, "),
        ("sections/0/tables/0/frame/columns/time/1", "x", "frame: columns.time[1]: Expected `int`, got `str`"),
        ("sections/0/tables/0/frame/columns/time/1", 2**63, "frame: columns.time: a number that is no int64"),
        ("sections/0/tables/0/frame/columns/time", [1], "frame: columns.time: 1 values, but 2 in the columns before"),
        ("sections/0/tables/0/frame/columns/time", MISSING, "tables[0]: table 'ranks' lacks its columns time"),
        ("sections/0/tables/0/frame/columns/rank", [3, 3], "tables[0]: table 'ranks' has two rows with the same rank"),
        ("title", {"a": 1}, "title: Expected `str`, got `object`"),
        ("warnings", [1, {}], "warnings[0]: Expected `str`, got `int`"),
        ("meta/num_ranks", "two", "meta.num_ranks: Expected `int | null`, got `str`"),
        ("meta/steps", {"count": "x"}, "meta.steps[...]: Expected `int`, got `str`"),
        ("meta/problems", [1], "meta.problems[0]: Expected `str`, got `int`"),
        ("meta/files", [{"bytes": "big"}], "meta.files[0].bytes: Expected `int | null`, got `str`"),
        ("schema_version", "1", 'schema_version: "1" is not a whole number'),
        ("schema_version", True, "schema_version: true is not a whole number"),
        ("schema_version", 0, "schema_version: 0 is not a whole number from 1"),
    ],
)  # fmt: skip
def test_what_is_damaged_is_named(path, value, message):
    """With its file and place."""
    raw = json.loads(full().to_json())
    _put(raw, path, value)
    with pytest.raises(ReportFileError) as error:
        Report.from_json(json.dumps(raw), "old.json")
    assert str(error.value).startswith("old.json: damaged report: ")
    assert message in str(error.value)


def _paths(raw, at=""):
    inner = raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ()
    for name, part in inner:
        yield f"{at}{name}"
        yield from _paths(part, f"{at}{name}/")


def test_whatever_is_damaged_is_refused_or_can_be_drawn(tmp_path):
    """Each part of a report replaced by something else."""
    data = full().to_json()
    for path in _paths(json.loads(data)):
        for value in (MISSING, None, True, -1, 1.5, "zzz", [], {}, [[1]], {"a": [1]}):
            raw = json.loads(data)
            _put(raw, path, value)
            try:
                report = Report.from_json(json.dumps(raw))
            except ReportFileError:
                continue
            assert report.write(tmp_path / "r.md").exists()
            assert Report.from_json(report.to_json()).to_json() == report.to_json()


def test_damaged_files(tmp_path):
    """A cut or spoilt .json.gz, and none at all."""
    path = full().write(tmp_path / "r.json.gz")
    data = path.read_bytes()
    for spoilt in (data[: len(data) // 2], data[:40] + bytes(40) + data[80:]):
        path.write_bytes(spoilt)
        with pytest.raises(ReportFileError, match=r"r\.json\.gz"):
            Report.load(path)
    with pytest.raises(ReportFileError, match="nothing"):
        Report.load(tmp_path / "nothing.json")


@pytest.mark.parametrize("suffix", [".html", ".md", ".json", ".json.gz", ".csv.zip"])
def test_write(tmp_path, suffix):
    """Every suffix has its format, and equal reports give equal bytes."""
    path = full().write(tmp_path / f"r{suffix}")
    assert path == tmp_path / f"r{suffix}"
    data = path.read_bytes()
    assert full().write(str(tmp_path / f"again{suffix}")).read_bytes() == data
    match suffix:
        case ".html":
            assert data.startswith(b"<!doctype html>")
        case ".md":
            assert "Läufe 🚀".encode() in data
        case ".json":
            assert data == full().to_json()
        case ".json.gz":
            assert gzip.decompress(data) == full().to_json()
        case ".csv.zip":
            assert zipfile.ZipFile(path).namelist() == ["part.ranks.csv"]
    if "json" in suffix:
        assert Report.load(path).to_json() == full().to_json()


def test_an_unknown_suffix(tmp_path):
    """The message lists those there are."""
    with pytest.raises(UsageError, match=r"\.html"):
        full().write(tmp_path / "r.docx")


def test_look_ups_that_help():
    """What is not there is answered with what is."""
    report = full()
    assert "part" in report
    assert "other" not in report
    with pytest.raises(KeyError, match=r"no section 'other'; there are \['part', 'bad'\]"):
        report["other"]
    with pytest.raises(KeyError, match=r"no table 'x' in section part: \['ranks'\]"):
        report["part"].table("x")
    with pytest.raises(KeyError, match="section bad"):
        report["bad"].table()
    assert report["part"].fact("f").value == 0.25
    assert report["part"].fact("none") is None


def test_facts_are_plain_numbers():
    """Numpy's scalars become floats, NaN becomes None."""
    assert type(Fact("f", "f", np.int64(3), Unit.COUNT).value) is float
    assert Fact("f", "f", np.float64("nan"), Unit.COUNT).value is None
    assert Fact("f", "f", None, Unit.COUNT).value is None


def test_kinds_of_units():
    """Words, numbers that name something, and changes with what changed."""
    assert {unit for unit in Unit if unit.is_text} == {Unit.TEXT, Unit.NAME}
    assert {unit for unit in Unit if unit.is_id} == {Unit.ID, Unit.RANK, Unit.STEP}
    assert {unit: unit.plain for unit in Unit if unit.is_change} == {
        Unit.TIME_CHANGE: Unit.NANOSECONDS,
        Unit.RATIO_CHANGE: Unit.RATIO,
    }


def test_concat_of_empty_frames():
    """Columns stay, and an empty frame does not turn whole numbers into floats."""
    empty = pd.DataFrame({"a": pd.Series(dtype="float64")})
    assert concat([empty, pd.DataFrame({"a": [1]})])["a"].dtype == np.int64
    assert list(concat([empty, empty]).columns) == ["a"]
    assert len(concat([empty])) == 0
