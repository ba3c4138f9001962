"""`htareport critical-path`: writes copies of trace files with the critical path of a step marked."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from htareport.cli import export
from htareport.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace

    from htareport.analyses.time.critical_path import CriticalPath
    from htareport.export.files import CopyFolder
    from htareport.rank.rank import Rank


def run(arguments: Namespace) -> int:
    """Write the copies; return the exit status."""
    from htareport.analyses.time.critical_path import CriticalPath

    if arguments.rank is not None:
        if arguments.ranks is not None:
            raise UsageError("--rank and --ranks: one of them is enough")
        arguments.ranks = arguments.rank
    if arguments.instance and not arguments.annotation:
        raise UsageError("--instance: needs --annotation, whose rows it counts")
    options = {"annotation": arguments.annotation, "instance": arguments.instance}
    section = CriticalPath(**options) if arguments.step is None else CriticalPath(**options, step=arguments.step)
    task = partial(_write, section=section, only_critical=arguments.only_critical, all_edges=arguments.all_edges)
    return export.run(arguments, task, "nothing is recorded on it")


def _write(
    trace: Rank, folder: CopyFolder, *, section: CriticalPath, only_critical: bool, all_edges: bool
) -> list[Path]:
    from htareport.export.critical_path import write_path
    from htareport.hta.cp_graph import CPGraph

    span, _ = section.span(trace)
    if span is None:
        return []
    graph = CPGraph.from_activity(section.graph(trace, span), trace.rank, trace.start_ns or 0)
    marks = graph.marks(all_edges=all_edges and not only_critical)
    return [write_path(trace, folder, marks, only_critical=only_critical)]
