"""The command line: its parser, and its exit status.

Architecture invariants: nothing heavy is imported before a command runs, so that `--help` is instant; bad input ends
in one sentence and an exit status, never in a traceback. Exit status: 0 done, 1 a gate was crossed, 2 wrong
usage, 3 nothing could be read, 4 written but incomplete, 5 an output failed, 70 a fault of htareport itself or no
memory, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Any, cast

from htareport.cli import channels, console, export
from htareport.errors import HtaReportError
from htareport.files.output import output_formats

EXIT_OUTPUT, EXIT_INTERNAL, EXIT_INTERRUPTED = 5, 70, 130

DESCRIPTION = (
    "Reports from PyTorch profiler (Kineto) traces of one run: one file per rank in, one HTML page or PDF out."
)
EPILOG = """\
examples:
  htareport report traces/                        writes report.html
  htareport report traces/ -o run7.html -o run7.pdf --title "Run 7"
  htareport diff base/ new/ --fail-on "step_time > +5%"
  htareport explain temporal_breakdown            what it computes, its columns and options
  htareport explain H14                           when a finding is made, and what to do
  htareport validate traces/                      what is in the files, and what is missing for what
  htareport counters traces/ -o with-counters     copies of the traces with counter tracks, for Perfetto
  htareport critical-path traces/ -o with-path    copies of the traces with the critical path marked
  htareport send run7.json --to team@example.org  by mail, the PDF attached
  htareport comment run7.json                     as a comment on the pull request of this CI job
  htareport index reports/                        one page over many saved reports

exit status:
  0 done   1 a --fail-on gate was crossed   2 wrong usage   3 nothing could be read
  4 written, but a trace file could not be used or a section
  failed (0 with --allow-partial)   5 an output could not be written or delivered   70 htareport itself failed (a
  fault of ours, or not enough memory)   130 interrupted
"""
TRACES_HELP = (
    "folder of trace files (those directly inside; only if there are none, those below it), one file, or a quoted "
    "pattern such as 'runs/*/rank*.json.gz', of this machine or behind a URL: s3://, gs://, https://, …. Plain or "
    "compressed: the content decides"
)
REPORT_EPILOG = """\
examples:
  htareport report traces/
  htareport report traces/ -o summary.md -o tables.csv.zip --ranks 0-7 --steps complete
  htareport report traces/ -o - --only temporal_breakdown,step_time -q
  htareport report traces/ --set kernel_breakdown.num_kernels=20 --config htareport.toml
  htareport report report.json -o report.html     a saved report again, without its traces

htareport.toml holds the same options; the command line wins:
  [report]
  title = "Nightly"
  output = ["report.html", "report.json"]
  steps = "complete"
  [set.kernel_breakdown]
  num_kernels = 20
"""
DIFF_EPILOG = """\
examples:
  htareport diff base/ new/
  htareport diff main.json traces/ -o diff.html -o diff.json --fail-on "step_time > +5%"
  htareport diff base.json new.json -o - -q

A saved report (.json) is enough as a baseline: it gives the same result as its traces. The options for traces hold for
both sides.
"""
VALIDATE_EPILOG = "Exit status: 0 every file can be used, 4 some cannot, 3 none can."


class _Parser(argparse.ArgumentParser):
    """Keeps the line breaks of examples. Options cannot be abbreviated, so that new ones break no script."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
        self.color = False  # Newer versions of Python would print escapes.

    def _print_message(self, message: str, file: Any = None) -> None:
        (console.out if file is sys.stdout else console.err)(message.rstrip("\n"))


