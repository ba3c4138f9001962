"""The report of a run's files: what it says of ranks that are not there, and what happens if it cannot be made."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace

import pytest
from builder import TraceBuilder

from htareport.integrations.builder import Order, Result, build, log_result, warnings_about
from htareport.integrations.records import FOLDER, Gathered, Record
from htareport.report import Report

OWN = Record(rank=0, world_size=2, host="a", pid=10, job="", number=1, started_ns=10**18)


@pytest.fixture
def order(tmp_path):
    return Order(str(tmp_path / "run7"), OWN, ("report.json",), "", 0.0, (0, 1), since_ns=0, parent=1)


def leave(order, rank, *, done=True):
    """Leave a trace of a rank, with its record."""
    record = replace(OWN, rank=rank, pid=10 + rank, done=done)
    record = replace(record, files=(record.file_name(5),))
    trace = TraceBuilder(rank, world_size=2).step(1, 0, 900).cpu_op("aten::mm", 10, 50)
    order.traces.mkdir(parents=True, exist_ok=True)
    trace.write(order.traces / record.files[0], gzip=True)
    record.write(order.traces)


def test_all_ranks(order):
    leave(order, 0)
    leave(order, 1)
    result = build(order)
    report = Report.load(order.traces.parent / "report.json")
    assert result == Result((str(order.traces.parent / "report.json"),))
    assert (report.title, report.meta["num_ranks"], report.warnings) == ("run7", 2, ())
    assert not list((order.traces / FOLDER).iterdir())


def test_a_missing_rank_is_named_in_the_report_and_in_the_result(order):
    leave(order, 0, done=False)
    result = build(order)
    report = Report.load(result.written[0])
    assert report.warnings[0].startswith("rank 1 left no trace within 0 s after training")
    assert result.problems == report.warnings[:1]
    assert list((order.traces / FOLDER).iterdir())  # Should rank 1 come yet, it finds the others.


def test_a_rank_that_did_not_end_is_named(order):
    leave(order, 0)
    leave(order, 1, done=False)
    assert build(order).problems == (
        "rank 1 did not come to a proper end: traces that came later are not in here",
    )  # fmt: skip


def test_of_many_missing_ranks_the_first_are_named():
    text = next(warnings_about(Gathered({}, missing=tuple(range(1, 1024))), 60))
    assert text.startswith("ranks 1, 2, 3, 4, 5, 6, 7, 8 and 1015 more left no trace within 60 s")


def test_without_any_trace_there_is_no_report(order):
    assert build(order) == Result(problems=("no report: no rank left a trace",))


def test_a_trace_that_cannot_be_read_is_told(order):
    leave(order, 0)
    next(order.traces.glob("*.gz")).write_bytes(b"\x1f\x8b\x08damaged")
    result = build(replace(order, ranks=(0,)))
    assert not result.written
    assert result.problems[0].startswith("no report: ")


def test_an_output_that_cannot_be_written_does_not_cost_the_others(order):
    leave(order, 0)
    leave(order, 1)
    result = build(replace(order, outputs=("no/such/folder/report.json", "b.md"), title="Seven"))
    assert [path.rpartition("/")[2] for path in result.written] == ["b.md"]
    assert "no/such/folder/report.json" in result.problems[0]
    assert "Seven" in (order.traces.parent / "b.md").read_text("utf-8")


def test_what_nobody_foresaw_is_told(order, monkeypatch):
    leave(order, 0)
    monkeypatch.setattr("htareport.run.runner.analyze", lambda *_, **__: 1 / 0)
    assert "ZeroDivisionError" in build(replace(order, ranks=(0,))).problems[0]


def test_an_order_survives_the_way_to_the_other_process(order):
    order = replace(order, record=replace(OWN, files=("a", "b")))
    assert Order.from_data(json.loads(json.dumps(asdict(order)))) == order


def test_the_log_has_problems_as_warnings(caplog):
    import logging

    with caplog.at_level(logging.INFO):
        log_result(logging.getLogger("x"), Result(("report.html",), ("rank 1 …",)))
    assert [(each.levelname, each.message) for each in caplog.records] == [
        ("WARNING", "rank 1 …"),
        ("INFO", "report of this training run: report.html"),
    ]


def test_a_pdf_names_the_page_that_belongs_to_it(order, monkeypatch):
    """The page is written first, whatever the order of the outputs, and the PDF gets its sha256."""
    leave(order, 0)
    leave(order, 1)
    asked = []
    monkeypatch.setattr("htareport.render.pdf.pdf", lambda _, **options: asked.append(options) or b"%PDF")
    folder = order.traces.parent
    result = build(replace(order, outputs=("s.pdf", "r.html")))
    assert result.written == (str(folder / "r.html"), str(folder / "s.pdf"))
    assert asked[0]["full_report"] == ("r.html", hashlib.sha256((folder / "r.html").read_bytes()).hexdigest())


def test_the_index_is_kept_current(order):
    leave(order, 0)
    runs = order.traces.parents[1]
    order = replace(order, ranks=(0,))
    assert not build(replace(order, index=str(runs))).problems
    assert 'href="run7/report.json"' in (runs / "index.html").read_text("utf-8")
    leave(order, 0)
    (told,) = build(replace(order, index=str(runs / "nowhere"))).problems
    assert "the index of runs was not written" in told
