"""Writes a copy of a trace that has only its events.

python -m htareport.hta.scripts.convert_to_perfetto FILE OUTPUT
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from htareport.errors import HtaReportError
from htareport.hta.common.trace_file import convert_to_perfetto


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file; return its exit status."""
    parser = argparse.ArgumentParser(prog="convert_to_perfetto", description="Keep only the events of a trace.")
    parser.add_argument("trace_file", metavar="FILE")
    parser.add_argument("output", metavar="OUTPUT", help="compressed if its name ends with .gz")
    options = parser.parse_args(arguments)
    try:
        convert_to_perfetto(options.trace_file, options.output)
    except HtaReportError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
