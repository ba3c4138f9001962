"""`htareport index`: one page over many saved reports."""

from __future__ import annotations

import dataclasses
import gzip
import os
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deliver.conftest import hostile
from deliver.test_email import Tags
from render.sample import sample

from htareport.deliver.index import overview
from htareport.errors import NothingToReadError
from htareport.render.html.plotly_bundle import csp_hash
from htareport.render.index import Run, index, started, trends
from htareport.report import Report

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def run(day, factor=1.0, title="run"):
    """A report of one day, with its step time times a factor."""
    report = sample(ranks=1, steps=2, kernels=5, hostile=False)
    given = {"step_time": ("step_time", 1e8 * factor), "compute": ("compute_share", 0.8), "idle": ("idle_share", 0.1)}
    sections = tuple(
        dataclasses.replace(section, facts=tuple(_named(fact, given) for fact in section.facts))
        for section in report.sections
    )
    meta = report.meta | {"start": f"2026-10-{day:02d} 08:30:00 UTC"}
    return dataclasses.replace(report, title=title, meta=meta, sections=sections)


def _named(fact, given):
    name, value = given.get(fact.name, (fact.name, fact.value))
    return dataclasses.replace(fact, name=name, value=value)


@pytest.fixture
def folder(tmp_path):
    runs = tmp_path / "runs"
    (runs / "deep er").mkdir(parents=True)
    run(3, 1.25, "third").write(runs / "c.json.gz")
    run(1, 1.0, "first").write(runs / "a.json")
    run(2, 1.0, "second").write(runs / "deep er" / "report.json")
    (runs / "deep er" / "report.html").write_text("the page")
    return runs


def rows(page):
    """The cells of each row as texts."""
    body = page.partition("<tbody>")[2].partition("</tbody>")[0]
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in body.split("</tr>") if "<td" in row]
    return [[re.sub(r"<[^>]+>", " ", cell).split("NVIDIA")[0].strip() for cell in row] for row in cells]


def test_runs_by_date_with_changes_and_links(cli, folder):
    ran = cli("index", folder)
    assert ran.status == 0, ran.err
    assert ran.out.startswith(f"{folder / 'index.html'}  ")
    assert ran.out.endswith("3 runs\n")
    page = (folder / "index.html").read_text(encoding="utf-8")
    found = rows(page)
    assert [row[2] for row in found] == ["third", "second", "first"]
    assert [row[5:7] for row in found] == [
        ["125\u202fms", "+25.0\u202f%"], ["100\u202fms", "0\u202f%"], ["100\u202fms", "–"]
    ]  # fmt: skip
    assert found[0][1] == "2026-10-03 08:30"
    links = [held["href"] for tag, held in Tags(page).found if tag == "a"]
    assert links == ["c.json.gz", "deep%20er/report.html", "a.json"]
    assert page.count("<svg") == 2
    again = cli("index", folder)  # The page is no report, and links to itself nowhere.
    assert again.out.endswith("3 runs\n")


def test_links_hold_where_the_page_is(folder, tmp_path):
    page = overview(folder, tmp_path / "elsewhere" / "trend.html", NOW).page
    assert next(held["href"] for tag, held in Tags(page).found if tag == "a") == "../runs/c.json.gz"


def test_damaged_files_are_named(cli, folder):
    (folder / "cut.json").write_bytes((folder / "a.json").read_bytes()[:900])
    (folder / "cut.json.gz").write_bytes(gzip.compress(b'{"schema_version":1}' * 99)[:-9])
    (folder / "newer.json").write_text('{"schema_version": 99}')
    (folder / "list.json").write_text('{"schema_version": 1, "title": "x", "sections": [1]}')
    (folder / "empty.json").touch()
    (folder / "trace.json").write_text('{"traceEvents": []}')
    ran = cli("index", folder, "-o", folder / "page.html")
    assert ran.status == 4
    page = (folder / "page.html").read_text(encoding="utf-8")
    for name in ("cut.json", "cut.json.gz", "newer.json", "list.json", "empty.json"):
        assert f"error: {name}: " in ran.err
        assert f"<code>{name}</code>: " in page
    assert "trace.json" not in ran.err
    assert "<code>trace.json</code>" in page
    assert cli("index", folder, "--allow-partial", "-q").status == 0


def test_a_report_that_cannot_be_opened_is_named_without_its_folder(folder, monkeypatch):
    def refused(path):
        if path.name == "a.json":
            raise PermissionError(13, "Permission denied", str(path))
        return path.open("rb")

    monkeypatch.setattr("htareport.deliver.index.reading", refused)
    made = overview(folder, folder / "index.html", NOW)
    assert made.damaged == (("a.json", "Permission denied"),)
    assert str(folder) not in made.page


