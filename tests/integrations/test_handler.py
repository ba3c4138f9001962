"""The handler with a stand-in for the profiler: what it writes, when the report comes, and that nothing is raised."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from builder import TraceBuilder

import htareport
from htareport.errors import HtaReportError, UsageError
from htareport.integrations import MissingFrameworkError, framework
from htareport.integrations.handler import this_rank
from htareport.integrations.torch import TrainingProfile, report_handler
from htareport.report import Report
from htareport.trace import Trace

SCRIPT = """
import os, signal, sys
from builder import TraceBuilder
from htareport.integrations.torch import report_handler

class Profiler:
    def export_chrome_trace(self, path):
        TraceBuilder(None).step(1, 0, 900).cpu_op("aten::mm", 10, 50).write(Path(path))

from pathlib import Path
handler = report_handler("reports", outputs=["report.json"], wait_s=2)
"""


class Profiler:
    """Writes a tiny trace, each later than the one before."""

    def __init__(self, error=None):
        self.error, self.count = error, 0

    def export_chrome_trace(self, path):
        """Write it, or fail."""
        if self.error:
            raise self.error
        self.count += 1
        trace = TraceBuilder(None, base_ns=10**18 + self.count * 10**9)
        trace.step(self.count, 0, 900).cpu_op("aten::mm", 10, 50).write(Path(path))


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    """Tests may be run by a launcher themselves."""
    for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)


def train(code, tmp_path, **environment):
    """Run a training in a process of its own; return it and the seconds it took."""
    path = f"{Path(__file__).parents[1]}:{Path(htareport.__file__).parents[1]}"
    started = time.monotonic()
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT + textwrap.dedent(code)],
        cwd=tmp_path, env={"PYTHONPATH": path, **environment}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return process, time.monotonic() - started


def arrived(path, limit_s=20.0):
    """Wait for a file that comes after the process that caused it."""
    end = time.monotonic() + limit_s
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.05)
    return Report.load(path)


def test_finish_returns_the_report_and_later_captures_begin_another(tmp_path):
    """Two captures are one rank's; a second run does not see the first one's."""
    handler, prof = report_handler(tmp_path, outputs=["report.json"], title="T"), Profiler()
    handler(prof)
    handler(prof)
    assert handler.finish() == (tmp_path / "report.json",)
    first = Report.load(tmp_path / "report.json")
    assert (first.title, len(first.meta["ranks"]), len(first.meta["files"]), first.warnings) == ("T", 1, 2, ())
    assert handler.finish() == ()
    with handler:
        handler(prof)
    assert [each["name"] for each in Report.load(tmp_path / "report.json").meta["files"]] == [
        max((tmp_path / "traces").glob("*.gz")).name
    ]
    assert len(Trace.open(tmp_path / "traces").files[0]) == 3
    assert not list((tmp_path / "traces").glob(".*.part"))


def test_without_a_capture_nothing_is_left(tmp_path):
    with report_handler(tmp_path / "reports"):
        pass
    assert not (tmp_path / "reports").exists()


def test_a_trace_that_cannot_be_written_is_logged(tmp_path, caplog):
    handler = report_handler(tmp_path)
    handler(Profiler(OSError(28, "No space left on device")))
    assert "no trace was written" in caplog.text
    assert not list((tmp_path / "traces").iterdir())
    assert handler.finish() == ()


def test_a_folder_that_cannot_be_made_is_logged(tmp_path, caplog):
    (tmp_path / "file").touch()
    handler = report_handler(tmp_path / "file")
    handler(Profiler())
    assert handler.finish() == ()
    assert "no trace was written" in caplog.text


def test_a_builder_that_does_not_start_or_dies_is_logged(tmp_path, caplog, monkeypatch):
    handler = report_handler(tmp_path)
    monkeypatch.setattr(sys, "executable", "")
    handler(Profiler())
    assert "does not know its own program" in caplog.text
    monkeypatch.setattr(sys, "executable", "/bin/true")
    handler(Profiler())
    assert handler.finish() == ()
    assert "its process ended with status 0" in caplog.text


def test_a_report_that_takes_too_long_is_left_to_its_process(tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        handler = report_handler(tmp_path, outputs=["report.json"], wait_s=0, build_s=0)
        handler(Profiler())
        assert handler.finish() == ()
    assert "goes on with it" in caplog.text
    assert arrived(tmp_path / "report.json").meta["num_ranks"] == 1


def test_ranks_that_are_not_chosen_write_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    handler = report_handler(tmp_path, ranks=[0, 2])
    handler(Profiler())
    assert not list(tmp_path.iterdir())


def test_the_lowest_rank_that_profiles_has_the_report_built(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    handler = report_handler(tmp_path, ranks=[2, 3, 9], outputs=["report.json"], wait_s=0.2)
    handler(Profiler())
    handler.finish(wait=True)
    report = Report.load(tmp_path / "report.json")
    assert [each["rank"] for each in report.meta["ranks"]] == [2]
    assert report.warnings[0].startswith("rank 3 left no trace")


def test_of_several_ranks_none_waits_when_a_block_ends(tmp_path, monkeypatch):
    """Rank 0's block ends at once, though rank 1 is missing; what is left is waited for at the end of the process."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    started = time.monotonic()
    with report_handler(tmp_path, outputs=["report.json"], wait_s=1) as handler:
        handler(Profiler())
    assert time.monotonic() - started < 1
    handler._at_exit()
    assert Report.load(tmp_path / "report.json").warnings[0].startswith("rank 1 left no trace within 1 s")


