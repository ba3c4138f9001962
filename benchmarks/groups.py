"""What is measured: each function makes the lines of one group."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from inputs import Inputs, raw_size, traces
from measure import ROOT, Command, htareport, interleaved, run
from rivals import LOAD, hta_interpreter, loader, loaders
from table import Line, at_least, at_most

EXAMPLES = ROOT / "examples" / "traces"
MEGABYTE = 1e6

REFERENCE_SPEED = 0.8  # Least speed of the loader ÷ that of the reference.
PEAK_OVER_RAW = 0.45
REPORT_OVER_LOAD, REPORT_EXTRA_S = 1.5, 1.5
FOUR_RANKS_OVER_ONE = 2.4
EXAMPLE_S, HELP_S = 2.5, 0.3
REPORT_MEGABYTES, JSON_MEGABYTES = 2.5, 20
SUMMARY_KILOBYTES, COMBINE_S, PARENT_MEGABYTES = 100, 60, 1000  # Of very many ranks.


@dataclass(frozen=True, slots=True)
class Setup:
    """What the command line chose."""

    inputs: Inputs
    reference: Path
    hta_python: str
    size: str
    ranks: tuple[int, ...]
    simulated: int
    rounds: int
    sizes: tuple[str, ...]
    rank_size: str
    job_ranks: tuple[int, ...]


def load(setup: Setup) -> Iterator[Line]:
    """Time the loading of one big rank, links included, beside other loaders. Speeds are compared by CPU time."""
    path = traces(setup.inputs.big(setup.size))[0]
    raw = raw_size(path)
    python, hta = hta_interpreter(setup.hta_python, setup.inputs.data)
    commands = loaders(path, python)
    if setup.reference.exists():
        commands["reference"] = loader("reference", path, str(setup.reference.resolve()))
    results = interleaved(commands, setup.rounds)
    yield Line("input", f"{raw / MEGABYTE:,.0f} MB of JSON, {path.stat().st_size / MEGABYTE:,.0f} MB packed")
    own = results[LOAD]
    for name, runs in results.items():
        yield Line(name, f"{runs}, {raw / MEGABYTE / runs.cpu:,.0f} MB/s")
    for name, runs in results.items():
        note = f"by wall {runs.wall / own.wall:.2f}, in 1/{runs.peak / own.peak:.2f} of the memory"
        if name == "reference":
            yield at_least("speed ÷ reference", runs.cpu / own.cpu, REFERENCE_SPEED, note=note)
        elif name != LOAD:
            yield Line(f"speed ÷ {name}", f"{runs.cpu / own.cpu:.2f} · {note}")
    if "reference" not in results:
        yield Line("reference", f"left out: no {setup.reference} (name one with --reference)")
    yield Line("HTA", hta)
    yield at_most("peak memory ÷ raw size", own.peak / raw, PEAK_OVER_RAW)


def whole(setup: Setup) -> Iterator[Line]:
    """Time the whole report of one big rank against its loading."""
    path = traces(setup.inputs.big(setup.size))[0]
    with tempfile.TemporaryDirectory() as folder:
        commands: dict[str, Command] = {
            "load": loader("htareport", path),
            "report -j 1": htareport("report", path, "-j", "1", "-o", Path(folder) / "report.html"),
        }
        results = interleaved(commands, setup.rounds)
    yield from (Line(name, str(runs)) for name, runs in results.items())
    limit = REPORT_OVER_LOAD * results["load"].wall + REPORT_EXTRA_S
    yield at_most("report -j 1", results["report -j 1"].wall, limit, " s", "limit: 1.5 × load + 1.5 s")


def parallel(setup: Setup) -> Iterator[Line]:
    """Time the report of four big ranks in two processes against one rank in one."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "report.html"
        commands = {
            "1 rank, -j 1": htareport("report", setup.inputs.big(setup.size), "-j", "1", "-o", output),
            "4 ranks, -j 2": htareport("report", setup.inputs.big(setup.size, 4), "-j", "2", "-o", output),
        }
        results = interleaved(commands, setup.rounds)
    yield from (Line(name, str(runs)) for name, runs in results.items())
    one, four = (runs.wall for runs in results.values())
    yield at_most("4 ranks ÷ 1 rank", four / one, FOUR_RANKS_OVER_ONE, note=f"{os.cpu_count()} cores")


def start(setup: Setup) -> Iterator[Line]:
    """Time the example report and the help."""
    with tempfile.TemporaryDirectory() as folder:
        commands = {
            "report examples/traces": htareport("report", EXAMPLES, "-o", Path(folder) / "report.html"),
            "--help": htareport("--help"),
        }
        results = interleaved(commands, max(5, setup.rounds))
    for (name, runs), limit in zip(results.items(), (EXAMPLE_S, HELP_S), strict=True):
        yield at_most(name, runs.wall, limit, " s", str(runs))


def size(setup: Setup) -> Iterator[Line]:
    """Weigh the report of jobs of different sizes."""
    with tempfile.TemporaryDirectory() as folder:
        for ranks in setup.ranks:
            path = Path(folder) / f"{ranks}.html"
            once = run(htareport("report", setup.inputs.small(ranks), "-o", path))
            note = f"made in {once.wall:.1f} s"
            yield at_most(f"report of {ranks:,} ranks", path.stat().st_size / MEGABYTE, REPORT_MEGABYTES, " MB", note)


def many(setup: Setup) -> Iterator[Line]:
    """Combine and draw a job of thousands of ranks, made of sixteen; what workers do is left out."""
    with tempfile.TemporaryDirectory() as folder:
        html, saved, figures = (Path(folder) / name for name in ("report.html", "report.json", "figures.json"))
        arguments = ["--ranks", str(setup.simulated), "--figures", str(figures), "-o", str(html), "-o", str(saved)]
        simulate = str(Path(__file__).parent / "simulate.py")
        once = run([sys.executable, simulate, str(setup.inputs.small(16)), *arguments])
        found = json.loads(figures.read_text())
        yield Line("ranks", f"{setup.simulated:,}")
        yield at_most("summary of a rank", found["summary"] / 1e3, SUMMARY_KILOBYTES, " KB")
        yield at_most("combine and draw", sum(found["seconds"].values()), COMBINE_S, " s", "CPU")
        yield at_most("peak memory", once.peak / MEGABYTE, PARENT_MEGABYTES, " MB")
        yield at_most("HTML", html.stat().st_size / MEGABYTE, REPORT_MEGABYTES, " MB")
        yield at_most("JSON", saved.stat().st_size / MEGABYTE, JSON_MEGABYTES, " MB")
