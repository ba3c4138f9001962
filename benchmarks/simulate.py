"""The report of thousands of ranks: those of a folder many times over, each with times and a clock of its own.

    python benchmarks/simulate.py FOLDER --ranks 10000 --figures figures.json -o report.html -o report.json

The figures, also printed: ranks, bytes of a rank's summary, and the seconds of CPU to combine and to write. As in a
real run workers send the summaries, so that time and memory are those of the process that combines; what workers do is
left out, since it takes each rank the same.
"""

from __future__ import annotations

import argparse
import json
import pickle
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd

from htareport.algorithms.frame_packing import pack
from htareport.analyses import discover
from htareport.files.output import write
from htareport.rules import discover as discover_rules
from htareport.run.runner import Work, combined, summarize
from htareport.run.summaries import RankSummary
from htareport.trace import Trace

STAMPS = {"start", "end", "ts", "first", "last"}
TIMES = {
    "time", "span", "compute", "exposed_comm", "exposed_memory", "idle", "busy", "comm", "memory", "overlap", "exposed",
    "sum", "mean", "min", "max", "self", "total", "cpu", "delay", "path", "window", "op_delay", "launch_delay",
}  # fmt: skip
_AT_ONCE = 16  # Ranks that a worker sends together.
STRAGGLERS = 1000  # One rank in so many is slower than the others.


class Ranks:
    """Makes summaries of so many ranks out of some known ones; in a worker, from where they travel as real ones do."""

    here: Ranks  # The one of this worker.

    def __init__(self, known: list[RankSummary], ranks: int) -> None:
        self.frames = [{name: packed.frames() for name, packed in each.frames.items()} for each in known]
        self.sent = [pickle.dumps(replace(each, frames={})) for each in known]
        self.ranks = ranks

    @classmethod
    def start(cls, known: list[RankSummary], ranks: int) -> None:
        """Begin a worker."""
        cls.here = cls(known, ranks)

    def made(self, rank: int) -> RankSummary:
        """Return one rank's summary, with times and a clock of its own."""
        summary = pickle.loads(self.sent[rank % len(self.sent)])  # noqa: S301  our own, from above
        random = np.random.default_rng(rank)
        slower = random.normal(1, 0.02) * (1.2 if rank % STRAGGLERS == STRAGGLERS // 2 else 1)
        clock, late = int(random.normal(0, 200_000)), int(abs(random.normal(0, 20_000)) * slower)
        start = summary.facts.start_ns + clock
        summary.rank, summary.evidence.rank = rank, rank
        summary.facts = replace(summary.facts, rank=rank, world_size=self.ranks, start_ns=start)
        for name, own in self.frames[rank % len(self.frames)].items():
            summary.frames[name] = pack({key: _changed(frame, slower, clock, late) for key, frame in own.items()})
        for code, found in summary.evidence.found.items():
            spans = tuple(replace(span, rank=rank) for span in found.spans)
            summary.evidence.found[code] = replace(found, spans=spans)
        return summary


def made(rank: int) -> RankSummary:
    """Return one rank's summary from the worker that this runs in."""
    return Ranks.here.made(rank)


def _changed(frame: pd.DataFrame, slower: float, clock: int, late: int) -> pd.DataFrame:
    """The frame with other times; collectives start later and end when they did."""
    is_call, made = {"start", "dur", "ordinal"} <= set(frame.columns), frame.copy(deep=False)
    for name in {*STAMPS, *TIMES, "dur"} & set(frame.columns):
        values = frame[name].to_numpy()
        if values.dtype.kind not in "if":
            continue
        if name in STAMPS:
            made[name] = values + clock + (late if is_call else 0)
        elif is_call and name == "dur":
            made[name] = np.maximum(values - late, 0)
        elif name in TIMES:
            made[name] = (values * slower).astype(values.dtype)
    return made


def main() -> None:
    """Read the folder, make the ranks, combine them and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--ranks", type=int, default=10_000)
    parser.add_argument("-o", dest="output", action="append", type=Path, default=[])
    parser.add_argument("--figures", type=Path, help="a file for the figures")
    options = parser.parse_args()
    trace = Trace.open(options.folder)
    work = Work(discover(), discover_rules(), ranks=options.ranks)
    known = [summarize(rank, files, work) for rank, files in trace.files.items()]
    largest = max(len(pickle.dumps(each)) for each in known)
    trace = replace(trace, files={rank: Path(f"rank{rank}.json") for rank in range(options.ranks)})
    clock = time.process_time()
    with ProcessPoolExecutor(1, get_context("spawn"), Ranks.start, (known, options.ranks)) as pool:
        found = pool.map(made, range(options.ranks), chunksize=_AT_ONCE)
        report = combined(trace, work, found, f"{options.ranks:,} ranks")
    seconds = {"combine": time.process_time() - clock}
    for path in options.output:
        clock = time.process_time()
        write(report, path)
        seconds[path.suffix[1:]] = time.process_time() - clock
    figures = json.dumps({"ranks": options.ranks, "summary": largest, "seconds": seconds})
    if options.figures:
        options.figures.write_text(figures)
    print(figures)


if __name__ == "__main__":
    main()
