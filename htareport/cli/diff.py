"""`htareport diff`: two runs in, the new one's report with what changed out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from htareport.cli.report import READERS, checked_gates, finish, options_of, side
from htareport.errors import UsageError
from htareport.files.locations import located, resolved

if TYPE_CHECKING:
    from argparse import Namespace


def run(arguments: Namespace) -> int:
    """Write the report of the comparison; return the exit status."""
    from htareport.reading.sources.saved_reports import is_saved_report

    options, given = options_of(arguments)
    gates = checked_gates(options, arguments.new, has_base=True)
    _refuse_overwriting((arguments.base, arguments.new), options.output)
    sources = (arguments.base, arguments.new)
    if not all(is_saved_report(located(source)) for source in sources if source):
        given.difference_update(READERS)  # They are for the side that is read.
    untitled = dataclasses.replace(options, title="")  # The title is that of the comparison.
    base, new = (side(source, untitled, given, quiet=arguments.quiet) for source in sources)

    from htareport.compare import compare

    return finish(compare(base, new, title=options.title), options, gates, quiet=arguments.quiet, base=base)


def _refuse_overwriting(sources: Sequence[str], outputs: Sequence[str]) -> None:
    """Refuse to write over a saved report that is compared: a baseline would be lost by a slip."""
    inputs = {resolved(located(source)) for source in sources if source}
    for output in outputs:
        if output != "-" and resolved(located(output)) in inputs:
            raise UsageError(f"-o {output}: is one of the runs that are compared")
