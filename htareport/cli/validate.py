"""`htareport validate`: prints what is in each trace file, and what is missing for which analysis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from htareport.cli import console, opening
from htareport.cli.config import CACHING, command_line_options, report_options
from htareport.errors import NothingToReadError, TraceFileError, printable
from htareport.files.locations import paths_of
from htareport.run.executors import Files

if TYPE_CHECKING:
    from argparse import Namespace

    from htareport.rank.capability import Capability
    from htareport.reading.sources.job import Trace
    from htareport.trace import ReadOptions


@dataclass(frozen=True)
class Checked(opening.RankResult):
    """What is in the files of one rank."""

    size: int = 0
    events: int | None = None  # None: no file can be used.
    devices: int = 0
    steps: int = 0
    capabilities: frozenset[Capability] = frozenset()
    warnings: tuple[str, ...] = ()


def run(arguments: Namespace) -> int:
    """Print the tables; return the exit status."""
    names = ("ranks", "jobs", "executor", "salvage", "max_bytes", *CACHING)
    options = report_options(command_line_options(arguments, names))
    trace = opening.open_trace(arguments.source, options)
    results = opening.results_by_rank(Checked, check, trace, options, trace.options, quiet=arguments.quiet)
    return _print_results(trace, results)


def check(rank: int, paths: Files, options: ReadOptions | None = None) -> Checked:
    """Read one rank. Never raises, as it may run in another process."""
    from htareport.trace import RankTrace

    try:
        trace = RankTrace.load(rank, paths, options=options)
        return Checked(
            rank,
            size=sum(capture.size for capture in trace.captures),
            events=len(trace.events),
            devices=len(trace.devices),
            steps=len(trace.steps),
            capabilities=trace.capabilities,
            warnings=tuple(trace.warnings),
            errors=tuple(f"{name}: not used: {reason}" for name, reason in trace.problems),
        )
    except TraceFileError as error:
        return Checked(rank, errors=(str(error) if isinstance(paths, tuple) else f"{printable(paths.name)}: {error}",))
    except MemoryError:
        return Checked(rank, errors=(f"rank {rank}: not enough memory for it (fewer processes, -j, need less)",))
    except Exception as error:  # noqa: BLE001  a bug that one file triggers shall not hide the others
        return Checked(rank, errors=(f"rank {rank}: internal error: {type(error).__name__}: {error}",))


def _print_results(trace: Trace, results: Sequence[Checked]) -> int:
    from htareport.rank.summary import left_out_warnings

    rows = [_cells(result, trace.files[result.rank]) for result in results]
    console.table(("rank", "file", "size", "events", "devices", "steps", "usable"), rows, frozenset({0, 2, 3, 4, 5}))
    usable = [result for result in results if result.events is not None]
    if usable:
        _print_missing(usable)
    errors = [f"{name}: {reason}" for name, reason in trace.unusable]
    errors += [text for result in results for text in result.errors]
    warnings = [*trace.warnings, *(text for result in results for text in result.warnings)]
    warnings += left_out_warnings(trace.left_out)
    console.problems(errors, list(dict.fromkeys(warnings)), limit=None)
    if not usable:
        return NothingToReadError.exit_code
    return opening.EXIT_PARTIAL if errors else 0


def _name(paths: Files) -> str:
    first, *other_paths = paths_of(paths)
    return f"{first.name} and {len(other_paths)} more" if other_paths else first.name


def _cells(result: Checked, paths: Files) -> tuple[str, ...]:
    name = _name(paths)
    if result.events is None:
        return (str(result.rank), name, "", "", "", "", "no")
    size = console.size(result.size) if result.size else ""  # Unknown inside an archive.
    usable = "in part" if result.errors else "with warnings" if result.warnings else "yes"
    counts = (f"{number:,}" for number in (result.events, result.devices, result.steps))
    return (str(result.rank), name, size, *counts, usable)


def _print_missing(usable: Sequence[Checked]) -> None:
    from htareport.analyses import analysis_classes
    from htareport.report.number_lists import listed

    ranks_by_missing: dict[Capability, list[int]] = {}
    requirements: Mapping[str, frozenset[Capability]] = {
        name: result.requires for name, result in analysis_classes().items()
    }
    for capability in sorted(frozenset().union(*requirements.values())):
        if ranks := [result.rank for result in usable if capability not in result.capabilities]:
            ranks_by_missing[capability] = ranks
    console.out("")
    if not ranks_by_missing:
        console.out("Nothing is missing: every analysis can run.")
        return
    rows = [
        (", ".join(name for name, requires in requirements.items() if capability in requires),
         "all" if len(ranks) == len(usable) else listed(ranks), str(capability))
        for capability, ranks in ranks_by_missing.items()
    ]  # fmt: skip
    console.table(("cannot run", "on ranks", "because"), rows)
