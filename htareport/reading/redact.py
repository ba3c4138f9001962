"""A rank without the secrets in its trace: names, texts of events and metadata are replaced, numbers stay.

This is done before anything is derived, so that nothing that is made of the rank can hold them. Hosts get a stand-in
that is the same on every rank, until `numbered` gives them their final names.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from htareport.errors import printable
from htareport.reading import secrets
from htareport.rows import secret_kinds
from htareport.rows.capture import Capture, Loaded
from htareport.rows.columns import NONE, Columns
from htareport.rows.schema import CODED_COLUMNS

# Accounts and hosts that everybody has; they are redacted only where they must be one.
_COMMON = frozenset({
    "root", "user", "users", "username", "ubuntu", "admin", "administrator", "runner", "work", "workspace", "home",
    "shared", "public", "data", "app", "apps", "dev", "test", "tmp", "jovyan", "ec2-user", "docker", "nobody", "coder",
    "vscode", "torch", "pytorch", "python", "train", "trainer", "model", "models", "job", "default", "localhost",
    "host", "node", "nodes", "master", "worker", "gpu", "cpu", "server", "main", "head", "none", "null", "unknown",
    "local", "name", "cluster", "rank", "gemm", "kernel", "conda",
})  # fmt: skip
_SHORTEST = 3  # Letters of a name that is looked for everywhere.
_NO_HOSTS = {"127.0.0.1", "0.0.0.0", "localhost"}  # noqa: S104  as they stand in texts
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_FEW = 2  # So many names in capitals beside a telling one make an environment.
HOST_SIGN = "host·"  # What stands for a host begins so, until hosts are numbered.
_STAND_IN = re.compile(rf"{HOST_SIGN}[0-9a-f]{{16}}")


def redacted(loaded: Loaded) -> Loaded:
    """Return a rank whose texts hold no secrets, with how many of each kind were replaced."""
    other_texts = (*loaded.tables, *loaded.counts, *loaded.warnings, *(reason for _, reason in loaded.problems))
    redactor = Redactor(
        chain(loaded.strings, map(str, loaded.threads), map(str, loaded.lanes), other_texts), loaded.captures
    )
    strings, codes = _merged([redactor.any_text(string) for string in loaded.strings])
    names = {name: redactor.text(name) for name in {*loaded.tables, *loaded.counts}}
    while len(set(names.values())) < len(names):  # What has become the same stays apart.
        names = {name: new if name == new else f"{new} {number}" for number, (name, new) in enumerate(names.items())}
    captures = tuple(redactor.capture(capture) for capture in loaded.captures)
    counts = dict(sorted(redactor.counts.items()))  # Warnings repeat what was counted.
    return replace(
        loaded,
        tables={names[name]: _recoded(columns, codes) for name, columns in loaded.tables.items()},
        collectives={names[name]: _recoded(columns, codes) for name, columns in loaded.collectives.items()},
        memory=_recoded(loaded.memory, codes),
        strings=strings,
        threads=[(redactor.value(pid), redactor.value(tid)) for pid, tid in loaded.threads],
        lanes=[(redactor.value(device), redactor.value(stream)) for device, stream in loaded.lanes],
        captures=captures,
        counts={names[name]: count for name, count in loaded.counts.items()},
        device_categories=frozenset(names.get(name, name) for name in loaded.device_categories),
        warnings=tuple(redactor.warning(warning, names) for warning in loaded.warnings),
        problems=tuple((name, redactor.text(reason)) for name, reason in loaded.problems),
        redactions=counts,
        is_redacted=True,
    )


def redacted_metadata(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a trace without secrets, hosts numbered, to be written beside events that are kept."""
    redactor = Redactor((), (Capture("", 0, meta),))
    redacted_metadata: dict[str, Any] = orjson.loads(numbered(orjson.dumps(redactor.json(dict(meta))).decode()))
    return redacted_metadata


def numbered(text: str, first: Iterable[str] = ()) -> str:
    """Return a text in which hosts are host-1, host-2, …: some first, the others as they come."""
    numbers = dict[str, int]()
    for host in chain(first, _STAND_IN.findall(text)):
        numbers.setdefault(host, len(numbers) + 1)
    return _STAND_IN.sub(lambda match: f"host-{numbers[match[0]]}", text)


