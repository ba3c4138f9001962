"""`htareport counters`: writes copies of trace files with queue length and memory bandwidth as counter tracks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from htareport.cli import export

if TYPE_CHECKING:
    from argparse import Namespace

    from htareport.export.files import CopyFolder
    from htareport.rank.rank import Rank

_NOTHING = "it has neither launches that are linked to device work nor copies with a bandwidth"


def run(arguments: Namespace) -> int:
    """Write the copies; return the exit status."""
    return export.run(arguments, _write, _NOTHING)


def _write(trace: Rank, folder: CopyFolder) -> list[Path]:
    from htareport.export.counters import write_counters

    return write_counters(trace, folder)
