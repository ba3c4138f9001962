"""Whose time it is: claims cut the steps into pieces, each claimed by just some rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

Pieces: TypeAlias = Mapping[tuple[str, ...], float]  # Time per step that is claimed by just these rules, ns.


def length(pieces: Pieces, codes: Collection[str], without: Collection[str] = ()) -> float:
    """Time per step that any of these rules claims and none of the others."""
    wanted, others = set(codes), set(without)
    return sum(ns for piece, ns in pieces.items() if wanted & set(piece) and not others & set(piece))


def given(pieces: Pieces, giver: str, taker: str, amount: float) -> dict[tuple[str, ...], float]:
    """Pieces of which a rule gets so much of another's time: an equal share of each, since it is not known where.

    Of what it claims itself the rest is nobody's.
    """
    whole = sum(ns for piece, ns in pieces.items() if giver in piece)
    share = min(1.0, amount / whole) if whole else 0.0
    made = defaultdict[tuple[str, ...], float](float)
    for piece, ns in pieces.items():
        part = ns * share if giver in piece else 0.0
        others = tuple(code for code in piece if code != giver)
        made[others if giver == taker else piece] += ns - part
        made[*others, taker] += part
    return {piece: ns for piece, ns in made.items() if piece and ns}


def without(pieces: Pieces, codes: Collection[str]) -> dict[tuple[str, ...], float]:
    """What is left of pieces if some rules claim nothing."""
    made = defaultdict[tuple[str, ...], float](float)
    for piece, ns in pieces.items():
        if left := tuple(code for code in piece if code not in codes):
            made[left] += ns
    return dict(made)


@dataclass(frozen=True)
class PieceTable:
    """The pieces of all ranks: a row for each rank, a column for each piece; `claims` says which are whose, by code."""

    ns: NDArray[np.float64]
    claims: Mapping[str, NDArray[np.bool_]]

    @classmethod
    def of(cls, ranks: Sequence[Pieces], codes: Collection[str]) -> Self:
        """Make it of each rank's pieces."""
        every = sorted({piece for pieces in ranks for piece in pieces})
        ns = np.array([[pieces.get(piece, 0.0) for piece in every] for pieces in ranks], np.float64)
        return cls(
            ns.reshape(len(ranks), len(every)),
            {code: np.array([code in piece for piece in every], np.bool_) for code in codes},
        )

    def most(self, claimed: NDArray[np.bool_]) -> float:
        """The time of some pieces, on the rank where that is longest."""
        return float(self.ns[:, claimed].sum(axis=1).max(initial=0.0))

    def any_of(self, codes: Collection[str]) -> NDArray[np.bool_]:
        """The pieces that any of these rules claims."""
        found = np.zeros(self.ns.shape[1], np.bool_)
        for code in codes:
            found |= self.claims[code]
        return found

    def further(self, code: str, before: Collection[str]) -> float:
        """What a rule claims and none of those before, on the rank where that is longest."""
        return self.most(self.claims[code] & ~self.any_of(before))

    def overlap(self, code: str, other: str) -> float:
        """The share of what a rule claims that another claims as well, on the rank where that is least."""
        if code not in self.claims or other not in self.claims:
            return 0.0
        own = self.ns[:, self.claims[code]].sum(axis=1)
        shared = self.ns[:, self.claims[code] & self.claims[other]].sum(axis=1)
        return float((shared[own > 0] / own[own > 0]).min(initial=1.0)) if (own > 0).any() else 0.0