def _merged(strings: list[str]) -> tuple[list[str], NDArray[np.int32]]:
    """Distinct strings, and for each of those given its place among them."""
    places = dict[str, int]()
    codes = [places.setdefault(string, len(places)) for string in strings]
    return list(places), np.array(codes, np.int32)


def _recoded(columns: Columns, codes: NDArray[np.int32]) -> Columns:
    """Columns whose texts are coded anew, by numbers that are never larger than before; none has the code -1."""
    with_none = np.append(codes, np.int32(NONE))
    return {
        key: with_none.astype(values.dtype)[values] if key in CODED_COLUMNS else values
        for key, values in columns.items()
    }


class Redactor:
    """Takes secrets out of texts, and counts them by kind. All texts together tell the names of users and hosts."""

    def __init__(self, texts: Iterable[str], captures: Sequence[Capture]) -> None:
        self.counts: Counter[str] = Counter()
        self._done: dict[str, str] = {}
        users, hosts, everything = set[str](), set[str](), list(texts)
        for capture in captures:
            everything += map(str, capture.processes.values())
            hosts.add(capture.host)
            _collect(capture.meta, "", everything, users, hosts)
        blob = "\n".join(everything)
        lowered = blob.lower()
        users |= {name for match in secrets.HOME.finditer(blob) for name in match.groups() if name}
        users |= set(secrets.USER_SET.findall(blob))
        hosts |= set(secrets.HOST_SET.findall(blob))
        self._patterns = [pattern for pattern in secrets.PATTERNS if any(sign in lowered for sign in pattern.signs)]
        files = sorted((re.escape(capture.name) for capture in captures if capture.name), key=len, reverse=True)
        self._files = re.compile(f"({'|'.join(files)})") if files else None
        self._users = _words(users)
        self._hosts = _words({*hosts, *(host.partition(".")[0] for host in hosts)})

    def any_text(self, text: str) -> str:
        """Return a text, or JSON as text, without secrets."""
        if text[:1] in {"{", "["}:
            try:
                value = orjson.loads(text)
            except orjson.JSONDecodeError:
                return self.text(text)
            clean = self.json(value)
            return text if clean == value else orjson.dumps(clean).decode()
        return self.text(text)

    def value(self, value: Any) -> Any:
        """Return a value that may be a text."""
        return self.text(value) if isinstance(value, str) else value

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        if text not in self._done:
            self._done[text] = self._clean(text)
        return self._done[text]

    def warning(self, text: str, names: Mapping[str, str]) -> str:
        """Return a warning without secrets; the names of files stay, those of categories are replaced as elsewhere."""
        for name in sorted(names, key=len, reverse=True):
            if names[name] != name:
                text = text.replace(printable(name), printable(names[name]))
        segments = self._files.split(text) if self._files else [text]
        return "".join(segment if index % 2 else self.text(segment) for index, segment in enumerate(segments))

    def json(self, value: Any, key: str = "") -> Any:
        """Return JSON data without secrets; a key may tell that its value is one."""
        if isinstance(value, str):
            return self._text_of_key(value, key)
        if isinstance(value, Mapping):
            if _is_environment(key, value):
                return self._counted(secret_kinds.ENVIRONMENTS, "[environment]")
            return {self.text(str(name)): self.json(item, str(name)) for name, item in value.items()}
        if isinstance(value, list) and value and not isinstance(value[0], (int, float)):
            lines = "\n".join(item for item in value if isinstance(item, str))
            if secrets.without_environments(lines)[1]:
                return [self._counted(secret_kinds.ENVIRONMENTS, "[environment]")]
            return [self.json(item, key) for item in value]
        return value

    def capture(self, capture: Capture) -> Capture:
        """Return what is known of a file without secrets; its name stays."""
        return replace(
            capture,
            meta=self.json(capture.meta),
            devices={number: self.text(name) for number, name in capture.devices.items()},
            processes={self.value(pid): self.text(name) for pid, name in capture.processes.items()},
            host=_stand_in(capture.host) if capture.host else "",
        )

    def _text_of_key(self, value: str, key: str) -> str:
        """A text whose key may tell what it is."""
        if not value:
            return value
        if secrets.SECRET_KEY.fullmatch(key):
            return self._counted(secret_kinds.PASSWORDS, "[password]")
        if secrets.USER_KEY.fullmatch(key):
            return self._counted(secret_kinds.USERS, "[user]")
        if secrets.HOST_KEY.fullmatch(key):
            return self._counted(secret_kinds.HOSTS, _stand_in(value))
        if secrets.ENVIRONMENT_KEY.fullmatch(key) and "=" in value:
            return self._counted(secret_kinds.ENVIRONMENTS, "[environment]")
        return self.text(value)

    def _counted(self, kind: str, replacement: str = "", number: int = 1) -> str:
        if number:
            self.counts[kind] += number
        return replacement

    def _clean(self, text: str) -> str:
        text, number = secrets.without_environments(text)
        self._counted(secret_kinds.ENVIRONMENTS, number=number)
        lowered = text.lower()
        for kind, signs, regex, replacement in self._patterns:
            if any(sign in lowered for sign in signs):
                text, number = regex.subn(replacement, text)
                self._counted(kind, number=number)
        if any(sign in text for sign in secrets.HOME_SIGNS):
            for regex in (secrets.HOME, secrets.TILDE):
                text, number = regex.subn("~", text)
                self._counted(secret_kinds.HOMES, number=number)
        if "@" in text:
            text = secrets.MAIL.sub(self._mail, text)
        if self._hosts:
            text = self._hosts.sub(self._host, text)
        if self._users:
            text = self._users.sub(lambda _: self._counted(secret_kinds.USERS, "[user]"), text)
        if any(sign in text for sign in secrets.HOST_SIGNS):
            text = secrets.HOST.sub(self._host, text)
        return text

    def _mail(self, match: re.Match[str]) -> str:
        host = match[2]
        if not secrets.TELLING_HOST.search(host) and not (self._hosts and self._hosts.fullmatch(host)):
            return match[0]
        self._counted(secret_kinds.USERS)
        if "." in host and not re.search(r"\d", host):  # An address of mail.
            return "[user]@[domain]"
        return f"[user]@{self._counted(secret_kinds.HOSTS, _stand_in(host))}"

    def _host(self, match: re.Match[str]) -> str:
        if match[0] in _NO_HOSTS:
            return match[0]
        return self._counted(secret_kinds.HOSTS, _stand_in(match[0]))


