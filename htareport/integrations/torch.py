"""The report at the end of a PyTorch training run: a handler for torch.profiler, and the profiler with it in one line.

Each rank writes its traces into DIR/traces/; when the run ends, the lowest profiling rank has the report built from the
files of all. See `htareport.integrations.builder` for the process that builds it.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from htareport.errors import UsageError
from htareport.files.output import suffix_of
from htareport.integrations import framework
from htareport.integrations.handler import Options, ReportHandler, this_rank

__all__ = ["ReportHandler", "TrainingProfile", "profile_training", "report_handler"]

log = logging.getLogger(__name__)

WAIT_S = 60.0
BUILD_S = 600.0


def report_handler(  # noqa: PLR0913  the options of a report
    directory: str | os.PathLike[str],
    *,
    title: str = "",
    outputs: Sequence[str] = ("report.html",),
    wait_s: float = WAIT_S,
    build_s: float = BUILD_S,
    ranks: Collection[int] | None = None,
    index: str | os.PathLike[str] | None = None,
) -> ReportHandler:
    """Return a handler for `torch.profiler.profile(on_trace_ready=…)` that leaves a report when training ends.

    Every capture is written to `directory`/traces/. When the process of rank 0 ends (of the lowest of `ranks`, if these
    are given), the report is built from the captures of all ranks and written to `outputs`, relative to `directory`;
    their suffixes pick the formats. Other ranks have `wait_s` seconds to end, too; those that are missing then are
    named in the report and on the log. The process waits for its report, but at most `wait_s` + `build_s` seconds.
    A process that is killed gets its report as well. No other rank ever waits, and nothing is raised into the training.

    `index` is a folder of reports whose page over all runs, index.html, is kept current; a saved report (.json) is then
    among the outputs, named or not.

    Runs one after the other may share a directory; runs at the same time need one each.
    """
    names = (outputs,) if isinstance(outputs, str) else tuple(outputs)
    for name in names:
        suffix_of(name)
    if not names:
        raise UsageError("outputs: no file was named")
    if ranks is not None and not ranks:
        raise UsageError("ranks: none was named; None means all")
    profiled_ranks = None if ranks is None else frozenset(ranks)
    folder = None if index is None else Path(index).absolute()
    if folder and not any(suffix_of(name).startswith(".json") for name in names):
        names = (*names, "report.json")
    return ReportHandler(Options(Path(directory).absolute(), title, names, wait_s, build_s, profiled_ranks, folder))


def profile_training(  # noqa: PLR0913  the options of a profiler and of a report
    directory: str | os.PathLike[str],
    *,
    wait: int = 1,
    warmup: int = 1,
    active: int = 4,
    repeat: int = 1,
    title: str = "",
    outputs: Sequence[str] = ("report.html",),
    wait_s: float = WAIT_S,
    build_s: float = BUILD_S,
    ranks: Collection[int] | None = None,
    index: str | os.PathLike[str] | None = None,
    **profiler: Any,
) -> TrainingProfile:
    """Profile a few steps of the training in a `with` block and leave a report: `with … as prof:`, `prof.step()`.

    Of the steps, `wait` are passed over, `warmup` warm the profiler up and `active` are recorded, `repeat` times (0:
    again and again). The CPU and, where there is one, the GPU are recorded, with shapes; `profiler` are further options
    of torch.profiler.profile, such as with_stack=True. The others are those of `report_handler`. When the block ends,
    the report is built; a process that is alone waits for it there, of several ranks none does before its end.
    MissingFrameworkError without PyTorch.
    """
    torch = framework("profile_training", "torch.profiler")
    handler = report_handler(
        directory, title=title, outputs=outputs, wait_s=wait_s, build_s=build_s, ranks=ranks, index=index
    )
    options = {"record_shapes": True, "on_trace_ready": handler, **profiler}
    if "schedule" not in options:
        options["schedule"] = torch.schedule(wait=wait, warmup=warmup, active=active, repeat=repeat)
    if not handler.options.includes(this_rank()[0]):
        options["schedule"] = lambda _: torch.ProfilerAction.NONE
    return TrainingProfile(handler, lambda: torch.profile(**options))


class TrainingProfile:
    """What `profile_training` returns: the profiler and its handler as one context manager, also by start and stop."""

    def __init__(self, handler: ReportHandler, make_profiler: Callable[[], Any]) -> None:
        self.handler = handler
        self._make = make_profiler
        self._profiler: Any = None
        self._pid = 0

    def start(self) -> Any:
        """Start the profiler and return it. Should nobody stop it, it is stopped when the process ends."""
        self._profiler, self._pid = self._make(), os.getpid()
        self._profiler.__enter__()
        atexit.register(self.stop)  # Runs before the handler's, which was registered earlier.
        return self._profiler

    def step(self) -> None:
        """Say that a step has ended. Whatever goes wrong is logged, and the profiler stopped."""
        try:
            if self._profiler is not None:
                self._profiler.step()
        except Exception:
            log.warning("%s: profiling has ended", self.handler.options.directory, exc_info=True)
            self.stop()

    def stop(self) -> None:
        """Stop the profiler, with the report that is due; once is enough."""
        profiler, self._profiler = self._profiler, None
        if profiler is None or self._pid != os.getpid():
            return
        atexit.unregister(self.stop)
        try:
            profiler.__exit__(None, None, None)
        except Exception:
            log.warning("%s: the profiler did not stop", self.handler.options.directory, exc_info=True)
        self.handler.finish()

    def __enter__(self) -> Any:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def started(directory: str | os.PathLike[str], options: dict[str, Any]) -> TrainingProfile | None:
    """Return a profile that runs, for a callback; None, on the log with its reason, if the profiler does not start."""
    profile = profile_training(directory, **options)
    try:
        profile.start()
    except Exception:
        log.warning("%s: the profiler did not start", directory, exc_info=True)
        return None
    return profile
