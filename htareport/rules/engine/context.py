"""What rules know of each other while they look at a rank: which ones look at it, and what those before have found."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from htareport.rank.cached import cached_on_rank
from htareport.rank.rank import Rank


class Claims(Protocol):
    """A rule that can say of which device work it tells the cause."""

    code: ClassVar[str]

    def own_events(self, rank: Rank) -> NDArray[np.bool_] | None:
        """Which device events it claims, None for none or where it cannot look."""


class Context:
    """The rules that look at a rank, and the codes of those that have found something on it so far."""

    def __init__(self) -> None:
        self._rules = dict[str, Any]()
        self.found = set[str]()

    def begin(self, rules: Iterable[Claims]) -> None:
        """Start over with these rules."""
        self._rules = {rule.code: rule for rule in rules}
        self.found.clear()

    def rule(self, code: str) -> Any:
        """The rule of a code, if it looks at the rank as well; else None."""
        return self._rules.get(code)

    def explained(self, rank: Rank, *codes: str) -> NDArray[np.bool_]:
        """Which device events rules of these codes claim, if they look at the rank: others leave these to them."""
        explained = np.zeros(len(rank.device_events), np.bool_)
        for rule in (self._rules[code] for code in codes if code in self._rules):
            try:
                claimed = rule.own_events(rank)
            except Exception:  # noqa: BLE001, S112  it fails when it looks itself, and says so there
                continue
            if claimed is not None:
                explained |= claimed
        return explained


@cached_on_rank
def context_of(rank: Rank) -> Context:
    """The context in which rules look at a rank."""
    del rank
    return Context()
