"""Options of `htareport counters` and `htareport critical-path`, which write copies of the traces of every rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from htareport.cli import console, opening
from htareport.cli.config import CACHING, READING, command_line_options, report_options
from htareport.errors import HtaReportError, NothingToReadError, OutputError, TraceFileError, UsageError, printable
from htareport.files.locations import located, paths_of, shown, size_of
from htareport.run.executors import Files

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
class Copied(opening.RankResult):
    """The copies of one rank's files, the reason if there are none, and problems."""

    written: tuple[Path, ...] = ()
    nothing: str = ""
    salvaged: tuple[str, ...] = ()
    absent: bool = False  # The rank has no such step or annotation.
    failed: str = ""


def run(arguments: Namespace, task: Task, nothing: str) -> int:
    """Write the copies of every rank and print their names; `nothing` says why a rank has none."""
    names = ("ranks", "jobs", "executor", *READING, *CACHING)
    options = report_options(command_line_options(arguments, names))
    trace = opening.open_trace(arguments.source, options)
    from htareport.export.files import CopyFolder

    inputs = [path for paths in trace.files.values() for path in paths_of(paths)]
    folder = CopyFolder(arguments.output, inputs, redact=not options.no_redact)
    settings = (folder.absolute(), task, nothing, trace.options)
    results = opening.results_by_rank(Copied, _copy, trace, options, *settings, quiet=arguments.quiet)
    return _print_results(trace, results, arguments)


def _copy(  # noqa: PLR0913, PLR0917  arguments that all ranks share are sent with each
    rank: int, paths: Files, folder: CopyFolder, task: Task, nothing: str, read_options: ReadOptions
) -> Copied:
    """Load a rank and write its copies. Problems are returned, not raised, as it may run in another process."""
    from htareport.export.numbered import load_numbered

    try:
        trace = load_numbered(rank, paths, options=read_options)
        errors = tuple(f"{name}: not used: {reason}" for name, reason in trace.problems)
        written = tuple(task(trace, folder))
        missing = "" if written else f"rank {rank}: no copy: {nothing}"
        return Copied(rank, errors, written, missing, trace.salvaged)
    except TraceFileError as error:
        return Copied(rank, errors=(str(error) if isinstance(paths, tuple) else f"{printable(paths.name)}: {error}",))
    except ValueError as error:  # There is no such step, or no such annotation.
        return Copied(rank, nothing=f"rank {rank}: no copy: {error}", absent=True)
    except HtaReportError as error:
        return Copied(rank, failed=str(error))
    except OSError as error:  # For example a file that was deleted after it was read.
        return Copied(rank, errors=(f"rank {rank}: {error.strerror or error}",))


def _print_results(trace: Trace, results: Sequence[Copied], arguments: Namespace) -> int:
    from htareport.rank.summary import left_out_warnings

    errors = [f"{name}: {reason}" for name, reason in trace.unusable]
    errors += [text for result in results for text in result.errors]
    failed = [result.failed for result in results if result.failed]
    warnings = [*trace.warnings, *(text for result in results for text in result.salvaged)]
    warnings += [result.nothing for result in results if result.nothing]
    console.problems([*errors, *failed], [*warnings, *left_out_warnings(trace.left_out)])
    for result in results:
        for path in result.written if not arguments.quiet else ():
            console.out(f"{shown(located(arguments.output) / path.name)}  {console.size(size_of(path))}")
    if failed:
        return OutputError.exit_code
    if not any(result.written or result.nothing for result in results):
        return NothingToReadError.exit_code
    if all(result.absent for result in results):
        return UsageError.exit_code
    return opening.EXIT_PARTIAL if errors and not arguments.allow_partial else 0
