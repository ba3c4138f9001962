"""`htareport comment`: the summary of a saved report as one comment on a pull request, edited in place."""

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

_MOST_SUMMARY = 1024 * 1024  # Bytes of a step's summary that GitHub shows.


def run(arguments: Namespace) -> int:
    """Post or edit the comment; return the exit status."""
    from htareport.render import comment
    from htareport.report import Report

    mark = comment.marker(arguments.id)
    summary = _summary_file() if arguments.step_summary else None
    number = _number(arguments.pull_request)
    target = None if arguments.dry_run else _target(arguments, number, needed=summary is None)
    report = Report.load(arguments.source)
    if arguments.title:
        report = dataclasses.replace(report, title=arguments.title)
    text = comment.comment(report, name=arguments.id, artifact_url=arguments.artifact_url or "")
    if summary:
        _append(summary, text)
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


def _number(given: str | None) -> int | None:
    if given is None:
        return None
    if not (given.isdecimal() and given.isascii() and int(given)):
        raise UsageError(f"--pull-request: {given!r} is no number of a pull request")
    return int(given)


def _target(arguments: Namespace, number: int | None, *, needed: bool) -> Discussion | None:
    """Find out where the comment goes; None where it need not go anywhere and this is a job for no pull request."""
    from htareport.deliver import github, gitlab

    host = arguments.host or _host()
    options = {"api_url": arguments.api_url or "", "token_name": arguments.token_env or ""}
    given = number or (github.pull_request if host == "github" else gitlab.merge_request)(os.environ)
    if given is None and not needed:
        return None
    if host == "github":
        return github.PullRequest.from_environment(os.environ, number=given, **options)
    return gitlab.MergeRequest.from_environment(os.environ, number=given, **options)


def _host() -> str:
    """Tell which CI this is. UsageError if none."""
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
    """Add to what the step's summary holds already."""
    data = f"{text}\n".encode()
    try:
        if path.exists() and path.stat().st_size + len(data) > _MOST_SUMMARY:
            raise OutputError(f"{path}: the step's summary is full")
        with path.open("ab") as file:
            file.write(data)
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror or error}") from error
