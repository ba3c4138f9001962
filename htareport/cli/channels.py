"""Options of the commands `send`, `comment` and `index`, which deliver reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SEND_EPILOG = """\
examples:
  htareport send report.json --to team@example.org
  htareport send traces/ --to 'Ann Lee <ann@example.org>' --to bob@example.org --subject "Run 7"

The server comes from the environment, so that no secret stands on the command line:
  HTAREPORT_SMTP_HOST       mail server
  HTAREPORT_SMTP_PORT       port (default: 587)
  HTAREPORT_SMTP_USER       login, with HTAREPORT_SMTP_PASSWORD
  HTAREPORT_SMTP_FROM       address that the mail comes from (default: the user, if it is an address)
  HTAREPORT_SMTP_TLS        starttls, implicit (TLS from the start; the default at port 465), or off. By default
                            STARTTLS is used, and only a server on this machine may do without it
Certificates are checked; SSL_CERT_FILE names an authority of your own.

Exit status: 0 sent, 5 not delivered: the mail is kept as .eml, and it says where.
"""
COMMENT_EPILOG = """\
examples, in a job of GitHub Actions or GitLab CI (complete files stand in examples/ci):
  htareport comment report.json --artifact-url "$URL" --step-summary
  htareport comment report.json --dry-run         prints the comment

GitHub: GITHUB_REPOSITORY, GITHUB_REF or GITHUB_EVENT_PATH, GITHUB_API_URL are set by the job; GITHUB_TOKEN is for the
workflow to pass on, with `permissions: pull-requests: write`.
GitLab: CI_API_V4_URL, CI_PROJECT_ID, CI_MERGE_REQUEST_IID are set by the job; HTAREPORT_GITLAB_TOKEN or GITLAB_TOKEN is
a project access token with the scope api, as a masked variable.
"""
INDEX_EPILOG = """\
examples:
  htareport index runs/                   writes runs/index.html
  htareport index runs/ -o trend.html

Every .json and .json.gz below the folder that is a saved report becomes a row, linked to the .html of the same name
beside it. Exit status: 0 done, 3 no reports, 4 written, but a report could not be read (0 with --allow-partial).
"""
Adder = Callable[..., None]


def add_commands(commands: Any, add_reading_options: Adder, add_common_options: Adder) -> None:
    """Describe the three commands."""
    send, comment, index = _add_send(commands), _add_comment(commands), _add_index(commands)
    add_reading_options(send)
    add_common_options(send, comment, index)


def _add_send(commands: Any) -> Any:
    add_send = commands.add_parser(
        "send", help="mail a report", description="Mail the summary of traces or of a saved report, the PDF attached.",
        epilog=SEND_EPILOG,
    )  # fmt: skip
    add_send.set_defaults(parser=add_send)
    add = add_send.add_argument
    add("source", metavar="REPORT.json|TRACES", help="a saved report (.json, .json.gz), or traces as in report")
    add("--to", metavar="ADDRESS", action="append", required=True, help="recipient; several by commas; repeatable")
    add("--subject", metavar="TEXT", help="subject (default: title and step time)")
    add("-o", "--output", metavar="FILE.eml", help="also write the mail to this file")
    add("--title", metavar="TEXT", help="heading of the report (default: the folder's name)")
    add("--steps", metavar="WHICH", help="all (default), complete (no step whose device work is cut), 3-7 or 3,5")
    add("--allow-partial", action="store_true", help="exit 0, not 4, if a trace file or a section failed")
    return add_send


def _add_comment(commands: Any) -> Any:
    add_comment = commands.add_parser(
        "comment", help="post or edit the comment on a pull request", epilog=COMMENT_EPILOG,
        description="Post the summary of a saved report as a comment on the pull request that this job runs for, or "
        "edit the one that is there.",
    )  # fmt: skip
    add_comment.set_defaults(parser=add_comment)
    add = add_comment.add_argument
    add("source", metavar="REPORT.json", help="a saved report (.json, .json.gz)")
    add("--artifact-url", metavar="URL", help="link to the full report in the last line")
    add("--step-summary", action="store_true", help="also add it to $GITHUB_STEP_SUMMARY; then a job for no pull "
        "request writes only that")  # fmt: skip
    add("--id", metavar="ID", default="report", help="tells apart comments on one pull request (default: report)")
    add("--title", metavar="TEXT", help="heading (default: the report's)")
    add("--host", choices=("github", "gitlab"), help="default: what the job's variables tell")
    add("--api-url", metavar="URL", help="the API's address (default: GITHUB_API_URL or CI_API_V4_URL)")
    add("--pull-request", metavar="N", help="number of the pull or merge request (default: the job's)")
    add("--token-env", metavar="NAME", help="variable that holds the token (default: GITHUB_TOKEN or GH_TOKEN; "
        "HTAREPORT_GITLAB_TOKEN or GITLAB_TOKEN)")  # fmt: skip
    add("--dry-run", action="store_true", help="print the comment, post nothing")
    return add_comment


def _add_index(commands: Any) -> Any:
    add_index = commands.add_parser(
        "index", help="write one page over many saved reports", epilog=INDEX_EPILOG,
        description="Write one page over the saved reports of a folder: runs by date, their trend, a link to each.",
    )  # fmt: skip
    add_index.set_defaults(parser=add_index)
    add_index.add_argument(
        "source", metavar="REPORTS_DIR", help="folder of saved reports (.json, .json.gz), at any depth"
    )
    add_index.add_argument("-o", "--output", metavar="FILE.html", help="default: index.html in that folder")
    add_index.add_argument("--allow-partial", action="store_true", help="exit 0, not 4, if a report could not be read")
    return add_index