def test_the_report_comes_at_the_end_of_the_process(tmp_path):
    process, _ = train("handler(Profiler()); sys.exit(7)", tmp_path)
    assert (process.returncode, process.stdout, process.stderr) == (7, "", "")
    assert Report.load(tmp_path / "reports/report.json").meta["num_ranks"] == 1


def test_an_exception_stays_what_it_is(tmp_path):
    process, _ = train("handler(Profiler()); raise RuntimeError('diverged')", tmp_path)
    assert process.returncode == 1
    assert process.stderr.endswith("RuntimeError: diverged\n")
    assert (tmp_path / "reports/report.json").exists()


@pytest.mark.parametrize(
    "number", ["SIGKILL", *(pytest.param(n, marks=pytest.mark.slow) for n in ("SIGTERM", "SIGINT"))]
)
def test_a_process_that_is_killed_gets_its_report(tmp_path, number):
    code = f"handler(Profiler()); signal.signal(signal.SIGINT, signal.SIG_DFL); os.killpg(0, signal.{number})"
    process, _ = train(f"os.setsid(); {code}", tmp_path)
    assert process.returncode < 0
    assert arrived(tmp_path / "reports/report.json").meta["num_ranks"] == 1
    assert "report of this training run" in process.stderr


def test_another_rank_never_waits(tmp_path):
    """Without rank 0, and with much time to wait."""
    code = "import time; handler = report_handler('reports', wait_s=60); handler(Profiler()); print(time.time())"
    process, _ = train(code, tmp_path, RANK="1", WORLD_SIZE="2")
    assert time.time() - float(process.stdout) < 2
    assert not (tmp_path / "reports/report.html").exists()
    assert len(list((tmp_path / "reports/traces").glob("rank1.*.gz"))) == 1


def test_a_forked_worker_has_no_part_in_it(tmp_path):
    """It ends before and after its parent, keeps the parent's pipes open, and runs what is registered for the end."""
    code = """
        import time
        handler(Profiler())
        if os.fork() == 0:
            sys.exit(0)
        os.wait()
        assert not os.path.exists("reports/report.json")
        if os.fork() == 0:
            for each in (0, 1, 2):
                os.close(each)
            time.sleep(8)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    process, took = train(code, tmp_path)
    assert process.returncode == -9
    assert arrived(tmp_path / "reports/report.json").meta["num_ranks"] == 1
    assert took < 8


def test_a_rank_is_read_from_the_launcher(monkeypatch):
    assert this_rank() == (0, 1)
    monkeypatch.setenv("RANK", "3")
    assert this_rank() == (0, 1)
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert this_rank() == (3, 4)
    monkeypatch.setenv("RANK", "4")
    assert this_rank() == (0, 1)


def test_slips_are_told_before_the_training(tmp_path):
    with pytest.raises(UsageError, match=r"report\.txt"):
        report_handler(tmp_path, outputs=["report.txt"])
    with pytest.raises(UsageError, match="outputs"):
        report_handler(tmp_path, outputs=[])
    with pytest.raises(UsageError, match="ranks"):
        report_handler(tmp_path, ranks=[])


def test_without_pytorch_the_error_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingFrameworkError, match="profile_training needs torch, which is not installed") as raised:
        htareport.profile_training(tmp_path)
    assert isinstance(raised.value, ImportError)
    assert isinstance(raised.value, HtaReportError)


@pytest.mark.parametrize("name", ["lightning", "transformers"])
def test_without_a_framework_its_callback_says_so(name, monkeypatch):
    for each in ("lightning", "pytorch_lightning", "transformers"):
        monkeypatch.setitem(sys.modules, each, None)
    monkeypatch.delitem(sys.modules, f"htareport.integrations.{name}", raising=False)
    with pytest.raises(ImportError, match=f"HtaReportCallback needs {name}"):
        __import__(f"htareport.integrations.{name}")


def test_a_framework_that_lacks_something_itself_shows_that(tmp_path, monkeypatch):
    (tmp_path / "halfway.py").write_text("import absent_package")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="absent_package"):
        framework("X", "halfway", "json")


class Failing:
    """A profiler of which nothing works."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        raise RuntimeError("no stop")

    def step(self):
        """As little as the rest."""
        raise RuntimeError("no step")


def test_a_profiler_that_fails_does_not_fail_the_training(tmp_path, caplog):
    profile = TrainingProfile(report_handler(tmp_path), Failing)
    profile.start()
    profile.step()
    profile.step()
    profile.stop()
    assert "profiling has ended" in caplog.text
    assert "the profiler did not stop" in caplog.text


def test_an_index_wants_a_saved_report(tmp_path):
    options = report_handler(tmp_path / "run7", index=tmp_path).options
    assert options.outputs == ("report.html", "report.json")
    assert options.index == tmp_path
    assert report_handler(tmp_path, outputs=["a.json.gz"], index=tmp_path).options.outputs == ("a.json.gz",)
