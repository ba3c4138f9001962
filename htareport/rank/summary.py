"""What is worth knowing of a rank and of a job besides their numbers: files, devices, versions, steps, oddities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from htareport.algorithms.integers import Numbers
from htareport.rank.rank import Rank
from htareport.rank.window import Window
from htareport.report.number_lists import listed
from htareport.rows import metadata
from htareport.rows.secret_kinds import ENVIRONMENTS, KEYS, PASSWORDS, TOKENS, counted

_MOST_LISTED = 1_024  # Ranks, files and warnings in a report, however many the job has.
_MOST_LEFT_OUT = 200  # Names of files in a report that were no traces.
_FEW_LEFT_OUT = 5
SECRETS = (TOKENS, KEYS, PASSWORDS, ENVIRONMENTS)
_YEAR_2000_NS = 946_684_800 * 10**9  # Below this, stamps count from something else than the epoch.


@dataclass(frozen=True)
class RankFacts:
    """What a worker says about its rank."""

    rank: int
    start_ns: int | None
    recorded_ns: int  # Without the time between captures.
    files: tuple[tuple[str, int], ...]  # Name, bytes on disk.
    devices: dict[str, str]  # Number as text: name, empty if the trace gives none.
    steps: Numbers
    all_steps: Numbers
    num_events: int
    num_device_events: int
    has_base: bool
    world_size: int | None
    software: dict[str, str]
    capture: dict[str, bool]
    warnings: tuple[str, ...] = ()
    problems: tuple[tuple[str, str], ...] = field(default=())
    salvaged: tuple[str, ...] = ()
    host: str = ""
    redactions: Mapping[str, int] = field(default_factory=dict)  # By kind.


def facts_of(trace: Rank) -> RankFacts:
    """Collect what is worth knowing of a rank."""
    meta = trace.captures[0].meta
    steps, all_steps = (Numbers.of(np.array(each)) for each in (trace.steps["number"], trace.all_step_numbers))
    return RankFacts(
        rank=trace.rank,
        start_ns=trace.start_ns,
        recorded_ns=sum((c.last_ns or 0) - (c.first_ns or 0) for c in trace.captures),
        files=tuple((capture.name, capture.size) for capture in trace.captures),
        devices={str(device): trace.device_name(device) for device in trace.devices},
        steps=steps,
        all_steps=steps if steps == all_steps else all_steps,  # The same object crosses to the parent once.
        num_events=len(trace.events),
        num_device_events=len(trace.device_events),
        has_base=any(capture.base_ns for capture in trace.captures),
        world_size=metadata.world_size_of(meta),
        software=metadata.software(meta),
        capture=metadata.capture_options(meta),
        warnings=trace.warnings,
        problems=trace.problems,
        salvaged=trace.salvaged,
        host=next((capture.host for capture in trace.captures if capture.host), ""),
        redactions=trace.loaded.redactions,
    )


def job_meta(ranks: Sequence[RankFacts], left_out: Sequence[tuple[str, str]], window: Window) -> dict[str, Any]:
    """Describe the job for the report: what was read, with what it was recorded, and which part the numbers cover."""
    devices = Counter(name or "unnamed device" for rank in ranks for name in rank.devices.values())
    steps = sorted({step for rank in ranks for step in rank.steps})
    start = min((rank.start_ns for rank in ranks if rank.start_ns is not None), default=0)
    named = _named(ranks)
    files = sorted((_file(r, name, size) for r in named for name, size in r.files), key=lambda each: "note" not in each)
    num_files = sum(len(rank.files) for rank in ranks)
    meta: dict[str, Any] = {
        "ranks": [
            {"rank": r.rank, "files": [name for name, _ in r.files], "devices": list(r.devices), "events": r.num_events}
            | ({"host": r.host} if r.host else {})
            | ({"salvaged": list(r.salvaged)} if r.salvaged else {})
            for r in named
        ],
        "num_ranks": len(ranks),
        "world_size": _common([rank.world_size for rank in ranks]),
        "devices": dict(sorted(devices.items())),
        "window": window.describe(),
        "zero_ns": start,
        "recorded_ns": max((rank.recorded_ns for rank in ranks), default=0),
        "software": _common([rank.software for rank in ranks]) or {},
        "capture": _common([rank.capture for rank in ranks]) or {},
        "files": sorted(
            sorted(files, key=lambda each: "note" not in each)[:_MOST_LISTED], key=lambda each: each["rank"]
        ),
        "left_out": [{"name": name, "reason": reason} for name, reason in left_out[:_MOST_LEFT_OUT]],
    }
    if num_files > _MOST_LISTED:
        meta["num_files"] = num_files
    if len(left_out) > _MOST_LEFT_OUT:
        meta["files_left_out"] = len(left_out)
    if steps:
        meta["steps"] = {"count": len(steps), "first": steps[0], "last": steps[-1]}
    if start > _YEAR_2000_NS:
        meta["start"] = datetime.fromtimestamp(start // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return meta


def _named(ranks: Sequence[RankFacts]) -> list[RankFacts]:
    """Those that a report names one by one, in order: all; of very many the damaged ones, and then the first."""
    chosen = sorted(ranks, key=lambda each: not each.salvaged)[:_MOST_LISTED]
    return sorted(chosen, key=lambda each: each.rank)


def first_of(texts: Sequence[str], what: str) -> list[str]:
    """Return as many as a report holds, and a last one that says how many more there are."""
    more = len(texts) - _MOST_LISTED
    return [*texts[:_MOST_LISTED], f"{more:,} more {what}{'s' if more > 1 else ''}"] if more > 0 else list(texts)


def _file(rank: RankFacts, name: str, size: int) -> dict[str, Any]:
    note = {"note": "salvaged"} if any(f"{name}:" in text for text in rank.salvaged) else {}
    return {"name": name, "bytes": size, "rank": rank.rank, **note}


def left_out_warnings(left_out: Sequence[tuple[str, str]]) -> Iterator[str]:
    """One for each file that was no trace, or of many files one for all."""
    if len(left_out) <= _FEW_LEFT_OUT:
        yield from (f"{name}: left out: {reason}" for name, reason in left_out)
        return
    named = "; ".join(f"{name}: {reason}" for name, reason in left_out[:_FEW_LEFT_OUT])
    yield f"{len(left_out)} files left out: {named}; and {len(left_out) - _FEW_LEFT_OUT} more"


def secret_warnings(ranks: Sequence[RankFacts]) -> Iterator[str]:
    """A warning if there are secrets in the trace files themselves."""
    found = Counter[str]()
    for rank in ranks:
        found.update({kind: rank.redactions[kind] for kind in SECRETS if kind in rank.redactions})
    if found:
        listed_kinds = ", ".join(counted(number, kind) for kind, number in found.items())
        yield f"the trace files hold secrets ({listed_kinds}); they are redacted here, but mind who gets the files"


def step_warnings(ranks: Sequence[RankFacts], window: Window) -> Iterator[str]:
    """A warning if steps were asked for that are on no rank."""
    absent = (window.steps or frozenset()) - {step for rank in ranks for step in rank.all_steps}
    if absent:
        yield f"asked for, but on no rank: step{'s' if len(absent) > 1 else ''} {listed(absent)}"


def consistency_warnings(ranks: Sequence[RankFacts], unasked: frozenset[int] = frozenset()) -> Iterator[str]:
    """Warnings about ranks that are missing or do not fit together; those left `unasked` are not missing."""
    yield from _world_warnings(ranks, unasked)
    if len({rank.has_base for rank in ranks}) > 1:
        yield "some files give a base time and others do not: times cannot be compared between their ranks"
    with_steps = [rank for rank in ranks if rank.steps]
    if with_steps and len({rank.steps for rank in ranks}) > 1:
        common = set(with_steps[0].steps).intersection(*(with_step.steps for with_step in with_steps))
        yield f"the ranks hold different steps; {len(common)} are on all that have any"
    kinds: dict[str, list[Any]] = {
        "software versions": [e.software for e in ranks],
        "capture options": [e.capture for e in ranks],
    }
    for what, values in kinds.items():
        if any(value != values[0] for value in values):
            odd = next(each.rank for each, value in zip(ranks, values, strict=True) if value != values[0])
            yield f"the ranks were recorded with different {what} (rank {odd} differs from rank {ranks[0].rank})"


def _world_warnings(ranks: Sequence[RankFacts], unasked: frozenset[int]) -> Iterator[str]:
    sizes = {rank.world_size for rank in ranks if rank.world_size is not None}
    if len(sizes) > 1:
        yield f"the ranks give different world sizes ({', '.join(map(str, sorted(sizes)))}): one run?"
    beyond = [rank.rank for rank in ranks if rank.world_size is not None and rank.rank >= rank.world_size]
    if beyond:
        some = f"rank{'s' if len(beyond) > 1 else ''} {listed(beyond)}"
        yield f"{some} cannot be: the files give a world size of {max(sizes)}, so ranks below that. One run?"
    elif len(sizes) == 1 and (size := max(sizes)) > (here := len(ranks) + len(unasked)):
        yield f"{here} of {size} ranks are here: what is said about the slowest rank holds for these only"


def _common(values: list[Any]) -> Any:
    return values[0] if values and all(value == values[0] for value in values) else None
