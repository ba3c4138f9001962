"""Requests JSON from the APIs of code hosts with the standard library, with limits and plain errors."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

from htareport.errors import OutputError, UsageError

_TIMEOUT = 30.0  # Seconds for each answer.
_MAX_BYTES = 32_000_000  # Bytes of an answer.
_PAGE_SIZE, _MAX_PAGES = 100, 100
_MAX_REASON = 300


@dataclass(frozen=True, slots=True)
class Api:
    """An API: where it is, and the headers that every request gets; one of them holds the token."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    hint: str = ""  # What to do when it refuses.

    def __post_init__(self) -> None:
        url = urlsplit(self.url)
        is_plain = self.url.isprintable() and " " not in self.url
        if url.scheme not in {"http", "https"} or not url.hostname or not is_plain or url.query or url.fragment:
            raise UsageError(f"--api-url {self.url}: is no http(s) URL of an API")
        if url.username or url.password:
            raise UsageError("--api-url: holds a user or password; tokens come from the environment")

    def pages(self, path: str) -> Iterator[dict[str, Any]]:
        """Return every object of a list, page by page."""
        for page in range(1, _MAX_PAGES + 1):
            items = self.request("GET", f"{path}{'&' if '?' in path else '?'}per_page={_PAGE_SIZE}&page={page}")
            if not isinstance(items, list):
                raise OutputError(f"{self.url}: not a list at {path}; is this the right API?")
            yield from (item for item in items if isinstance(item, dict))
            if len(items) < _PAGE_SIZE:
                return

    def write(self, method: str, path: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Send an object and return the one that comes back."""
        answer = self.request(method, path, payload)
        return answer if isinstance(answer, dict) else {}

    def request(self, method: str, path: str, payload: Mapping[str, Any] | None = None) -> Any:
        """Return the JSON of an answer. RefusedError for a status that is none of success, OutputError else."""
        data = None if payload is None else json.dumps(payload).encode()
        headers = {"Content-Type": "application/json", "User-Agent": "htareport", **self.headers}
        request = Request(f"{self.url.rstrip('/')}{path}", data, headers, method=method)  # noqa: S310  checked above
        try:
            with _opener().open(request, timeout=_TIMEOUT) as answer:
                body = answer.read(_MAX_BYTES + 1)
        except HTTPError as error:
            raise self._refused(error) from None
        except (OSError, http.client.HTTPException) as error:  # URLError, TimeoutError, a line that was cut.
            reason = error.reason if isinstance(error, URLError) else error
            text = f"no answer within {_TIMEOUT:.0f} s" if isinstance(reason, TimeoutError) else str(reason)
            raise OutputError(f"{self.url}: {text or type(reason).__name__}") from None
        if len(body) > _MAX_BYTES:
            raise OutputError(f"{self.url}: an answer of more than {_MAX_BYTES:,} bytes")
        try:
            return json.loads(body or b"null")
        except ValueError:
            raise OutputError(f"{self.url}: the answer is no JSON; is this the right API?") from None

    def _refused(self, error: HTTPError) -> RefusedError:
        with error:
            try:
                answer = json.loads(error.read(_MAX_BYTES))
                reason = answer.get("message") or answer.get("error") if isinstance(answer, dict) else ""
            except (OSError, ValueError, http.client.HTTPException):
                reason = ""
        text = " ".join(str(reason or error.reason).split())[:_MAX_REASON]
        if error.code in range(300, 400):
            text = "it has moved; --api-url says where the API is"
        hint = f" ({self.hint})" if self.hint and error.code in {401, 403, 404} else ""
        return RefusedError(f"{self.url}: {error.code} {text}{hint}", error.code)


class RefusedError(OutputError):
    """An API that refused a request, with its status."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirect: the token is for the host of the API only."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _opener() -> OpenerDirector:
    return build_opener(_NoRedirects)


def token(environment: Mapping[str, str], names: tuple[str, ...]) -> str:
    """Return the first of some variables that is set. UsageError, without its content, if none can be used."""
    for name in names:
        if token := environment.get(name, "").strip():
            if not (token.isascii() and token.isprintable()) or " " in token:
                raise UsageError(f"{name} is no token: it holds characters that none has")
            return token
    raise UsageError(f"{' or '.join(names)} is not set: it holds the token for the comment")
