"""The report of thousands of ranks: those of a folder many times over, each with times and a clock of its own.

    python benchmarks/simulate.py FOLDER --ranks 10000 --figures figures.json -o report.html -o report.json

The figures, also printed: ranks, bytes of a rank's summary, and the seconds of CPU to combine and to write. What
workers do is left out, since it takes each rank the same.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from htareport import render
from htareport.analyses import discover
from htareport.packed import pack
from htareport.rules import discover as discover_rules
from htareport.runner import Work, combined, summarize
from htareport.summaries import RankSummary
from htareport.trace import Trace

STAMPS = {"start", "end", "ts", "first", "last"}
TIMES = {
    "time", "span", "compute", "exposed_comm", "exposed_memory", "idle", "busy", "comm", "memory", "overlap", "exposed",
    "sum", "mean", "min", "max", "self", "total", "cpu", "delay", "path", "window", "op_delay", "launch_delay",
}  # fmt: skip
STRAGGLERS = 1000  # One rank in so many is slower than the others.


def like(known: list[RankSummary], ranks: int) -> Iterator[RankSummary]:
    """Yield summaries of so many ranks, as they would come from workers: nothing in them is shared."""
    frames = [{name: packed.frames() for name, packed in each.frames.items()} for each in known]
    sent = [pickle.dumps(replace(each, frames={})) for each in known]
    for rank in range(ranks):
        summary = pickle.loads(sent[rank % len(sent)])  # noqa: S301  our own, from above
        random = np.random.default_rng(rank)
        slower = random.normal(1, 0.02) * (1.2 if rank % STRAGGLERS == STRAGGLERS // 2 else 1)
        clock, late = int(random.normal(0, 200_000)), int(abs(random.normal(0, 20_000)) * slower)
        summary.rank, summary.evidence.rank = rank, rank
        summary.facts = replace(summary.facts, rank=rank, world_size=ranks, start_ns=summary.facts.start_ns + clock)
        for name, own in frames[rank % len(sent)].items():
            summary.frames[name] = pack({key: _changed(frame, slower, clock, late) for key, frame in own.items()})
        for code, found in summary.evidence.found.items():
            spans = tuple(replace(span, rank=rank) for span in found.spans)
            summary.evidence.found[code] = replace(found, spans=spans)
        yield summary


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
    made = list(like(known, options.ranks))
    print(f"{len(made)} made in {time.process_time():.0f} s", file=sys.stderr)
    clock = time.process_time()
    report = combined(trace, work, made, f"{options.ranks:,} ranks")
    del made
    seconds = {"combine": time.process_time() - clock}
    for path in options.output:
        clock = time.process_time()
        render.write(report, path)
        seconds[path.suffix[1:]] = time.process_time() - clock
    figures = json.dumps({"ranks": options.ranks, "summary": largest, "seconds": seconds})
    if options.figures:
        options.figures.write_text(figures)
    print(figures)


if __name__ == "__main__":
    main()