def _stand_in(host: str) -> str:
    """What stands for a host, with its domain or without; an address is what it is."""
    name = host.lower() if re.fullmatch(r"[\d.]+", host) else host.lower().partition(".")[0]
    return f"{HOST_SIGN}{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:16]}"


def _is_environment(key: str, value: Mapping[str, Any]) -> bool:
    names = {name for name in map(str, value) if _VARIABLE.fullmatch(name)}
    is_environment_key = secrets.ENVIRONMENT_KEY.fullmatch(key) is not None
    return bool(names) and (is_environment_key or (len(names) > _FEW and bool(names & {"PATH", "HOME", "USER", "PWD"})))


def _collect(value: Any, key: str, texts: list[str], users: set[str], hosts: set[str]) -> None:
    """Gather the texts of JSON data, and which of them are users and hosts by their keys."""
    if isinstance(value, str):
        texts.append(f"{key}={value}")
        if secrets.USER_KEY.fullmatch(key):
            users.add(value)
        elif secrets.HOST_KEY.fullmatch(key):
            hosts.add(value)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            _collect(item, str(name), texts, users, hosts)
    elif isinstance(value, list) and value and not isinstance(value[0], (int, float)):
        for item in value:
            _collect(item, key, texts, users, hosts)


def _words(names: Iterable[str]) -> re.Pattern[str] | None:
    """What finds these names as whole words; None without any that is long and rare enough to be looked for."""
    telling = sorted({name for name in names if len(name) >= _SHORTEST and name.lower() not in _COMMON}, key=len)
    if not telling:
        return None
    alternatives = "|".join(map(re.escape, reversed(telling)))
    return re.compile(rf"(?<![A-Za-z0-9])(?:{alternatives})(?![A-Za-z0-9])")
