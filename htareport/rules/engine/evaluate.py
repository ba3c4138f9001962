"""What workers do for rules: look at one rank with each, and cut its steps into pieces by what is claimed there."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from htareport.algorithms.frame_packing import Packed, pack
from htareport.algorithms.intervals import EMPTY, Intervals
from htareport.job.replay import EVERYTHING
from htareport.rank.capability import Capability
from htareport.rank.collectives import RankCollectives, collectives_of
from htareport.rank.rank import Rank
from htareport.rank.replay.edits import RankEdit, edit_of_claim, is_within, together
from htareport.rank.replay.program import program_of
from htareport.rank.replay.summary import RankReplay, replay_of
from htareport.rank.training import infers
from htareport.rules.engine.base import AnyRule
from htareport.rules.engine.context import context_of
from htareport.rules.engine.evidence import Evidence


@dataclass
class RankEvidence:
    """What rules found on one rank.

    `pieces` is the time per step and device that is claimed by just these rules (codes, in order), in ns. `checked` are
    the codes of the rules that could look, `lacking` says what others lack, `errors` what they raised. `replay` is the
    rank's part of the replay of the job; else why it has none, as words.
    """

    rank: int
    found: dict[str, Evidence] = field(default_factory=dict[str, Evidence])
    pieces: dict[tuple[str, ...], float] = field(default_factory=dict[tuple[str, ...], float])
    checked: list[str] = field(default_factory=list[str])
    lacking: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    errors: dict[str, str] = field(default_factory=dict[str, str])
    steps: Packed | None = None  # A frame of that name: `number` and `length`, ns.
    whole: float = 0.0  # Without steps: mean span of the devices, ns.
    idle: float = 0.0  # Share of the windows in which the devices run nothing.
    replay: RankReplay | str = ""
    collectives: RankCollectives | None = None  # None without communication.
    infers: bool = False  # Whether it only infers, as far as operators tell.


def evaluate_rank(rank: Rank, rules: Sequence[AnyRule], every: int = 1) -> RankEvidence:
    """Look at one rank with every rule. Never raises. The lengths of steps are those of every so many."""
    context, made = context_of(rank), RankEvidence(rank.rank)
    context.begin(rules)
    for before, rule in zip([None, *rules], rules, strict=False):
        if before and before.family != rule.family:
            rank.release()  # Families share little, and what stays adds to the peak of those to come.
        try:
            if lacking := rule.lacking(rank):
                made.lacking[rule.code] = lacking
                continue
            evidence = rule.look(rank)
            made.checked.append(rule.code)
            if evidence is not None:
                context.found.add(rule.code)
                made.found[rule.code] = replace(evidence, claim=rank.clipped(dict(evidence.claim)))
        except Exception:  # noqa: BLE001  a rule that fails costs only its finding
            made.errors[rule.code] = traceback.format_exc(limit=-3)
    steps = rank.steps
    if len(steps):
        chosen = steps["number"] % every == 0
        kept = steps[chosen] if chosen.any() else steps
        lengths = pd.DataFrame({"number": kept["number"], "length": kept["end"] - kept["start"]})
        made.steps = pack({"steps": lengths})
    made.whole = rank.whole / max(len({device for device, _ in rank.lanes}), 1)
    made.idle = rank.share(rank.idle)
    made.pieces = _pieces(made.found, rank)
    try:
        if Capability.COMM in rank.capabilities:
            made.collectives = collectives_of(rank)
        made.replay = _replay(made.found, rank)
    except Exception as error:  # noqa: BLE001  it costs what is said of a changed job
        made.replay = f"it could not be replayed: {type(error).__name__}: {error}"
    made.infers = infers(rank)
    made.found = {code: replace(evidence, claim={}, edit=None) for code, evidence in made.found.items()}  # Stay here.
    rank.release()  # Some of it refers to the rank, which would keep the events alive.
    return made


def _replay(found: dict[str, Evidence], rank: Rank) -> RankReplay | str:
    """The rank's part of the replay, with what each rule changes, and with all of that."""
    program = program_of(rank)
    if isinstance(program, str):
        return program
    edits = dict[str, RankEdit]()
    for code, evidence in found.items():
        if evidence.edit is not None:
            edits[code] = evidence.edit
        elif is_within(program, evidence.claim):
            edits[code] = edit_of_claim(rank, program, evidence.claim)
    return replay_of(rank, edits | ({EVERYTHING: together(list(edits.values()))} if len(edits) > 1 else {}))


def _pieces(found: dict[str, Evidence], rank: Rank) -> dict[tuple[str, ...], float]:
    """Lengths of the pieces, per step and device."""
    codes = [code for code, evidence in found.items() if evidence.claim]
    sums = Counter[int]()
    for lane in rank.lanes:
        sums.update(_cut([found[code].claim.get(lane, EMPTY) for code in codes]))
    per = max(rank.num_steps, 1) * max(len({device for device, _ in rank.lanes}), 1)
    return {
        tuple(code for place, code in enumerate(codes) if mask >> place & 1): length / per
        for mask, length in sorted(sums.items())
    }


def _cut(claims: Sequence[Intervals]) -> Counter[int]:
    """Length of each combination of claims, a bit for each."""
    edges = [np.concatenate((claim[:, 0], claim[:, 1])) for claim in claims]
    stamps = np.concatenate(edges or [np.zeros(0, np.int64)])
    if not len(stamps):
        return Counter()
    bits = np.concatenate(
        [np.repeat(np.array([1, -1], object) * (1 << place), len(claim)) for place, claim in enumerate(claims)]
    )
    order = np.argsort(stamps, kind="stable")
    masks = np.cumsum(bits[order])[:-1]
    lengths, sums = np.diff(stamps[order]), Counter[int]()
    for mask, length in zip(masks.tolist(), lengths.tolist(), strict=True):
        if mask and length:
            sums[mask] += length
    return sums
