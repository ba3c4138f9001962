"""`htareport comment`: posts the summary of a saved report as a comment on a pull request, or edits that comment."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING

from htareport.cli import console
from htareport.errors import OutputError, UsageError

if TYPE_CHECKING:
    from argparse import Namespace

    from htareport.deliver.comments import Discussion

_MAX_SUMMARY_BYTES = 1024 * 1024  # Of a job's step summary that GitHub shows.


def run(arguments: Namespace) -> int:
    """Post or edit the comment; return the exit status."""
    from htareport.render import comment
    from htareport.report import Report

    mark = comment.marker(arguments.id)
    summary_file = _summary_file() if arguments.step_summary else None
    number = _number(arguments.pull_request)
    target = None if arguments.dry_run else _target(arguments, number, needed=summary_file is None)
    report = Report.load(arguments.source)
    if arguments.title:
        report = dataclasses.replace(report, title=arguments.title)
    text = comment.comment(report, name=arguments.id, artifact_url=arguments.artifact_url or "")
    if summary_file:
        _append(summary_file, text)
    if arguments.dry_run:
        console.write(text)
    elif target is None:
        console.err("no pull request here, so no comment; the step's summary is written")
    else:
        _post(target, mark, text, quiet=arguments.quiet)
    return 0


def _post(target: Discussion, mark: str, text: str, *, quiet: bool) -> None:
    from htareport.deliver.comments import post

    address, was_edited = post(target, mark, text)
    if not quiet:
        console.out(f"comment {'edited' if was_edited else 'written'}{': ' if address else ''}{address}")


def _number(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isdecimal() and text.isascii() and int(text)):
        raise UsageError(f"--pull-request: {text!r} is no number of a pull request")
    return int(text)


def _target(arguments: Namespace, explicit_number: int | None, *, needed: bool) -> Discussion | None:
    """Return the pull request to comment on; None if the job is for none, and no comment is needed."""
    from htareport.deliver import github, gitlab

    host = arguments.host or _host()
    options = {"api_url": arguments.api_url or "", "token_name": arguments.token_env or ""}
    number = explicit_number or (github.pull_request if host == "github" else gitlab.merge_request)(os.environ)
    if number is None and not needed:
        return None
    if host == "github":
        return github.PullRequest.from_environment(os.environ, number=number, **options)
    return gitlab.MergeRequest.from_environment(os.environ, number=number, **options)


def _host() -> str:
    """Return which CI this is. UsageError if none."""
    if os.environ.get("GITHUB_REPOSITORY") or os.environ.get("GITHUB_ACTIONS"):
        return "github"
    if os.environ.get("CI_API_V4_URL") or os.environ.get("GITLAB_CI"):
        return "gitlab"
    raise UsageError("no job of GitHub Actions or GitLab CI: neither GITHUB_REPOSITORY nor CI_API_V4_URL is set")


def _summary_file() -> Path:
    name = os.environ.get("GITHUB_STEP_SUMMARY", "")
    if not name:
        raise UsageError("--step-summary: GITHUB_STEP_SUMMARY is not set; GitHub Actions sets it")
    return Path(name)


def _append(path: Path, text: str) -> None:
    """Append to the step summary of the job."""
    data = f"{text}\n".encode()
    try:
        if path.exists() and path.stat().st_size + len(data) > _MAX_SUMMARY_BYTES:
            raise OutputError(f"{path}: the step's summary is full")
        with path.open("ab") as file:
            file.write(data)
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror or error}") from error
