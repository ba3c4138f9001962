"""`htareport validate`: what is in each trace file, and what is missing for which analysis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from htareport.cli import console, opening
from htareport.cli.config import CACHING, report_options
from htareport.errors import NothingToReadError, TraceFileError, printable
from htareport.files.locations import paths_of
from htareport.run.executors import Files, over_ranks

if TYPE_CHECKING:
    from argparse import Namespace

    from htareport.rank.capability import Capability
    from htareport.reading.sources.job import Trace
    from htareport.trace import ReadOptions

EXIT_PARTIAL = 4


@dataclass(frozen=True)
class Checked:
    """What was found in the files of one rank; `errors` name those that cannot be used."""

    rank: int
    size: int = 0
    events: int | None = None  # None: no file can be used.
    devices: int = 0
    steps: int = 0
    capabilities: frozenset[Capability] = frozenset()
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


def run(arguments: Namespace) -> int:
    """Print the tables; return the exit status."""
    names = ("ranks", "jobs", "executor", "salvage", "max_bytes", *CACHING)
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    options = report_options(given)
    trace = opening.open_trace(arguments.source, options)
    with (
        opening.executor(trace, options) as executor,
        console.progress(trace.label, quiet=arguments.quiet) as progress,
    ):
        checked = list[Checked]()
        for each in over_ranks(check, trace.files, executor, _failed, trace.options):
            checked.append(each)
            if progress:
                progress(len(checked), len(trace.files), f"rank {each.rank}")
    checked.sort(key=lambda each: each.rank)
    return _print(trace, checked)


def check(rank: int, paths: Files, options: ReadOptions | None = None) -> Checked:
    """Read one rank. Never raises: it runs in another process."""
    from htareport.trace import RankTrace

    try:
        check = RankTrace.load(rank, paths, options=options)
        return Checked(
            rank,
            size=sum(capture.size for capture in check.captures),
            events=len(check.events),
            devices=len(check.devices),
            steps=len(check.steps),
            capabilities=check.capabilities,
            warnings=tuple(check.warnings),
            errors=tuple(f"{name}: not used: {reason}" for name, reason in check.problems),
        )
    except TraceFileError as error:
        return Checked(rank, errors=(str(error) if isinstance(paths, tuple) else f"{printable(paths.name)}: {error}",))
    except MemoryError:
        return Checked(rank, errors=(f"rank {rank}: not enough memory for it (fewer processes, -j, need less)",))
    except Exception as error:  # noqa: BLE001  A fault of ours with one file shall not hide the others.
        return Checked(rank, errors=(f"rank {rank}: internal error: {type(error).__name__}: {error}",))


def _failed(rank: int, reason: str) -> Checked:
    return Checked(rank, errors=(f"rank {rank}: {reason}",))


def _print(trace: Trace, checked: Sequence[Checked]) -> int:
    from htareport.rank.summary import left_out_warnings

    rows = [_row(each, trace.files[each.rank]) for each in checked]
    console.table(("rank", "file", "size", "events", "devices", "steps", "usable"), rows, frozenset({0, 2, 3, 4, 5}))
    usable = [each for each in checked if each.events is not None]
    if usable:
        _print_missing(usable)
    errors = [f"{name}: {reason}" for name, reason in trace.unusable]
    errors += [text for each in checked for text in each.errors]
    warnings = [*trace.warnings, *(text for each in checked for text in each.warnings)]
    warnings += left_out_warnings(trace.left_out)
    console.problems(errors, list(dict.fromkeys(warnings)), limit=None)
    if not usable:
        return NothingToReadError.exit_code
    return EXIT_PARTIAL if errors else 0


def _name(paths: Files) -> str:
    first, *others = paths_of(paths)
    return f"{first.name} and {len(others)} more" if others else first.name


def _row(each: Checked, paths: Files) -> tuple[str, ...]:
    name = _name(paths)
    if each.events is None:
        return (str(each.rank), name, "", "", "", "", "no")
    size = console.size(each.size) if each.size else ""  # Unknown inside an archive.
    usable = "in part" if each.errors else "with warnings" if each.warnings else "yes"
    counts = (f"{number:,}" for number in (each.events, each.devices, each.steps))
    return (str(each.rank), name, size, *counts, usable)


def _print_missing(usable: Sequence[Checked]) -> None:
    from htareport.analyses import analysis_classes
    from htareport.report.number_lists import listed

    lacking: dict[Capability, list[int]] = {}
    needed: Mapping[str, frozenset[Capability]] = {name: each.requires for name, each in analysis_classes().items()}
    for capability in sorted(frozenset().union(*needed.values())):
        if ranks := [each.rank for each in usable if capability not in each.capabilities]:
            lacking[capability] = ranks
    console.out("")
    if not lacking:
        console.out("Nothing is missing: every analysis can run.")
        return
    rows = [
        (", ".join(name for name, requires in needed.items() if capability in requires),
         "all" if len(ranks) == len(usable) else listed(ranks), str(capability))
        for capability, ranks in lacking.items()
    ]  # fmt: skip
    console.table(("cannot run", "on ranks", "because"), rows)
