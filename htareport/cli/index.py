"""`htareport index`: writes one page that lists the saved reports of a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from htareport.cli import console, opening
from htareport.cli.report import check_output
from htareport.errors import UsageError
from htareport.files.locations import is_folder, located, shown, size_of
from htareport.files.output import write_bytes

if TYPE_CHECKING:
    from argparse import Namespace


def run(arguments: Namespace) -> int:
    """Write the page; return the exit status."""
    if not arguments.source:
        raise UsageError("no folder of reports was named: the path is empty")
    folder = located(arguments.source)
    output = located(arguments.output or folder / "index.html")
    if not output.name.lower().endswith(".html"):
        raise UsageError(f"-o {shown(output)}: the index is an HTML page: its name ends with .html")
    if is_folder(folder):
        check_output(str(output))
    from htareport.deliver.index import overview

    index = overview(folder, output)
    console.problems([f"{name}: {reason}" for name, reason in index.damaged], [])
    path = write_bytes(output, index.page.encode())
    if not arguments.quiet:
        console.out(f"{shown(path)}  {console.size(size_of(path))}  {index.runs} run{'' if index.runs == 1 else 's'}")
    return opening.EXIT_PARTIAL if index.damaged and not arguments.allow_partial else 0
