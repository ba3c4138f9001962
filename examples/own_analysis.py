"""An analysis of your own: the longest single kernel calls of each rank.

    python examples/own_analysis.py examples/traces [-o own.html]

A subclass of Analysis is all it takes. Inside htareport/analyses/ it would be found by itself; a package of its own
offers it as an entry point of the group `htareport.analyses`; and a script such as this one passes it to `analyze`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from htareport.analyses import Analysis, Frames, Group, Job, Rank
from htareport.rank.capability import Capability
from htareport.report import Better, Chart, Column, Mark, TableSpec, Unit, key
from htareport.run.runner import analyze


@dataclass(frozen=True)
class LongestCalls(Analysis):
    """The longest single calls of compute kernels on each rank.

    ## How it is computed
    Of the compute kernels in the window, the `count` calls of longest duration on each rank.

    ## What to do
    A kernel that is long on one rank only points at that rank's input or GPU. One that is long everywhere is where
    a faster implementation pays most.
    """

    title: ClassVar[str] = "Longest kernel calls"
    group: ClassVar[Group] = Group.KERNELS
    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.GPU})
    tables: ClassVar[tuple[TableSpec, ...]] = (
        TableSpec(
            "longest_calls",
            "Longest kernel calls",
            (
                key("rank", "Rank"),
                key("place", "Place", help="1 is the rank's longest call"),
                Column("name", "Kernel", Unit.NAME),
                Column("step", "Step", Unit.ID, "profiler step in which it was launched"),
                Column("duration", "Duration", Unit.NANOSECONDS, "end − start", better=Better.LOWER),
                Column("start", "Start", Unit.NANOSECONDS, "since the first event of all ranks"),
            ),
        ),
    )

    count: int = 5  # A field is an option: --set own_analysis.count=10

    def map(self, rank: Rank) -> Frames:
        """Pick the longest calls of one rank."""
        events = rank.device_events
        longest = events[events["kind"] == "compute"].nlargest(self.count, "dur")
        rows = longest.rename(columns={"dur": "duration", "ts": "start"})
        rows["name"] = rows["name"].astype(str)  # Not a category of all names of the trace: rows travel.
        rows["place"] = range(1, len(rows) + 1)
        return {"longest_calls": rows[["place", "name", "step", "duration", "start"]]}

    def combine(self, frames: Frames, job: Job) -> Frames:
        """Put the ranks, whose rows have come with a column `rank`, on one clock."""
        rows = frames["longest_calls"]
        return {"longest_calls": rows.assign(start=rows["start"] - job.zero_ns)}

    def charts(self, frames: Frames) -> Iterable[Chart]:
        """Draw each rank's longest call."""
        rows = frames["longest_calls"]
        first = rows[rows["place"] == 1].copy()
        first["rank"] = [f"rank {rank}" for rank in first["rank"]]
        yield Chart(
            "longest_call",
            "Longest call of each rank",
            Mark.BAR,
            first,
            x="duration",
            y="rank",
            x_unit=Unit.NANOSECONDS,
            y_unit=Unit.TEXT,
            caption="The duration of the longest single compute kernel on each rank.",
        )


def main(arguments: list[str] | None = None) -> None:
    """Run only this analysis, print its table and write the report."""
    parser = argparse.ArgumentParser(description="Report the longest kernel calls.")
    parser.add_argument("traces", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("own.html"))
    parser.add_argument("--count", type=int, default=3)
    options = parser.parse_args(arguments)
    report = analyze(options.traces, analyses=[LongestCalls(count=options.count)])
    print(report[LongestCalls.name].table().to_string(index=False, max_colwidth=60))
    print(report.write(options.output))


if __name__ == "__main__":
    main()
