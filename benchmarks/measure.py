"""Measures commands: each run is a process of its own, and candidates take turns so that a busy minute hits all."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TypeAlias

ROOT = Path(__file__).resolve().parents[1]
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024

Command: TypeAlias = Sequence[str]


class CommandFailedError(Exception):
    """A measured command ended with an error; the message holds its last words."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run: wall time, user + system time of all its processes, and the peak memory of the largest."""

    wall: float
    cpu: float
    peak: int


@dataclass(slots=True)
class Runs:
    """The runs of one command."""

    runs: list[Run] = field(default_factory=list)

    @property
    def wall(self) -> float:
        """Median wall time."""
        return median(run.wall for run in self.runs)

    @property
    def cpu(self) -> float:
        """Median CPU time."""
        return median(run.cpu for run in self.runs)

    @property
    def peak(self) -> float:
        """Median peak memory."""
        return median(run.peak for run in self.runs)

    def __str__(self) -> str:
        walls = [run.wall for run in self.runs]
        wall = f"{self.wall:.2f} s ({min(walls):.2f}–{max(walls):.2f})"
        return f"{wall}, CPU {self.cpu:.2f} s, {self.peak / 1e6:,.0f} MB"


def htareport(*arguments: str | Path) -> list[str]:
    """Return the command line of htareport in this interpreter."""
    cache = ["--no-cache"] if "report" in arguments else []  # Every round does the same.
    return [sys.executable, "-m", "htareport", *map(str, arguments), *cache]


def run(command: Command) -> Run:
    """Run a command to its end."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    with tempfile.TemporaryFile() as errors:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=environment, cwd=ROOT)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            words = errors.read().decode(errors="replace")[-2000:]
            raise CommandFailedError(f"{' '.join(command)}\n{words}")
    return Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * _RSS_UNIT)


def interleaved(commands: Mapping[str, Command], rounds: int) -> dict[str, Runs]:
    """Run every command once a round."""
    results = {name: Runs() for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            results[name].runs.append(run(command))
    return results