def test_nothing_to_show(cli, tmp_path):
    (tmp_path / "none").mkdir()
    assert cli("index", tmp_path / "none").status == 3
    assert cli("index", tmp_path / "missing").status == 3
    assert cli("index", "").status == 2
    assert not (tmp_path / "none" / "index.html").exists()
    (tmp_path / "none" / "cut.json").write_text('{"schema_version":1')
    with pytest.raises(NothingToReadError, match=r"cut\.json"):
        overview(tmp_path / "none", tmp_path / "x.html", NOW)


def test_wrong_outputs(cli, folder):
    assert cli("index", folder, "-o", "x.pdf").status == 2
    assert cli("index", folder, "-o", "no/x.html").status == 5


def test_the_page_is_closed_and_its_own(folder):
    made = overview(folder, folder / "index.html", NOW)
    page = made.page
    assert (made.runs, made.damaged) == (3, ())
    assert "2026-11-30 12:00 UTC" in page
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', page)[1].replace("&#39;", "'")
    script, style = (re.search(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)[1] for tag in ("script", "style"))
    assert policy.startswith("default-src 'none'; ")
    assert f"script-src {csp_hash(script)}; style-src {csp_hash(style)};" in policy
    assert "unsafe" not in policy
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page)
    assert not [held for _, held in Tags(page).found if "style" in held]
    assert overview(folder, folder / "index.html", NOW).page == page


def test_hostile_names_are_inert(tmp_path):
    evil = hostile()
    path = evil.write(tmp_path / "\"><script>alert(1)<&'.json")
    run(1).write(tmp_path / "b.json")
    (tmp_path / "<img src=x>.json").write_text("{}")
    page = overview(tmp_path, tmp_path / "index.html", NOW).page
    tags = Tags(page).found
    assert [tag for tag, _ in tags].count("script") == 1
    assert not {tag for tag, _ in tags} & {"img", "iframe", "object", "form", "base", "b"}
    assert not [name for _, held in tags for name in held if name.startswith("on")]
    assert all(re.fullmatch(r"[\w%.~-]+", held["href"]) for tag, held in tags if tag == "a")
    assert path.is_file()


def test_dates():
    assert started(run(4)) == datetime(2026, 10, 4, 8, 30, tzinfo=UTC)
    assert started(Report("x", meta={"start": "2026-11-29T10:00:00Z"})) == datetime(2026, 11, 29, 10, tzinfo=UTC)
    assert started(Report("x", meta={"start": {"a": 1}})) is None


def test_a_run_without_a_date_gets_its_files(tmp_path):
    path = dataclasses.replace(run(1), meta={}).write(tmp_path / "a.json")
    os.utime(path, (1_700_000_000, 1_700_000_000))
    page = overview(tmp_path, tmp_path / "index.html", NOW).page
    assert "2023-11-14 22:13 *" in page
    assert "* when the file was written" in page
    assert "<svg" not in page  # One run has no trend.


def test_trends_leave_out_what_is_missing():
    runs = [Run(run(day, day), "r.json", None) for day in (1, 2, 3)]
    empty = Run(Report("x"), "x.json", None)
    (times, *_) = trends([runs[0], empty, runs[1], runs[2]])
    assert times.frame.to_dict("list") == {"run": [1, 3, 4], "part": ["step time"] * 3, "value": [1e8, 2e8, 3e8]}
    assert trends([empty, runs[0]]) == []
    assert "Step time" not in index([empty], title="t", created=NOW).partition("<tbody>")[0].partition("<thead>")[2]


def test_sorting_script_is_small():
    assert (Path(__file__).parents[2] / "templates" / "index.js").stat().st_size < 3000


def test_gates(tmp_path):
    """The first run that crossed each gate, and in the table how many of a run's gates did not pass."""
    states = [("passed", "passed"), ("crossed", "passed"), ("crossed", "inconclusive"), ("passed", "crossed")]
    for day, (slow, idle) in enumerate(states, 1):
        report, gates = run(day), [{"gate": "step_time > 1 s", "state": slow}, {"gate": "idle_pct > 5", "state": idle}]
        dataclasses.replace(report, meta=report.meta | {"gates": gates}).write(tmp_path / f"{day}.json")
    run(5).write(tmp_path / "5.json")
    page = overview(tmp_path, tmp_path / "index.html", NOW).page
    assert "step_time &gt; 1 s: first crossed by run 2 (2026-10-02 08:30), and the latest does not" in page
    assert "idle_pct &gt; 5: first crossed by run 4 (2026-10-04 08:30), and the latest crosses it" in page
    told = [row[-2] for row in rows(page)]
    assert told == ["–", "1 crossed", "1 crossed, 1 inconclusive", "1 crossed", "passed"]
