"""Kinds of secrets that a trace may hold."""

from __future__ import annotations

TOKENS, KEYS, PASSWORDS = "tokens", "private keys", "passwords"
ENVIRONMENTS, HOMES, USERS, HOSTS = "environment dumps", "home folders", "user names", "host names"


def counted(number: int, kind: str) -> str:
    """So many secrets of a kind, in words."""
    return f"{number:,} {kind.removesuffix('s') if number == 1 else kind}"
