"""Speed and memory beside others on the same files, and how they grow with the file and with the ranks.

Machines are shared and their clocks change, so figures are ratios of runs of the same round, with the median and the
range over the rounds. Times are CPU seconds of all processes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import linear_regression, median
from typing import TypeAlias

import numpy as np
from groups import MEGABYTE, Setup
from inputs import raw_size, traces
from measure import Command, CommandFailedError, Run, Runs, htareport, run
from rivals import LOAD, RAW, hta_interpreter, loaders
from table import Grid, Line

REPORT = "htareport, whole report"
MOST_CPU_S, MOST_BYTES = 60, 10e9  # Others are measured for as long as one run takes no more.

Measured: TypeAlias = Mapping[str, Mapping[int, Runs]]  # Name: raw bytes: its runs.
Part: TypeAlias = Callable[[Run], float]


def cpu(once: Run) -> float:
    """CPU seconds of a run."""
    return once.cpu


def peak(once: Run) -> float:
    """Peak memory of a run in bytes."""
    return once.peak


def growth(setup: Setup) -> Iterator[Line | Grid]:
    """Load and report one rank of each size, and load it with others."""
    files = [traces(setup.inputs.big(size))[0] for size in setup.sizes]
    sizes = [raw_size(path) for path in files]
    python, hta = hta_interpreter(setup.hta_python, setup.inputs.data)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.html"
        commands = {
            size: loaders(path, python) | {REPORT: htareport("report", path, "-j", "1", "-o", report)}
            for size, path in zip(sizes, files, strict=True)
        }
        found, reasons = _rounds(commands, setup.rounds)
    yield Line("rounds", f"{setup.rounds}, in each every command once")
    yield Line("HTA", hta)
    yield from (Line(name, reason) for name, reason in reasons.items())
    shared = [size for size in sizes if all(size in runs for runs in found.values())]
    if shared:
        yield _beside(found, shared[-1])
    if len(sizes) > 1:
        yield _grown(found, sizes, "CPU", cpu, "s")
        yield _grown(found, sizes, "Peak memory", peak, "MB")


def ranks(setup: Setup) -> Iterator[Line | Grid]:
    """Report jobs of more and more ranks of the same size, in one process."""
    counts = setup.job_ranks
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.html"
        commands = {
            count: {REPORT: htareport("report", setup.inputs.big(setup.rank_size, count), "-j", "1", "-o", report)}
            for count in counts
        }
        runs = _rounds(commands, setup.rounds)[0][REPORT]
    one = runs[counts[0]]
    rows = [
        (
            f"{count:,}",
            f"{runs[count].cpu:.1f} s",
            _ratio(runs[count], one, cpu),
            f"{runs[count].peak / MEGABYTE:,.0f} MB",
            _ratio(runs[count], one, peak),
        )
        for count in counts
    ]
    first = f"{counts[0]:,} rank{'s' if counts[0] > 1 else ''}"
    head = (f"ranks of {setup.rank_size[:-1]} {setup.rank_size[-1]}B", "CPU", f"÷ {first}", "peak memory", f"÷ {first}")
    yield Grid(f"Whole report with -j 1, by the number of ranks ({setup.rounds} rounds)", head, rows)
    if len(counts) > 1:
        yield Line("growth exponent of CPU", _exponent(runs, counts, cpu))
        yield Line("growth exponent of peak memory", _exponent(runs, counts, peak))


def _rounds(commands: Mapping[int, Mapping[str, Command]], rounds: int) -> tuple[Measured, dict[str, str]]:
    """Run all commands of all sizes, the smallest first, once a round; return the runs, and why some have none.

    A loader of others stops at the size at which it fails, or which would take too much, as far as the last one tells.
    """
    found, reasons = {name: dict[int, Runs]() for name in next(iter(commands.values()))}, dict[str, str]()
    for _ in range(rounds):
        for size, each in commands.items():
            for name, command in each.items():
                own, known = name.startswith("htareport") or name == RAW, found[name]
                if size not in known and not own:
                    if name not in reasons and _too_much(known, size):
                        reasons[name] = f"left out from {size / MEGABYTE:,.0f} MB on: over {MOST_CPU_S} s or 10 GB"
                    if name in reasons:
                        continue
                try:
                    known.setdefault(size, Runs()).runs.append(run(command))
                except CommandFailedError as error:
                    if own:
                        raise
                    del known[size]
                    reasons[name] = f"failed at {size / MEGABYTE:,.0f} MB: {str(error).strip().splitlines()[-1]}"
    return found, reasons


def _too_much(known: Mapping[int, Runs], size: int) -> bool:
    last = max((each for each in known if each < size), default=0)
    if not last:
        return False
    return known[last].cpu * size / last > MOST_CPU_S or known[last].peak * size / last > MOST_BYTES


def _beside(found: Measured, size: int) -> Grid:
    """All on the same file."""
    own = found[LOAD][size]
    rows = [
        (
            name,
            f"{runs[size].cpu:.2f} s",
            f"{size / MEGABYTE / runs[size].cpu:,.0f} MB/s",
            "1" if name == LOAD else _ratio(runs[size], own, cpu),
            f"{runs[size].peak / MEGABYTE:,.0f} MB",
            "1" if name == LOAD else _ratio(runs[size], own, peak),
        )
        for name, runs in sorted(found.items(), key=lambda each: each[1][size].cpu)
    ]
    head = (f"{size / MEGABYTE:,.0f} MB of JSON", "CPU", "speed", "CPU ÷ load", "peak memory", "memory ÷ load")
    return Grid("The same file, one rank", head, rows)


def _grown(found: Measured, sizes: Sequence[int], title: str, part: Part, unit: str) -> Grid:
    """One row for each candidate, one column for each size, and the exponent of growth."""

    def cell(runs: Mapping[int, Runs], size: int) -> str:
        if size not in runs:
            return "–"
        value = median(map(part, runs[size].runs))
        return f"{value:.1f} s" if unit == "s" else f"{value / MEGABYTE:,.0f} MB"

    rows = [
        (name, *(cell(runs, size) for size in sizes), _exponent(runs, sorted(runs), part))
        for name, runs in found.items()
    ]
    head = ("one rank", *(f"{size / MEGABYTE:,.0f} MB" for size in sizes), "exponent")
    return Grid(f"{title}, by raw size", head, rows)


def _exponent(runs: Mapping[int, Runs], sizes: Sequence[int], part: Part) -> str:
    """Slope of the logarithm over that of the size, of each round: 1 is growth in proportion, 0 is none."""
    if len(sizes) < 2:  # noqa: PLR2004  a slope takes two points
        return "–"
    logs = np.log(sizes).tolist()
    rounds = zip(*(runs[size].runs for size in sizes), strict=True)
    return _spread([linear_regression(logs, np.log([part(once) for once in each]).tolist()).slope for each in rounds])


def _ratio(runs: Runs, base: Runs, part: Part) -> str:
    """How many times that of the base, in the same round."""
    return _spread([part(one) / part(other) for one, other in zip(runs.runs, base.runs, strict=True)])


def _spread(values: Sequence[float]) -> str:
    """Median and range."""
    return f"{median(values):.2f} ({min(values):.2f}–{max(values):.2f})"
