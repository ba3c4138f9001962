"""The process that builds the report: it sleeps until the training process ends, however it ends.

The training process holds the other end of its standard input. A line there says that the run is over; the end of the
stream, or another parent, that the process is gone: killed, or ended without a word. Being a session of its own, it is
not killed along with the training's process group, and a training that ends in an error gets its report, too. Nothing
heavy is loaded before that.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from htareport.errors import HtaReportError
from htareport.integrations.records import Gathered, Record, gather

log = logging.getLogger(__name__)

FINISH, IN_BACKGROUND = "finish", "background"  # Words of the training process at the end of the run.

_LOOK_S = 1.0  # How soon it is seen that the training process is gone, if workers it forked keep the stream open.
_MAX_RANKS = 8
_START = (
    "import json, sys; order = json.loads(sys.stdin.readline()); sys.path[:] = order.pop('path');"
    "from htareport.integrations.builder import main; main(order)"
)


@dataclass(frozen=True)
class Order:
    """The report to build: from which traces, into which files."""

    directory: str
    record: Record  # Of the process that gives the order.
    outputs: tuple[str, ...]
    title: str
    wait_s: float
    ranks: tuple[int, ...]
    since_ns: int
    parent: int
    index: str = ""  # Folder whose page over all runs is kept current.

    @property
    def traces(self) -> Path:
        """The folder of the trace files."""
        return Path(self.directory) / "traces"

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Self:
        """Return what `asdict` made, also after a trip through JSON."""
        record, outputs, ranks = Record.from_data(data["record"]), tuple(data["outputs"]), tuple(data["ranks"])
        return cls(**{**data, "record": record, "outputs": outputs, "ranks": ranks})


@dataclass(frozen=True)
class Result:
    """The outcome: files written, and problems."""

    written: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class Builder:
    """Starts and talks to the process that builds the report, from the training process."""

    def __init__(self, order: Order) -> None:
        """Start the process. OSError if that cannot be done."""
        if not sys.executable:
            raise OSError(None, "this Python does not know its own program")
        self._process = subprocess.Popen(  # noqa: S603  this very program
            [sys.executable, "-c", _START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self._write(json.dumps({**asdict(order), "path": sys.path}))

    def say(self, word: str) -> None:
        """Say that the run is over."""
        self._write(word)

    def _write(self, line: str) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):  # If it is gone, that shows in the result.
                self._process.stdin.write(f"{line}\n".encode())

    def result(self, timeout_s: float) -> Result:
        """Wait for the result. TimeoutError if it takes longer: then the process goes on by itself."""
        try:
            answer, _ = self._process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self._leave()
            raise TimeoutError(
                f"the report is not ready after {timeout_s:g} s; process {self._process.pid} goes on with it"
            ) from None
        try:
            data = json.loads(answer.splitlines()[-1])  # Whatever else was printed there.
            return Result(tuple(data["written"]), tuple(data["problems"]))
        except (ValueError, LookupError, TypeError):
            return Result(problems=(f"no report: its process ended with status {self._process.returncode}",))

    def _leave(self) -> None:
        """Detach from the process: it notices that nobody reads its answer."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.returncode = 0  # Else Python would warn that it still runs, which is meant.


def main(data: dict[str, Any]) -> None:
    """Run the process: wait for the end, build the report, send the result to the training process, or log it."""
    order = Order.from_data(data)
    if _await_end(order.parent) == IN_BACKGROUND and hasattr(os, "nice"):
        os.nice(19)  # The training script goes on: its own work comes first.
    result = build(order)
    if os.getppid() == order.parent:
        with contextlib.suppress(OSError):
            os.write(sys.stdout.fileno(), f"\n{json.dumps(asdict(result))}\n".encode())
            return
    logging.basicConfig(level=logging.INFO, format="htareport: %(message)s")
    log_result(log, result)


def log_result(logger: logging.Logger, result: Result) -> None:
    """Log a result."""
    for problem in result.problems:
        logger.warning("%s", problem)
    for path in result.written:
        logger.info("report of this training run: %s", path)


def _await_end(parent: int) -> str:
    """Return the word of the training process, empty if it ended without one."""
    words, ended = list[str](), threading.Event()

    def listen() -> None:
        words.append(sys.stdin.readline().strip())
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    while not ended.wait(_LOOK_S) and os.getppid() == parent:
        pass
    return words[0] if words else ""


def build(order: Order) -> Result:
    """Wait for the other ranks as long as the order allows, and write the report of those that are there."""
    gathered = gather(order.traces, order.record, ranks=order.ranks, since_ns=order.since_ns, wait_s=order.wait_s)
    warnings = tuple(warnings_about(gathered, order.wait_s))
    if not gathered.files:
        return Result(problems=("no report: no rank left a trace",))
    try:
        result = _written(order, gathered, warnings)
    except HtaReportError as error:
        return Result(problems=(*warnings, f"no report: {error}"))
    except Exception as error:  # noqa: BLE001  there is nobody to catch it
        reason = f"no report: {type(error).__name__}: {error}; the traces are in {order.traces}"
        return Result(problems=(*warnings, reason))
    if gathered.is_complete:  # Else a rank may still come to write its own.
        for record in gathered.records:
            with contextlib.suppress(OSError):
                record.remove(order.traces)
    return result


def _written(order: Order, gathered: Gathered, warnings: tuple[str, ...]) -> Result:
    from htareport.files.output import write_all  # noqa: PLC0415  ditto
    from htareport.run.executors import default_jobs, make_executor, raw_sizes  # noqa: PLC0415  loaded when needed
    from htareport.run.runner import analyze  # noqa: PLC0415  ditto

    jobs = min(default_jobs(raw_sizes(gathered.files.values())), len(gathered.files))
    title = order.title or Path(order.directory).resolve().name
    with make_executor(jobs) or contextlib.nullcontext() as executor:
        report = analyze(gathered.files, executor=executor, title=title)
    report = replace(report, warnings=(*warnings, *report.warnings))
    written, problems = list[str](), list(warnings)
    for path, error in write_all(report, (Path(order.directory) / output for output in order.outputs)):
        if error is None:
            written.append(str(path))
        else:
            problems.append(str(error))
    if order.index:
        problems.extend(_update_index(Path(order.index)))
    return Result(tuple(written), tuple(problems))


def _update_index(folder: Path) -> Iterator[str]:
    """Write the page over all runs anew; whatever goes wrong there costs only that page."""
    from htareport.deliver.index import overview  # noqa: PLC0415  ditto
    from htareport.files.output import write_bytes  # noqa: PLC0415  ditto

    try:
        page = folder / "index.html"
        write_bytes(page, overview(folder, page).page.encode())
    except HtaReportError as error:
        yield f"the index of runs was not written: {error}"


def warnings_about(gathered: Gathered, wait_s: float) -> Iterator[str]:
    """Yield warnings about ranks whose traces are missing or incomplete."""
    if gathered.missing:
        yield (
            f"{_ranks(gathered.missing)} left no trace within {wait_s:g} s after training: "
            "killed, or ended before the profiled steps did"
        )
    if gathered.unfinished:
        yield f"{_ranks(gathered.unfinished)} did not come to a proper end: traces that came later are not in here"


def _ranks(ranks: Sequence[int]) -> str:
    suffix = f" and {len(ranks) - _MAX_RANKS} more" if len(ranks) > _MAX_RANKS else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:_MAX_RANKS]))}{suffix}"
