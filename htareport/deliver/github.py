"""Comments on GitHub pull requests, from the environment of GitHub Actions. Forgejo and Gitea have the same API."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from htareport.deliver.comments import Comment
from htareport.deliver.web import Api, token
from htareport.errors import UsageError

_URL = "https://api.github.com"
_TOKENS = ("GITHUB_TOKEN", "GH_TOKEN")
_HINT = "the job needs `permissions: pull-requests: write`; for pull requests from forks the token can only read"
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
_REF = re.compile(r"refs/pull/(\d+)/")


@dataclass(frozen=True, slots=True)
class PullRequest:
    """One pull request of a repository."""

    api: Api
    repository: str
    number: int

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str], *, number: int | None = None, api_url: str = "", token_name: str = ""
    ) -> Self:
        """Read GITHUB_API_URL, GITHUB_REPOSITORY, GITHUB_TOKEN, GITHUB_REF. UsageError says what is missing."""
        repository = environment.get("GITHUB_REPOSITORY", "")
        if not _REPOSITORY.fullmatch(repository) or ".." in repository:
            raise UsageError(f"GITHUB_REPOSITORY: {repository!r} is no OWNER/NAME")
        number = number or pull_request(environment)
        if number is None:
            raise UsageError("no pull request: neither GITHUB_REF nor the event names one; --pull-request N does")
        headers = {
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
            "Authorization": f"Bearer {token(environment, (token_name,) if token_name else _TOKENS)}",
        }
        return cls(Api(api_url or environment.get("GITHUB_API_URL") or _URL, headers, _HINT), repository, number)

    def comments(self) -> Iterator[Comment]:
        """Return all comments, oldest first."""
        for page in self.api.pages(f"/repos/{self.repository}/issues/{self.number}/comments"):
            if isinstance(page.get("id"), int):
                yield Comment(page["id"], str(page.get("body") or ""))

    def create(self, body: str) -> str:
        """Write a comment and return its address."""
        path = f"/repos/{self.repository}/issues/{self.number}/comments"
        return str(self.api.write("POST", path, {"body": body}).get("html_url") or "")

    def edit(self, comment: Comment, body: str) -> str:
        """Replace a comment's text and return its address."""
        path = f"/repos/{self.repository}/issues/comments/{comment.id}"
        return str(self.api.write("PATCH", path, {"body": body}).get("html_url") or "")


def pull_request(environment: Mapping[str, str]) -> int | None:
    """Return the number of the pull request that a job runs for, from its ref or from its event's file."""
    if match := _REF.match(environment.get("GITHUB_REF", "")):
        return int(match[1])
    try:
        event = json.loads(Path(environment["GITHUB_EVENT_PATH"]).read_bytes())
    except (KeyError, OSError, ValueError):
        return None
    return next((number for number in _numbers(event) if number), None)


def _numbers(event: Any) -> Iterator[int]:
    """Yield the numbers of an event's pull requests: its own, that of its comment, those of its workflow run."""
    if not isinstance(event, dict):
        return
    issue, run = event.get("issue"), event.get("workflow_run")
    pull_requests = [event.get("pull_request")]
    if isinstance(issue, dict) and issue.get("pull_request"):
        pull_requests.append(issue)
    if isinstance(run, dict) and isinstance(run.get("pull_requests"), list):
        pull_requests += run["pull_requests"]
    for request in pull_requests:
        if isinstance(request, dict) and type(request.get("number")) is int:
            yield request["number"]
