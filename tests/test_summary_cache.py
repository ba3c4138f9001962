"""What was measured on a rank is read again, and never anything else."""

from __future__ import annotations

import logging
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import pytest
from builder import TraceBuilder

import htareport
from htareport.analyses import Analysis, Group, analysis_classes, discover
from htareport.analyses.kernels.kernel_breakdown import KernelBreakdown
from htareport.analyses.time.step_time import StepTime
from htareport.rank.window import Window
from htareport.reading import cache
from htareport.report import Column, TableSpec, Unit, key
from htareport.rows import classify
from htareport.rows.options import ReadOptions
from htareport.rules import discover as discover_rules
from htareport.rules import rule_classes
from htareport.run import runner, summary_cache
from htareport.run.executors import make_executor
from htareport.run.summaries import Work
from htareport.run.summary_cache import SummaryEntry
from htareport.trace import RankTrace, Trace

EXAMPLES = Path(__file__).parents[1] / "examples" / "traces"

pytestmark = pytest.mark.skipif(cache.find_spec("pyarrow") is None, reason="there is no cache without pyarrow")


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """The folder of the cache; files of any size are kept in it, also those that were written just now."""
    monkeypatch.setattr(cache, "MIN_BYTES", 0)
    monkeypatch.setattr(cache, "MIN_EVENTS", 0)
    monkeypatch.setattr(cache, "SETTLED_NS", -(10**18))
    return tmp_path / "kept"


@pytest.fixture
def loads(monkeypatch):
    """The ranks whose events were looked at."""
    found, load = [], RankTrace.load
    monkeypatch.setattr(RankTrace, "load", lambda rank, *rest: found.append(rank) or load(rank, *rest))
    return found


@pytest.fixture
def traces(tmp_path):
    """A folder with two ranks that wait for each other."""
    (tmp_path / "traces").mkdir()
    for rank in range(2):
        _trace(rank).write(tmp_path / "traces" / f"rank{rank}.json")
    return tmp_path / "traces"


def _trace(rank: int, dur: int = 30) -> TraceBuilder:
    made = TraceBuilder(rank, 2, host="node7")
    for step in range(4):
        at = 100 * step
        made.step(step, at, 100).cpu_op("aten::mm", at, 9).kernel("gemm", at + 20, dur, launch=(at, 5))
        made.collective("ncclDevKernel_AllReduce", "allreduce", at + 60 + rank, 20, launch=(at + 10, 5))
        made.memory(at + 5, 512, 512, 2048)
    return made


def _report(traces, kept=False, **options) -> bytes:  # noqa: FBT002  as analyze has it
    few = {"analyses": [StepTime(), KernelBreakdown()], "rules": [rule_classes()["N4"]()]}
    return runner.analyze(traces, cache=kept, **few | options).to_json()


def test_the_second_report_looks_at_no_event_and_is_the_same(traces, kept, loads):
    every = {"analyses": None, "rules": None}
    first = _report(traces, kept, **every)
    assert loads == [0, 1]
    assert _report(traces, kept, **every) == first == _report(traces, **every)
    assert loads == [0, 1, 0, 1]  # Those without cache.


def test_whoever_starts_workers_looks_before(traces, kept, loads):
    """None is started for ranks that are known; the one that is not is read by one."""
    first = _report(traces, kept)
    with make_executor(2) as executor:
        assert _report(traces, kept, executor=executor) == first
        assert not executor._processes
    assert loads == [0, 1]


OTHERS = [
    {"window": Window.parse("1-2")}, {"window": Window.parse("complete")}, {"window": Window(without_last_step=True)},
    {"options": ReadOptions(salvage=True)}, {"options": ReadOptions(redact=True)},
    {"options": ReadOptions(max_bytes=9)}, {"ranks": 2}, {"analyses": []},
    {"rules": [rule_classes()["C1"]()]}, {"rules": [rule_classes()["H1"]()]},
    {"analyses": [StepTime(), KernelBreakdown()]}, {"analyses": [StepTime(), KernelBreakdown(num_kernels=1)]},
]  # fmt: skip


def _name(traces, kept, **work) -> str:
    files, made = Trace.open(traces).files[0], Work(**{"analyses": [StepTime()]} | work)
    return SummaryEntry.for_rank(0, files, replace(made, options=made.options.cached(kept))).name


def test_what_is_asked_is_part_of_the_name(traces, kept):
    """And nothing that has no influence, such as the order in which steps were named."""
    names = [_name(traces, kept, **other) for other in [{}, *OTHERS]]
    assert len(set(names)) == len(names)
    for other in OTHERS:
        assert _name(traces, kept, **other) in names
    assert _name(traces, kept, window=Window(frozenset({2, 1}))) == names[1]


def test_each_option_of_each_rule_and_analysis_counts(traces, kept):
    for kind in (*rule_classes().values(), *analysis_classes().values()):
        what = "analyses" if issubclass(kind, Analysis) else "rules"
        one = _name(traces, kept, **{what: [kind()]})
        for name, value in kind.options().items():
            other = kind(**{name: "1" if isinstance(value, str) else value + 1})
            assert _name(traces, kept, **{what: [other]}) != one, (kind, name)


@pytest.mark.parametrize("other", [{"steps": "1-2"}, {"redact": False}])
def test_other_options_are_measured_once_and_equal_those_without_cache(other, traces, kept, loads):
    _report(traces, kept)
    one = _report(traces, kept, **other)
    assert loads == [0, 1] * 2
    assert _report(traces, kept, **other) == one
    assert loads == [0, 1] * 2
    assert one == _report(traces, **other)


