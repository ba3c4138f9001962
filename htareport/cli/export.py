"""`htareport counters` and `htareport critical-path`: their options, and writing copies of the files of every rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from htareport.cli import console, opening
from htareport.cli.config import CACHING, READING, report_options
from htareport.errors import HtaReportError, NothingToReadError, OutputError, TraceFileError, UsageError, printable
from htareport.files.locations import located, paths_of, shown, size_of
from htareport.run.executors import Files, over_ranks

if TYPE_CHECKING:
    from argparse import Namespace

    from htareport.export.files import CopyFolder
    from htareport.rank.rank import Rank
    from htareport.reading.sources.job import Trace
    from htareport.trace import ReadOptions

COUNTERS_EPILOG = """\
examples:
  htareport counters traces/ -o with-counters
  htareport counters traces/ -o with-counters --ranks 0,3

The copies have the tracks "Queue Length" (launched, not started; one for each stream) and "Memcpy BW" (GB/s; one for
each kind of copy). A rank that has neither gets no copy.
"""
PATH_EPILOG = """\
examples:
  htareport critical-path traces/ -o with-path
  htareport critical-path traces/ -o with-path --rank 3 --step 12
  htareport critical-path traces/ -o with-path --annotation forward --instance 1

Events on the path have the argument critical = 1, and arrows named critical_path go along it: launches, waits, and from
one operator to the next. `htareport explain critical_path` says how the path is found.
"""
EXIT_PARTIAL = 4
STATUS = (
    "\nExit status: 0 done, 4 a trace file could not be used (0 with --allow-partial), 5 a copy could not be written."
)
Task = Callable[["Rank", "CopyFolder"], list[Path]]
Adder = Callable[..., None]


def add_commands(commands: Any, traces_help: str, add_reading_options: Adder, add_common_options: Adder) -> None:
    """Describe the two commands."""
    counters = commands.add_parser(
        "counters", help="write copies of the traces with queue length and memory bandwidth as counter tracks",
        description="Write copies of trace files with counter tracks, for Perfetto or chrome://tracing.",
        epilog=COUNTERS_EPILOG + STATUS,
    )  # fmt: skip
    path = commands.add_parser(
        "critical-path", help="write copies of the traces with the critical path marked",
        description="Write copies of trace files with the critical path of a step marked, for Perfetto.",
        epilog=PATH_EPILOG + STATUS,
    )  # fmt: skip
    for command in (counters, path):
        command.set_defaults(parser=command)
        add = command.add_argument
        add("source", metavar="TRACES", help=traces_help)
        add("-o", "--output", metavar="DIR", required=True, help="folder for the copies, made if it is not there; not "
            "that of the traces")  # fmt: skip
        add("--allow-partial", action="store_true", help="exit 0, not 4, if a trace file could not be used")
        add_reading_options(command)
    path.add_argument("--rank", metavar="R", help="only this rank (default: all, each with a path of its own)")
    which = path.add_mutually_exclusive_group()
    which.add_argument("--step", metavar="N", type=int, help="this step (default: the rank's step of median length)")
    which.add_argument("--annotation", metavar="NAME", default="", help="host rows that have this in their name")
    path.add_argument("--instance", metavar="I", type=int, default=0, help="which of them, from 0 (default)")
    path.add_argument("--only-critical", action="store_true", help="leave out other events but annotations and Python")
    path.add_argument("--all-edges", action="store_true", help="arrows off the path, too")
    add_common_options(counters, path)


@dataclass(frozen=True)
class Copied:
    """What came of one rank: the copies, why there are none, what was salvaged, what could not be used or written."""

    rank: int
    written: tuple[Path, ...] = ()
    nothing: str = ""
    salvaged: tuple[str, ...] = ()
    absent: bool = False  # What was asked for is not on the rank.
    errors: tuple[str, ...] = ()
    failed: str = ""


def run(arguments: Namespace, task: Task, nothing: str) -> int:
    """Write the copies of every rank and print their names; `nothing` says what a rank without any lacks."""
    names = ("ranks", "jobs", "executor", *READING, *CACHING)
    options = report_options({name: value for name in names if (value := getattr(arguments, name)) is not None})
    trace = opening.open_trace(arguments.source, options)
    from htareport.export.files import CopyFolder

    inputs = [path for paths in trace.files.values() for path in paths_of(paths)]
    folder = CopyFolder(arguments.output, inputs, redact=not options.no_redact)
    copied = list[Copied]()
    with (
        opening.executor(trace, options) as executor,
        console.progress(trace.label, quiet=arguments.quiet) as progress,
    ):
        work = (folder.absolute(), task, nothing, trace.options)
        for each in over_ranks(_copy, trace.files, executor, _failed, *work):
            copied.append(each)
            if progress:
                progress(len(copied), len(trace.files), f"rank {each.rank}")
    copied.sort(key=lambda each: each.rank)
    return _print(trace, copied, arguments)


def _copy(  # noqa: PLR0913, PLR0917  what is the same for every rank is bound to it
    rank: int, paths: Files, folder: CopyFolder, task: Task, nothing: str, how: ReadOptions
) -> Copied:
    """Load a rank and write its copies. What is wrong with files is told, not raised: it may run in another process."""
    from htareport.export.numbered import load_numbered

    try:
        trace = load_numbered(rank, paths, options=how)
        errors = tuple(f"{name}: not used: {reason}" for name, reason in trace.problems)
        written = tuple(task(trace, folder))
        missing = "" if written else f"rank {rank}: no copy: {nothing}"
        return Copied(rank, written, missing, trace.salvaged, errors=errors)
    except TraceFileError as error:
        return Copied(rank, errors=(str(error) if isinstance(paths, tuple) else f"{printable(paths.name)}: {error}",))
    except ValueError as error:  # There is no such step, or no such annotation.
        return Copied(rank, nothing=f"rank {rank}: no copy: {error}", absent=True)
    except HtaReportError as error:
        return Copied(rank, failed=str(error))
    except OSError as error:  # A file that is gone since it was read, say.
        return Copied(rank, errors=(f"rank {rank}: {error.strerror or error}",))


def _failed(rank: int, reason: str) -> Copied:
    return Copied(rank, errors=(f"rank {rank}: {reason}",))


def _print(trace: Trace, copied: Sequence[Copied], arguments: Namespace) -> int:
    from htareport.rank.summary import left_out_warnings

    errors = [f"{name}: {reason}" for name, reason in trace.unusable]
    errors += [text for each in copied for text in each.errors]
    failed = [each.failed for each in copied if each.failed]
    warnings = [*trace.warnings, *(text for each in copied for text in each.salvaged)]
    warnings += [each.nothing for each in copied if each.nothing]
    console.problems([*errors, *failed], [*warnings, *left_out_warnings(trace.left_out)])
    for each in copied:
        for path in each.written if not arguments.quiet else ():
            console.out(f"{shown(located(arguments.output) / path.name)}  {console.size(size_of(path))}")
    if failed:
        return OutputError.exit_code
    if not any(each.written or each.nothing for each in copied):
        return NothingToReadError.exit_code
    if all(each.absent for each in copied):
        return UsageError.exit_code
    return EXIT_PARTIAL if errors and not arguments.allow_partial else 0
