"""What in the text of a trace is nobody else's business: tokens, keys, passwords, environments, homes, users, hosts.

What is found is replaced by a word for what it was and counted by kind; it is never shown or logged. Patterns want
letters and digits behind a telling sign, so that the names of kernels and functions stay what they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from htareport.rows.secret_kinds import KEYS, PASSWORDS, TOKENS

Replacement: TypeAlias = str | Callable[[re.Match[str]], str]


class Pattern(NamedTuple):
    """What to look for where a text holds one of the `signs`, and what to put in its place."""

    kind: str
    signs: tuple[str, ...]
    regex: re.Pattern[str]
    replacement: Replacement


def _token(signs: str, pattern: str) -> Pattern:
    return Pattern(
        TOKENS, tuple(signs.lower().split()), re.compile(rf"(?<![A-Za-z0-9])(?:{pattern})(?![A-Za-z0-9])"), "[token]"
    )


def _pattern(kind: str, signs: str, pattern: str, replacement: Replacement) -> Pattern:
    return Pattern(kind, tuple(signs.lower().split()), re.compile(pattern, re.IGNORECASE | re.DOTALL), replacement)


# Words after which a value is a secret, and those after which it is one if it looks like one.
_START = r"(?:(?<![A-Za-z])|(?-i:(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=PASS|PWD|SECRET|TOKEN|KEY)))"
_STRONG = (
    r"pass(?:word|wd|phrase|code)|pwd|secret(?:[_-]?(?:access[_-]?)?key)?|client[_-]?secret|credentials?"
    r"|(?:api|access|account|shared|private|master|encryption|signing)[_-]?key(?:[_-]?id)?"
    r"|(?:auth|access|refresh|bearer|id|api|bot|hub|deploy)[_-]?token"
)
_MAYBE = r"token|auth(?:orization)?|(?:set-)?cookie|session(?:[_-]?id)?|[a-z]+_key"
_IS = r"\\?[\"']?\s{0,4}(?:[:=]|=>)\s{0,4}\\?[\"']?"
_NOT = r"(?!(?:none|null|true|false|str|int|bytes|bool|any|optional|\*+)\b)"
_VALUE = r"(?:(?<=[\"'])[^\"'\\]+|[^\s\"'`,;&<>(){}\[\]\\]+)"  # In quotes, or up to what ends a word.
_MIXED = r"(?=[\w+/=.~-]{0,80}?[0-9])(?=[0-9+/=._~-]{0,80}[a-z])[\w+/=.~-]{16,}"  # Letters and digits.
_PEM = r"(?:[A-Z0-9 ]{1,40} )?PRIVATE KEY(?: BLOCK)?-----"

PATTERNS = (
    _pattern(KEYS, "PRIVATE", rf"-----BEGIN {_PEM}.*?(?:-----END {_PEM}|\Z)", "[private key]"),
    _token("eyJ", r"eyJ[\w-]{8,}\.eyJ[\w-]{8,}(?:\.[\w-]*)?"),  # JSON web tokens
    _token("AKIA ASIA ABIA ACCA", r"A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16}"),
    _token("AIza ya29. GOCSPX-", r"AIza[\w-]{35}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{20,}"),
    _token("ghp_ gho_ ghu_ ghs_ ghr_ github_pat_", r"gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{22,}"),
    _token("glpat- gldt- glrt- glcbt- glptt-", r"gl(?:pat|dt|rt|cbt|ptt)-[\w.-]{20,}"),
    _token("xox xapp-", r"(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{10,}"),
    _token("hooks.slack.com", r"hooks\.slack\.com/(?:services|workflows)/[\w/-]{20,}"),
    _token("sk-", r"sk-(?=[A-Za-z_-]*[0-9])[\w-]{20,}"),  # OpenAI, Anthropic and others
    _token("hf_ api_org_", r"(?:hf|api_org)_[A-Za-z0-9]{30,}"),
    _token("wandb_v1_ local- nvapi-", r"wandb_v1_\w{30,}|local-[0-9a-f]{40}|nvapi-[\w-]{40,}"),
    _token("_live_ _test_ whsec_", r"(?:[rs]k_(?:live|test)|whsec)_[A-Za-z0-9]{16,}"),
    _token("npm_ pypi- dckr_pat_", r"npm_[A-Za-z0-9]{36}|pypi-[\w-]{50,}|dckr_pat_[\w-]{20,}"),
    _token("do dapi dp.pt.", r"do[opr]_v1_[0-9a-f]{64}|dapi[0-9a-f]{32}|dp\.pt\.[A-Za-z0-9]{40,}"),
    _token("SG. key- AC SK", r"SG\.[\w-]{16,}\.[\w-]{16,}|key-[0-9a-f]{32}|(?:AC|SK)[0-9a-f]{32}"),
    _token("hvs. hvb. .atlasv1.", r"hv[sb]\.[\w-]{24,}|[A-Za-z0-9]{14}\.atlasv1\.[\w-]{40,}"),
    _token("r8_ gsk_ ntn_ rpa_ lin_api_ shp", r"(?:r8|gsk|ntn|rpa|lin_api|shp(?:at|ss|ca|pa))_[A-Za-z0-9]{30,}"),
    _token("sntrys_ ATATT3 PMAK- NRAK-", r"(?:sntrys_|ATATT3|PMAK-|NRAK-)[\w=+/-]{26,}"),
    _token(":AA", r"[0-9]{8,10}:AA[\w-]{33}"),  # Telegram's bots
    _pattern(TOKENS, "bearer basic", r"\b(bearer|basic) {1,4}[\w.~+/=-]{16,}", r"\1 [token]"),
    _pattern(TOKENS, "sig= ignature=", r"(?<=[?&])((?:sig|X-Amz-Signature)=)[\w%+/=-]{20,}", r"\1[token]"),
    _pattern(PASSWORDS, "://", r"(?<=://)[^\s/:@\"']{0,200}:[^\s/@\"']{1,200}(?=@)", "[user]:[password]"),
    _pattern(TOKENS, "://", r"(?<=://)[^\s/:@\"'\[]{16,200}(?=@)", "[token]"),
    _pattern(
        PASSWORDS,
        "pass pwd secret credential key token",
        rf"({_START}(?:{_STRONG}){_IS}){_NOT}{_VALUE}",
        r"\1[password]",
    ),
    _pattern(
        PASSWORDS,
        "--",
        rf"(--[\w-]{{0,40}}?(?:pass(?:word|wd|phrase)|secret|token|api[_-]?key)[ =]{{1,4}}[\"']?){_NOT}{_VALUE}",
        r"\1[password]",
    ),
    _pattern(
        TOKENS,
        "token auth cookie session _key",
        rf"({_START}(?:{_MAYBE}){_IS}){_MIXED}",
        r"\1[token]",
    ),
)

_NAME = r"[^\s/\\\"':;,()<>|\[\]{}]{1,64}"
HOME = re.compile(
    rf"(?<![\w.~-])(?:(?:/[\w.-]{{1,64}}){{0,12}}?/(?:home|Users|users)/({_NAME})|/root(?=[/\s\"':;,)]|\Z)"
    rf"|[A-Za-z]:(?:\\\\?|/)Users(?:\\\\?|/)({_NAME}))"
)
TILDE = re.compile(r"(?<![\w/.~-])~([A-Za-z_][\w.-]{0,63})(?=/)")
HOME_SIGNS = ("/home/", "/Users/", "/users/", "\\Users", "/root", "~")
MAIL = re.compile(r"(?<![\w.+-])([a-z_][\w.+-]{0,63})@((?!v\d)[a-z][a-z0-9-]*(?:\.[a-z0-9-]+)*)(?![\w@])")
TELLING_HOST = re.compile(r"[\d.-]")  # Without any of these what follows an @ may be a word: `malloc@plt`.
HOST = re.compile(
    r"(?<![\w.-])(?:ip-\d{1,3}(?:-\d{1,3}){3}(?:\.[a-z][\w-]*)*"
    r"|(?=[a-z-]{0,40}\d)[a-z][a-z0-9-]*(?:\.[a-z0-9-]+){0,4}\.(?:internal|local|lan|corp|intranet|cluster|localdomain)"
    r"|(?<=tcp://)[\w.-]+|(?<=ssh://)[\w.-]+|(?<=nfs://)[\w.-]+"
    r"|(?:\d{1,3}\.){3}\d{1,3}(?=:\d{2,5}\b)|(?:192\.168|172\.(?:1[6-9]|2\d|3[01]))(?:\.\d{1,3}){2})(?![\w-])"
)
HOST_SIGNS = ("ip-", ".internal", ".local", ".lan", ".corp", ".intranet", ".cluster", "://", "192.168.", "172.", ":")

USER_KEY = re.compile(r"(?:user(?:_?name)?|login|logname|owner|author|account)", re.IGNORECASE)
HOST_KEY = re.compile(r"(?:(?:\w+_)?host(?:_?name)?|node(?:_?name)?|nodelist|fqdn|master_addr)", re.IGNORECASE)
SECRET_KEY = re.compile(rf"(?:.*[^a-z])?(?:{_STRONG}|token|cookie|authorization)", re.IGNORECASE)
ENVIRONMENT_KEY = re.compile(r"(?:.*_)?(?:env|environ|environment(?:_variables)?|env_vars)", re.IGNORECASE)
USER_SET = re.compile(r"\b(?:USER|LOGNAME|USERNAME|SUDO_USER|SLURM_JOB_USER)['\"]?[=:] ?['\"]?([\w.-]{2,64})")
HOST_SET = re.compile(r"\b(?:HOSTNAME|HOST|SLURMD_NODENAME|NODENAME|MASTER_ADDR)['\"]?[=:] ?['\"]?([\w.-]{2,120})")

_ASSIGNED = re.compile(r"(?:export +|declare -x +)?[A-Za-z_][A-Za-z0-9_]*=")
_NAMED = re.compile(r"[A-Z_][A-Z0-9_]{2,}=")
_LINES = re.compile(r"(\r?\n|\0|\\n)")
_WORDS = re.compile(r"( )(?=[A-Z_][A-Z0-9_]{2,}=)")
_IN_PYTHON = re.compile(
    r"(?:environ\()?\{?(?:b?(?:'[A-Z_][A-Z0-9_]{0,80}'|\"[A-Z_][A-Z0-9_]{0,80}\")"
    r": ?b?(?:'[^']*'|\"[^\"]*\"),? ?){3,}\}?\)?"
)
_FEW_LINES, _FEW_WORDS = 3, 5  # Assignments one after the other that make an environment.
_DUMP = "[environment]"


def without_environments(text: str) -> tuple[str, int]:
    """Return a text without dumps of environments (lines or words NAME=value, or Python's dict), and their number."""
    count = 0
    if "': '" in text or '": "' in text:
        text, count = _IN_PYTHON.subn(_DUMP, text)
    for separator, min_assignments in ((_LINES, _FEW_LINES), (_WORDS, _FEW_WORDS)):
        if text.count("=") >= min_assignments:
            text, num_replaced = _without_runs(separator.split(text), min_assignments)
            count += num_replaced
    return text, count


def _without_runs(fragments: list[str], min_assignments: int) -> tuple[str, int]:
    """Replace what lies between the first and last assignment, if most of it are assignments."""
    assigned = [index for index in range(0, len(fragments), 2) if _ASSIGNED.match(fragments[index])]
    named = sum(_NAMED.search(fragments[index]) is not None for index in assigned)
    if named < min_assignments or len(assigned) < (assigned[-1] - assigned[0]) // 4:
        return "".join(fragments), 0
    trailing_text = fragments[assigned[-1]].partition(" ")[2] if min_assignments == _FEW_WORDS else ""
    remaining = [
        *fragments[: assigned[0]],
        _DUMP,
        " " * bool(trailing_text),
        trailing_text,
        *fragments[assigned[-1] + 1 :],
    ]
    return "".join(remaining), 1
