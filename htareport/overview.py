"""The answer in a sentence, from the key numbers of the sections."""

from __future__ import annotations

from collections.abc import Sequence

from htareport.report import Fact, Section, Unit
from htareport.trace.summary import RankFacts
from htareport.units import text

_WORTH_SAYING = 0.005  # Shares below this are left out of the sentence.
_MOSTLY = 0.5


def verdict(sections: Sequence[Section], ranks: Sequence[RankFacts]) -> str:
    """Say what a step takes, where its time goes and who is slowest, as far as the run tells."""
    facts = {fact.name: fact for section in sections for fact in section.facts}
    has_gpu, shares = any(each.num_device_events for each in ranks), _shares(facts)
    duration = _duration(facts, ranks, has_gpu=has_gpu) + (":" if shares else ".")
    return " ".join([duration, *shares, *_slowest(facts), *([] if has_gpu else _host_only(facts))])


def _duration(facts: dict[str, Fact], ranks: Sequence[RankFacts], *, has_gpu: bool) -> str:
    if step := facts.get("step_time"):
        return f"{text(step.value, Unit.NANOSECONDS)} per step{'' if has_gpu else ' on the host'}"
    longest = max((each.recorded_ns for each in ranks), default=0)
    recorded = text(longest, Unit.NANOSECONDS) if any(each.num_events for each in ranks) else "Nothing"
    return f"{recorded} recorded{'' if any(each.all_steps for each in ranks) else ', without steps'}"


def _shares(facts: dict[str, Fact]) -> list[str]:
    compute, comm, idle = (facts.get(f"{name}_share") for name in ("compute", "exposed_comm", "idle"))
    if not compute or not comm or not idle or compute.value is None or comm.value is None or idle.value is None:
        return []
    shares = [(compute.value, "computing"), (comm.value, "exposed communication"), (idle.value, "GPU idle")]
    memory = 1 - compute.value - comm.value - idle.value
    shares.append((memory, "exposed copies"))
    said = [f"{_percent(v)} {words}" for v, words in shares if v >= _WORTH_SAYING]
    cause = facts.get("host_wait_share")
    if cause and cause.value is not None and idle.value >= _WORTH_SAYING and cause.value >= _MOSTLY:
        where = next(i for i, part in enumerate(said) if part.endswith("GPU idle"))
        said[where] += f" ({_percent(cause.value)} of the gaps because the host launches late)"
    return [f"{', '.join(said)}."]


def _percent(share: float) -> str:
    """Whole percents: a sentence wants no decimals, and the table has them."""
    return f"{100 * share:.0f}\u202f%"


def _slowest(facts: dict[str, Fact]) -> list[str]:
    said = []
    if (late := facts.get("late_rank")) and late.value is not None:
        said.append(f"The others wait for rank {int(late.value)} ({late.detail}).")
    if (slow := facts.get("slowest_rank")) and slow.value is not None:
        said.append(f"Rank {int(slow.value)} takes longest ({slow.detail}).")
    said = said[:1]
    if (step := facts.get("slow_step")) and step.value is not None:
        said.append(f"Step {int(step.value)} is slow ({step.detail}).")
    return said


def _host_only(facts: dict[str, Fact]) -> list[str]:
    top = facts.get("top_operator_share")
    said = ["No GPU activity was recorded."]
    if top and top.value is not None:
        said.append(f"{top.detail} takes {_percent(top.value)} of the host operators' time.")
    return said