def test_fewer_ranks_are_other_reports(traces, kept, loads):
    """They share the room for rows."""
    _report(traces, kept)
    _report(Trace.open(traces, ranks={1}), kept)
    assert loads == [0, 1, 1]


def test_a_changed_file_is_looked_at_again(traces, kept, loads):
    _report(traces, kept)
    _trace(1, dur=31).write(traces / "rank1.json")
    changed = _report(traces, kept)
    assert loads == [0, 1, 1]
    assert changed == _report(traces)


def test_a_file_that_was_written_just_now_is_not_kept(traces, kept, loads, monkeypatch):
    """It could be written to once more without its times showing it."""
    monkeypatch.setattr(cache, "SETTLED_NS", 10**12)
    _report(traces, kept)
    _report(traces, kept)
    assert loads == [0, 1, 0, 1]


def test_another_version_looks_again(traces, kept, loads, monkeypatch):
    """Any source of the package counts, not only what reads files."""
    _report(traces, kept)
    summary_cache._code.cache_clear()
    monkeypatch.setattr(pd, "__version__", "0.0")
    _report(traces, kept)
    summary_cache._code.cache_clear()
    assert loads == [0, 1, 0, 1]


def test_the_version_is_that_of_all_sources(tmp_path, monkeypatch):
    (tmp_path / "rules").mkdir()
    assert Path(htareport.__file__).parent == cache.PACKAGE
    monkeypatch.setattr(cache, "PACKAGE", tmp_path)
    monkeypatch.setattr(cache, "_IMPORTED_NS", time.time_ns() + 10**12)
    found = set()
    for text in ("a = 1", "a = 2"):
        (tmp_path / "rules" / "one.py").write_text(text)
        summary_cache._code.cache_clear()
        found.add(summary_cache._code()[0])
    summary_cache._code.cache_clear()
    assert len(found) == 2


def test_a_process_that_runs_what_was_there_before_an_upgrade_keeps_nothing(traces, kept, loads, monkeypatch):
    """Its measurements would else be taken for those of the new version."""
    for module in (summary_cache, cache):
        monkeypatch.setattr(module, "_code", module._code.__wrapped__)
    monkeypatch.setattr(cache, "_IMPORTED_NS", 0)
    assert _report(traces, kept) == _report(traces)
    assert loads == [0, 1, 0, 1]
    assert not kept.exists()


def test_patterns_that_users_add_count(traces, kept, loads, monkeypatch):
    """For what is read of files, too, where kernels have their class."""
    _report(traces, kept)
    monkeypatch.setattr(classify, "COMMUNICATION_NAMES", [*classify.COMMUNICATION_NAMES, "gemm"])
    changed = _report(traces, kept)
    assert loads == [0, 1] * 2
    assert changed == _report(traces)
    monkeypatch.undo()
    assert changed != _report(traces)


def test_damaged_files_are_ignored_and_written_again(traces, kept, loads, caplog):
    """Cut, empty, with one bit turned, of another rank, kept under another name, or something else."""
    first = _report(traces, kept)
    files = sorted(kept.glob("*-summary.rank"))
    assert len(files) == 2
    whole = files[0].read_bytes()
    turned = whole[: len(whole) // 2] + bytes([whole[len(whole) // 2] ^ 1]) + whole[len(whole) // 2 + 1 :]
    moved = summary_cache._digest("another", whole[32:]) + whole[32:]
    for number, damaged in enumerate((whole[:-1], b"", turned, files[1].read_bytes(), moved, b"x" * 99), 3):
        files[0].write_bytes(damaged)
        caplog.clear()
        with caplog.at_level(logging.INFO):
            assert _report(traces, kept) == first
        assert len(loads) == number
        assert f"{files[0].name} is no use" in caplog.text
        assert files[0].read_bytes() == whole


def test_a_folder_that_cannot_be_written_to_costs_a_line_in_the_log(traces, kept, caplog):
    kept.write_text("no folder")
    with caplog.at_level(logging.INFO):
        first = _report(traces, kept)
    assert "rank 0: its summary is not kept: " in caplog.text
    assert _report(traces, kept) == first


def test_what_failed_is_tried_again(traces, kept, loads, monkeypatch):
    """An analysis may have lacked memory."""
    with monkeypatch.context() as patch:
        patch.setattr(StepTime, "map", lambda *_: 1 / 0)
        assert b"division by zero" in _report(traces, kept)
    assert b"division by zero" not in _report(traces, kept)
    assert loads == [0, 1, 0, 1]


@dataclass(frozen=True)
class Foreign(Analysis):
    """How many kernels there are."""

    title, group = "Foreign", Group.KERNELS
    tables = (TableSpec("ranks", "Ranks", (key("rank", "Rank"), Column("count", "Kernels", Unit.COUNT))),)

    def map(self, trace):
        """Count."""
        return {"ranks": pd.DataFrame({"count": [len(trace.device_events)]})}


def test_analyses_from_elsewhere_are_asked_each_time(traces, kept, loads):
    """Their sources may change without our knowing."""
    first = _report(traces, kept, analyses=[Foreign()])
    assert _report(traces, kept, analyses=[Foreign()]) == first
    assert loads == [0, 1, 0, 1]


def test_all_that_rules_find_can_be_kept(tmp_path, kept, caplog):
    """No class that is unknown to the cache."""
    name = "rank0.pt.trace.json.gz"
    shutil.copy(EXAMPLES / name, tmp_path / name)
    with caplog.at_level(logging.INFO):
        runner.summarize(0, tmp_path / name, Work(discover(), discover_rules(), options=ReadOptions(cache=kept)))
    assert "rank 0: its summary is kept in" in caplog.text
