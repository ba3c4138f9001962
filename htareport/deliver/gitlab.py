"""Comments on GitLab merge requests, from the environment of GitLab CI and a token that may write them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self
from urllib.parse import quote

from htareport.deliver.comments import Comment
from htareport.deliver.web import Api, token
from htareport.errors import UsageError

_TOKENS = ("HTAREPORT_GITLAB_TOKEN", "GITLAB_TOKEN")
_JOB_TOKEN = "CI_JOB_TOKEN"  # noqa: S105  a name
_HINT = "the token needs the scope api and the role Reporter; the job's own CI_JOB_TOKEN cannot write comments"


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """One merge request of a project."""

    api: Api
    project: str
    number: int
    page: str = ""

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str], *, number: int | None = None, api_url: str = "", token_name: str = ""
    ) -> Self:
        """Read CI_API_V4_URL, CI_PROJECT_ID, CI_MERGE_REQUEST_IID, GITLAB_TOKEN. UsageError says what is missing."""
        url = api_url or environment.get("CI_API_V4_URL", "")
        project = environment.get("CI_MERGE_REQUEST_PROJECT_ID") or environment.get("CI_PROJECT_ID", "")
        number = number or merge_request(environment)
        if not url or not project:
            raise UsageError(f"{'CI_PROJECT_ID' if url else 'CI_API_V4_URL'} is not set: is this a job of GitLab CI?")
        if number is None:
            raise UsageError("no merge request: CI_MERGE_REQUEST_IID is not set; --pull-request N names one")
        header = "JOB-TOKEN" if token_name == _JOB_TOKEN else "PRIVATE-TOKEN"
        headers = {header: token(environment, (token_name,) if token_name else _TOKENS)}
        home = environment.get("CI_MERGE_REQUEST_PROJECT_URL") or environment.get("CI_PROJECT_URL", "")
        return cls(Api(url, headers, _HINT), project, number, f"{home}/-/merge_requests/{number}" if home else "")

    @property
    def _notes(self) -> str:
        return f"/projects/{quote(self.project, safe='')}/merge_requests/{self.number}/notes"

    def comments(self) -> Iterator[Comment]:
        """Return all comments, oldest first."""
        for page in self.api.pages(f"{self._notes}?sort=asc&order_by=created_at"):
            if isinstance(page.get("id"), int) and not page.get("system"):
                yield Comment(page["id"], str(page.get("body") or ""))

    def create(self, body: str) -> str:
        """Write a comment and return its address."""
        return self._address(self.api.write("POST", self._notes, {"body": body}).get("id"))

    def edit(self, comment: Comment, body: str) -> str:
        """Replace a comment's text and return its address."""
        self.api.write("PUT", f"{self._notes}/{comment.id}", {"body": body})
        return self._address(comment.id)

    def _address(self, note: object) -> str:
        return f"{self.page}#note_{note}" if self.page and isinstance(note, int) else ""


def merge_request(environment: Mapping[str, str]) -> int | None:
    """Return the number of the merge request that a job runs for."""
    number = environment.get("CI_MERGE_REQUEST_IID", "")
    return int(number) if number.isdecimal() and number.isascii() else None
