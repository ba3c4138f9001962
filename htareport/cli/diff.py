"""`htareport diff`: compares two runs, and writes the report of the new one with what changed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from htareport.cli.report import READING_WORKERS, checked_gates, finish, load_report, options_of, refuse_overwriting
from htareport.files.locations import located

if TYPE_CHECKING:
    from argparse import Namespace


def run(arguments: Namespace) -> int:
    """Write the report of the comparison; return the exit status."""
    from htareport.reading.sources.saved_reports import is_saved_report

    options, option_names = options_of(arguments)
    gates = checked_gates(options, arguments.new, has_base=True)
    sources = (arguments.base, arguments.new)
    inputs = (located(source) for source in sources if source)  # A baseline shall not be lost by a typing error.
    refuse_overwriting(inputs, options.output, "one of the runs that are compared")
    if not all(is_saved_report(located(source)) for source in sources if source):
        option_names.difference_update(READING_WORKERS)  # They apply to the run that is read.
    untitled = dataclasses.replace(options, title="")  # The title is for the comparison.
    base, new = (load_report(source, untitled, option_names, quiet=arguments.quiet) for source in sources)

    from htareport.compare import compare

    return finish(compare(base, new, title=options.title), options, gates, quiet=arguments.quiet, base=base)