class _Version(argparse.Action):
    """Like argparse's own, but looks up the version only when it is printed."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        from htareport._version import __version__

        console.out(f"htareport {__version__}")
        parser.exit()


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = _Parser(prog="htareport", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    _add_report(commands)
    _add_diff(commands)
    explain = commands.add_parser(
        "explain", help="list the analyses and rules, or print one with its definition, columns and options",
        description="List the analyses by chapter and the rules by family, or print one: definition, options, needs, "
        "tables and columns.",
    )  # fmt: skip
    explain.add_argument("name", metavar="NAME", nargs="?", help="an analysis or rule, as listed without NAME")
    validate = commands.add_parser(
        "validate", help="check trace files and say what is missing for which analysis",
        description="Read trace files and show what is in each, and what is missing for which analysis.",
        epilog=VALIDATE_EPILOG,
    )  # fmt: skip
    validate.add_argument("source", metavar="TRACES", help=TRACES_HELP)
    for command in (explain, validate):
        command.set_defaults(ranks=None, jobs=None, executor=None, parser=command)
    _add_reading_options(validate, writes=False)
    _add_common_options(explain, validate)
    export.add_commands(commands, TRACES_HELP, _add_reading_options, _add_common_options)
    channels.add_commands(commands, _add_reading_options, _add_common_options)
    return parser


def _add_report(commands: Any) -> None:
    report = commands.add_parser(
        "report", help="analyse the traces of one run and write a report",
        description="Analyse the traces of one run and write a report, or write a saved report in other formats.",
        epilog=REPORT_EPILOG,
    )  # fmt: skip
    report.set_defaults(parser=report)
    report.add_argument("source", metavar="TRACES|REPORT.json", help=f"{TRACES_HELP}; or a saved report (.json, "
        ".json.gz)")  # fmt: skip
    _add_report_options(report)


def _add_diff(commands: Any) -> None:
    diff = commands.add_parser(
        "diff", help="compare two runs and write the report of the new one with what changed",
        description="Compare two runs: the new one's full report, with the verdict and what changed before it.",
        epilog=DIFF_EPILOG,
    )  # fmt: skip
    diff.set_defaults(parser=diff)
    diff.add_argument("base", metavar="BASE", help=f"the run to compare against: {TRACES_HELP}; or a saved report")
    diff.add_argument("new", metavar="NEW", help="the run that is reported, likewise")
    _add_report_options(diff)


def _add_report_options(report: Any) -> None:
    add = report.add_argument
    formats = ", ".join(f"{suffix} ({kind.help()})" for suffix, kind in output_formats().items())
    add("-o", "--output", metavar="FILE", action="append", help="the suffix picks the format; - is Markdown on "
        f"standard output; repeatable (default: report.html). {formats}")  # fmt: skip
    add("--title", metavar="TEXT", help="heading of the report (default: the folder's name)")
    _add_reading_options(report)
    add("--steps", metavar="WHICH", help="all (default), complete (no step whose device work is cut), 3-7 or 3,5")
    add("--only", metavar="NAME,...", action="append", help="only these analyses (see htareport explain), and what "
        "is called findings: what costs time, and what to try")  # fmt: skip
    add("--set", metavar="NAME.OPTION=VALUE", action="append", help="change an option of an analysis, or of a rule: "
        "H14.least=0.1; repeatable")  # fmt: skip
    add("--gpu-hour", metavar="PRICE", help="price of an hour of one GPU: what steps cost, and what of it is lost")
    add("--samples-per-step", metavar="N", help="samples that a step of the whole job takes: samples per second")
    add("--tokens-per-step", metavar="N", help="tokens likewise")
    add("--config", metavar="FILE", help="read options from a TOML file")
    add("--allow-partial", action="store_true", default=None, help="exit 0, not 4, if a trace file or a section failed")
    add("--paper", metavar="SIZE", help="size of a PDF's pages: A4 (default) or Letter")
    add("--require-pdf", action="store_true", default=None,
        help="exit 5 if a PDF cannot be made since Pango is missing; else that is a warning")  # fmt: skip
    add("--fail-on", metavar="GATE", action="append", help="exit 1 if the run crosses it: 'step_time > 255 ms', "
        "'exposed_comm_pct > 20'; of a diff also by how much it changed: 'step_time > +5%%', 'idle_pct > +2' "
        "(percentage points); 'finding: high' or 'finding: H14' if that is found; repeatable (see htareport explain "
        "gates)")  # fmt: skip
    add("--fail-on-inconclusive", action="store_true", default=None,
        help="exit 1 too if a gate is inconclusive: too few steps, or no interval to be had")  # fmt: skip
    add("--plotlyjs", metavar="FILE", help="embed this plotly.js instead of the installed plotly's (a smaller bundle)")
    _add_common_options(report)


def _add_reading_options(command: argparse.ArgumentParser, *, writes: bool = True) -> None:
    command.add_argument("--ranks", metavar="LIST", help="only these ranks, such as 0,3-5")
    command.add_argument("-j", "--jobs", metavar="N", help="processes (default: what cores and memory allow)")
    command.add_argument("--executor", metavar="dask://HOST:PORT", help="read with the workers of this dask cluster, "
        "which see the traces under the same name; dask:// alone starts one of -j processes here")  # fmt: skip
    command.add_argument("--salvage", action="store_true", default=None, help="keep the complete events of files that "
        "are damaged or end early, and mark their ranks")  # fmt: skip
    command.add_argument("--max-bytes", metavar="N", help="most bytes of a file once unpacked, such as 20G (default: "
        "200 times its size, at least 1 GB)")  # fmt: skip
    command.add_argument("--cache", metavar="DIR", help="keep what was read of large files in this folder, and read it "
        "from there the next time (default: $HTAREPORT_CACHE, else htareport in the user's folder of caches; 20 GB at "
        "most; only where pyarrow is installed: htareport[cache])")  # fmt: skip
    command.add_argument("--no-cache", action="store_true", default=None, help="read every file, and keep nothing")
    if writes:
        command.add_argument("--no-redact", action="store_true", default=None, help="keep tokens, passwords, home "
            "folders, names of users and hosts that stand in the traces; by default they are redacted")  # fmt: skip


def _add_common_options(*commands: argparse.ArgumentParser) -> None:
    for command in commands:
        command.add_argument("-q", "--quiet", action="store_true", help="no progress, no closing lines, only problems")
        command.add_argument("-v", "--verbose", action="count", default=0, help="log what is done; -vv logs more")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    console.prepare()
    status = _main(arguments)
    if reason := console.lost():
        console.error(f"standard output: {reason}")
        return status or EXIT_OUTPUT
    return status


def _main(arguments: Sequence[str] | None) -> int:
    root = parser()
    try:
        options, unknown = root.parse_known_args(arguments)
        if unknown:  # Reported with the usage of the command; argparse would show that of all commands.
            cast("_Parser", getattr(options, "parser", root)).error(f"unrecognized arguments: {' '.join(unknown)}")
    except SystemExit as end:  # argparse has printed the message.
        return int(end.code or 0)
    if options.command is None:
        root.print_help(sys.stderr)
        return 2
    if options.verbose:
        import logging

        logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
        logging.getLogger("htareport").setLevel(logging.DEBUG if options.verbose > 1 else logging.INFO)
    return _run(options)


def _run(options: argparse.Namespace) -> int:
    try:
        return int(importlib.import_module(f"htareport.cli.{options.command.replace('-', '_')}").run(options))
    except HtaReportError as error:
        console.error(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        console.err("interrupted")
        return EXIT_INTERRUPTED
    except MemoryError:
        console.error("not enough memory: fewer processes (-j 1) or fewer ranks (--ranks) need less")
        return EXIT_INTERNAL
    except Exception as error:  # noqa: BLE001  The last resort: users get a sentence, not a traceback.
        console.error(f"internal error: {type(error).__name__}: {error}; please report it, with the output of -v")
        if options.verbose:
            import traceback

            console.err(traceback.format_exc())
        return EXIT_INTERNAL
