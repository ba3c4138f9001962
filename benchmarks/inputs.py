"""Traces to measure with, made by a generator outside this repository and kept for the next run."""

from __future__ import annotations

import gzip
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


class MissingGeneratorError(Exception):
    """The script that makes big traces is not where it was looked for."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Makes folders of traces below `data` with the script `generator`."""

    generator: Path
    data: Path

    def big(self, size: str, ranks: int = 1) -> Path:
        """Return a folder with ranks of `size` raw bytes each, with stacks and shapes."""
        options = ["--ranks", str(ranks), "--size", size, "--with-stack", "--record-shapes"]
        return self._folder(f"big-{size}-{ranks}", options)

    def small(self, ranks: int) -> Path:
        """Return a folder with many ranks that are soon read."""
        return self._folder(f"small-{ranks}", ["--ranks", str(ranks), "--steps", "2", "--layers", "1"])

    def _folder(self, name: str, options: list[str]) -> Path:
        folder = self.data / name
        done = self.data / f"{name}.done"  # Written last, so that an interrupted run starts again.
        if not done.exists():
            if not self.generator.exists():
                raise MissingGeneratorError(
                    f"no trace generator at {self.generator}: name one with --generator (a script that takes an output "
                    "folder, --ranks, --steps, --layers, --size, --with-stack, --record-shapes and --gzip)"
                )
            print(f"making {name} …", file=sys.stderr)
            command = [sys.executable, str(self.generator), str(folder), *options, "--gzip"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            done.touch()
        return folder


def traces(folder: Path) -> list[Path]:
    """Return the trace files of a folder."""
    return sorted(folder.glob("*.json.gz"))


def raw_size(path: Path) -> int:
    """Return how many bytes a file unpacks to."""
    size = 0
    with gzip.open(path) as file:
        while block := file.read(1 << 22):
            size += len(block)
    return size
