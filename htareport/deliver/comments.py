"""Writes one comment on a pull request, and edits it from then on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol

from htareport.deliver.web import RefusedError

_NOT_OURS = {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment on the code host: its id and its text."""

    id: int
    body: str


class Discussion(Protocol):
    """The comments of one pull request on a code host."""

    def comments(self) -> Iterator[Comment]:
        """Return all comments, oldest first."""

    def create(self, body: str) -> str:
        """Write a comment and return its address, empty if that is not known."""

    def edit(self, comment: Comment, body: str) -> str:
        """Replace a comment's text and return its address."""


def post(discussion: Discussion, marker: str, body: str) -> tuple[str, bool]:
    """Edit the comment that begins with `marker`, or write it; return its address, and whether it was edited.

    A comment of somebody else that begins like ours and may not be edited is left alone. OutputError where the host
    cannot be reached or refuses.
    """
    for comment in discussion.comments():
        if comment.body.lstrip().startswith(marker):
            try:
                return discussion.edit(comment, body), True
            except RefusedError as error:
                if error.status not in _NOT_OURS:
                    raise
    return discussion.create(body), False
