"""A rule about tokens, passwords, and names of users and hosts in the trace files."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from htareport.rank.rank import Rank
from htareport.reading.redact import HOST_SIGN, redacted
from htareport.report.findings import Finding, Severity
from htareport.rows.secret_kinds import ENVIRONMENTS, HOMES, HOSTS, KEYS, PASSWORDS, TOKENS, USERS, counted
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence
from htareport.rules.engine.recording import joined_words

_SECRETS = (TOKENS, KEYS, PASSWORDS, ENVIRONMENTS)  # These give access; names only show who ran what where.
_NAMES = (HOMES, USERS, HOSTS)


@dataclass(frozen=True, kw_only=True)
class SensitiveEvidence(Evidence):
    """How many texts of each kind look sensitive, and whether the report shows them."""

    counts: dict[str, int]
    is_shown: bool


@dataclass(frozen=True)
class Sensitive(Rule[SensitiveEvidence]):
    """The trace files hold tokens, passwords, or names of users and hosts.

    ## When it speaks
    At least `fewest` names, arguments or metadata of a rank hold something that looks like a token, key, password, dump
    of an environment, home folder, or name of a user or host. The host in a file's own name does not count.

    ## What it could save
    Nothing. The finding is about who may see the files. What was found is counted, never shown.

    ## What to do
    - **shown**: Make the report without `--no-redact` before anybody else gets it.
    - **redacted**: This report shows stand-ins instead. Be careful who you share the trace files with.
    - **secrets**: Replace tokens and passwords that others may have seen. Then find what wrote them: usually
      `prof.add_metadata`, `record_function` with a text of the run's configuration, or command lines.
    - **names**: To leave out names of folders and users, record without `with_stack=True`. Names of hosts come from
      the profiler's own metadata.

    ## How to verify
    New traces hold no secrets, or only names of users, folders and hosts.
    """

    code, title, family = "Q10", "Sensitive data in the trace files", Family.QUALITY
    section, confidence = "trace_quality", "medium"

    fewest: float = 1.0

    def look(self, rank: Rank) -> SensitiveEvidence | None:
        loaded = rank.loaded
        clean = loaded if loaded.is_redacted else redacted(loaded)
        counts = Counter(clean.redactions)
        counts[HOSTS] -= sum(str(capture.meta.get("traceName", "")).count(HOST_SIGN) for capture in clean.captures)
        if sum((+counts).values()) < self.fewest:
            return None
        return SensitiveEvidence(counts=dict(+counts), is_shown=not loaded.is_redacted)

    def tell(self, job: JobEvidence[SensitiveEvidence]) -> Finding:
        counts, is_shown = Counter[str](), any(evidence.is_shown for evidence in job.by_rank.values())
        for evidence in job.by_rank.values():
            counts.update(evidence.counts)
        secrets = [kind for kind in _SECRETS if counts[kind]]
        kinds = [*secrets, *(kind for kind in _NAMES if counts[kind])]
        of_ranks = f" of {len(job.by_rank)} ranks" if len(job.by_rank) > 1 else ""
        numbers = joined_words([counted(counts[kind], kind) for kind in kinds])
        return self.finding(
            job,
            f"The trace files hold {joined_words(secrets or kinds)}"
            + (", and so does this report: it was made with `--no-redact`" if is_shown else ""),
            evidence=f"In the distinct texts of the files{of_ranks}: {numbers}. Values are not shown here.",
            cases=("shown" if is_shown else "redacted", "secrets" if secrets else "names"),
            snippet="" if not is_shown else "htareport report traces/ -o report.html  # Redacts by default.",
            severity=Severity.LOW,  # It costs no time; the report warns of secrets at its top.
        )
