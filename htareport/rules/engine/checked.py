"""What was looked for, and how that came out: the table behind the findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from htareport.report import Column, Table, TableSpec, Unit, key
from htareport.rules.engine.base import AnyRule
from htareport.rules.engine.evaluate import RankEvidence

TOO_LITTLE = "too little by itself"
_OUTCOMES = (
    "found; too little by itself: below 0.5 % of the step, or explained by other findings; fine: not found; held back: "
    "the trace does not show it as it was; not checked: what the trace lacks for it."
)


def checked(rules: Sequence[AnyRule], ranks: Sequence[RankEvidence], outcomes: Mapping[str, str]) -> Table:
    """What was looked for, and how that came out."""
    spec = TableSpec(
        "checked",
        "What was looked for",
        (
            key("code", "Rule", Unit.TEXT, "htareport explain CODE tells its condition."),
            Column("title", "What", Unit.TEXT, "What the rule looks for."),
            Column("family", "About", Unit.TEXT, "Its family."),
            Column("state", "Outcome", Unit.TEXT, _OUTCOMES),
        ),
        is_detail=True,
    )
    states = [outcomes.get(rule.code) or _state(rule.code, ranks) for rule in rules]
    rows = [(rule.code, rule.title, str(rule.family), state) for rule, state in zip(rules, states, strict=True)]
    return Table(spec, pd.DataFrame(rows, columns=["code", "title", "family", "state"]))


def _state(code: str, ranks: Sequence[RankEvidence]) -> str:
    """The outcome of a rule of which nothing is told."""
    if any(code in rank.errors for rank in ranks):
        return "failed"
    if any(code in rank.checked for rank in ranks):
        return "fine"
    lacking = next((rank.lacking[code] for rank in ranks if code in rank.lacking), ())
    return f"not checked: {'; '.join(lacking)}" if lacking else "not checked"
