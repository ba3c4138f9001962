"""Speed, memory and size of htareport as one table, each number beside its limit.

    python benchmarks/run.py [--quick] [--only load,start]
    python benchmarks/run.py --only growth,ranks --markdown table.md    # the tables in the README

Every measurement is a fresh process; candidates take turns. Absolute times say something about the machine, ratios
about the program. Ends with 1 if a limit is not kept. HolisticTraceAnalysis is installed from PyPI for the comparison.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import groups
import growth
from browser import browser
from inputs import Inputs, MissingGeneratorError
from measure import ROOT, CommandFailedError
from table import show

SHARED = ROOT.parent / "shared"
GROUPS = {
    "load": ("Loading one rank", groups.load),
    "whole": ("The whole report of one rank", groups.whole),
    "parallel": ("Several ranks", groups.parallel),
    "start": ("From a cold start", groups.start),
    "size": ("Size of the report", groups.size),
    "growth": ("Beside others, and as files grow", growth.growth),
    "ranks": ("As ranks are added", growth.ranks),
    "many": ("Thousands of ranks, simulated", groups.many),
    "browser": ("In a browser, from disk", browser),
}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure htareport.")
    parser.add_argument("--quick", action="store_true", help="small inputs: does the benchmark itself work?")
    parser.add_argument("--only", default=",".join(GROUPS), help=f"groups, by comma ({', '.join(GROUPS)})")
    parser.add_argument("--rounds", type=int, default=0, help="runs of each candidate (5, with --quick 2)")
    parser.add_argument("--size", default="", help="raw size of a big rank (300M, with --quick 10M)")
    parser.add_argument("--sizes", default="", help="raw sizes of the growing rank (50M,150M,300M,1000M; quick 5M,10M)")
    parser.add_argument("--rank-size", default="", help="raw size of each rank as ranks are added (20M, quick 2M)")
    parser.add_argument("--job-ranks", default="", help="how many ranks, by comma (1,4,16; quick 1,2,4)")
    parser.add_argument("--simulated", type=int, default=0, help="ranks of the simulated job (10,000, quick 200)")
    parser.add_argument("--generator", type=Path, default=SHARED / "tools" / "make_trace.py")
    parser.add_argument("--reference", type=Path, default=SHARED / "prototypes" / "ingest" / "proto.py")
    parser.add_argument("--hta-python", default="", help="an interpreter that has HolisticTraceAnalysis")
    parser.add_argument("--markdown", type=Path, help="a file for the tables of growth and ranks")
    parser.add_argument("--data", type=Path, default=Path(__file__).parent / "data", help="where inputs are kept")
    options = parser.parse_args(arguments)
    options.only = options.only.split(",")
    if unknown := set(options.only) - set(GROUPS):
        parser.error(f"no group {', '.join(sorted(unknown))} (there are: {', '.join(GROUPS)})")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Measure what was asked for; return 1 if a limit is not kept, 2 if something could not be measured."""
    options = parse(arguments)
    setup = groups.Setup(
        inputs=Inputs(options.generator, options.data),
        reference=options.reference,
        hta_python=options.hta_python,
        size=options.size or ("10M" if options.quick else "300M"),
        ranks=(2, 8, 16) if options.quick else (8, 64, 1024),
        simulated=options.simulated or (200 if options.quick else 10_000),
        rounds=options.rounds or (2 if options.quick else 5),
        sizes=tuple((options.sizes or ("5M,10M" if options.quick else "50M,150M,300M,1000M")).split(",")),
        rank_size=options.rank_size or ("2M" if options.quick else "20M"),
        job_ranks=tuple(map(int, (options.job_ranks or ("1,2,4" if options.quick else "1,4,16")).split(","))),
    )
    status, written = 0, list[str]()
    for name in options.only:
        title, measured = GROUPS[name]
        try:
            kept, markdown = show(title, measured(setup))
        except (CommandFailedError, MissingGeneratorError) as error:
            print(f"\n{title}\n  not measured: {error}", file=sys.stderr)
            status = 2
        else:
            status = status or int(not kept and not options.quick)
            written += [markdown] if markdown else []
    if options.markdown:
        options.markdown.write_text("\n".join(written), encoding="utf-8")
    if options.quick:
        print("\nThe limits are meant for the sizes without --quick.")
    return status


if __name__ == "__main__":
    sys.exit(main())
