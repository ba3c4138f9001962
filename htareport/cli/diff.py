"""`htareport diff`: two runs in, the new one's report with what changed out."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from htareport.cli.report import checked_gates, finish, options_of, side

if TYPE_CHECKING:
    from argparse import Namespace


def run(arguments: Namespace) -> int:
    """Write the report of the comparison; return the exit status."""
    options, given = options_of(arguments)
    gates = checked_gates(options, has_base=True)
    untitled = dataclasses.replace(options, title="")  # The title is that of the comparison.
    base, new = (side(source, untitled, given, quiet=arguments.quiet) for source in (arguments.base, arguments.new))

    from htareport.comparison import compare

    return finish(compare(base, new, title=options.title), options, gates, quiet=arguments.quiet, base=base)
