"""The rule about communication that compute waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from htareport.findings import Finding
from htareport.report import Unit
from htareport.rules.base import Evidence, Family, Found, Rule
from htareport.rules.communication_sets import (
    SINGLE,
    awaited,
    compute,
    covered_by,
    exposed,
    kernels,
)  # fmt: skip
from htareport.rules.host_rows import of, per
from htareport.rules.rank import Rank, minus, total
from htareport.trace import Capability
from htareport.trace.metadata import world_size_of
from htareport.units import text

_MOST_GROUPS, _LEAST_SHOWN = 3, 0.02


@dataclass(frozen=True)
class ExposedCommunication(Rule):
    """Communication takes time in which the device computes nothing.

    ## When it speaks
    Communication kernels run while no compute does, for at least `least` of the step. What does not count: time in
    which the host has not launched the next compute anyway, and what ranks wait for each other, as far as N3, N4 and
    N6 speak of it.

    ## What it could save
    All of that time, if it were hidden under compute or went away; half of it is the lower estimate.

    ## What to do
    Start collectives earlier, so that compute runs meanwhile: smaller buckets (DDP), prefetching (FSDP),
    `async_op=True`. Send less: reduce in bf16, accumulate gradients under `no_sync()`. Where it is waiting for another
    rank, nothing of that helps: record all ranks to see.

    ## How to verify
    *Exposed communication* goes down in `htareport diff`, and the step gets shorter.
    """

    code, title, family, section = "N1", "Communication is exposed", Family.COMMUNICATION, "comm_overlap"
    requires = frozenset({Capability.GPU, Capability.COMM})
    about_idle, confidence = True, "high"

    least: float = 0.05

    def look(self, rank: Rank) -> Evidence | None:
        claim, every = awaited(rank), per(rank)
        rows = kernels(rank)
        numbers = {
            "exposed": total(exposed(rank)) / every,
            "late": (total(exposed(rank)) - total(claim)) / every,
            "communication": total(rank.busy("comm")) / every,
            "alone": total(minus(compute(rank), rank.busy("comm"))) / every,
            "groups": _groups(rows.assign(awaited=covered_by(rank, claim, rows)), every),
            "world": world_size_of(rank.trace.captures[0].meta) or 1,
        }
        return Evidence(claim, numbers, rank.spans(claim))

    def tell(self, found: Found) -> Finding | None:
        n = found.numbers
        if found.share < self.least:
            return None
        return self.finding(
            found,
            f"Communication is exposed for {found.percent(found.share)} of {of(found)}: {found.time(found.most)} "
            f"{found.per}",
            evidence=" ".join(self._evidence(found, n)),
            advice=" ".join(self._advice(found, n)),
            assumption="All of it is hidden under compute, or goes away; half of it is the lower estimate.",
            verify="`exposed_comm_pct` goes down in `htareport diff`.",
            snippet=_snippet(n["groups"][0]["collective"] if n["groups"] else ""),
        )

    @staticmethod
    def _evidence(found: Found, n: Mapping[str, Any]) -> list[str]:
        elsewhere = n["exposed"] - n["late"] - found.most
        length, alone = found.time(n["communication"]), found.time(n["exposed"])
        said = [f"On rank {found.worst} there is communication for {length} {found.per}, without compute for {alone}."]
        if n["late"] > 0.01 * n["exposed"]:
            said.append(f"In {found.time(n['late'])} the host has not launched the next compute anyway.")
        if elsewhere > 0.01 * n["exposed"]:
            said.append(f"{found.time(elsewhere)} are waiting for late ranks, which is said elsewhere.")
        return said + [_group_words(group, found) for group in n["groups"]]

    @staticmethod
    def _advice(found: Found, n: Mapping[str, Any]) -> list[str]:
        said = []
        if n["world"] > found.num_ranks:
            recorded = "is" if found.num_ranks == 1 else "are"
            said.append(
                f"Only {found.num_ranks} of {n['world']} ranks {recorded} recorded: record all of them to see what of "
                "this is waiting for a late rank."
            )
        if found.most > n["alone"]:
            said.append(
                f"Only {found.time(n['alone'])} of compute run without communication, so that hiding is not enough: "
                "send less, less often, or over faster links."
            )
        return [*said, _remedy(n["groups"][0] if n["groups"] else {})]


def _groups(rows: pd.DataFrame, every: int) -> list[dict[str, Any]]:
    """What is awaited most, per step: by collective and process group."""
    groups = rows.assign(single=rows["dtype"].isin(SINGLE)).groupby(["what", "collective"], sort=True)
    table = (
        groups[["awaited", "dur"]].sum().assign(bytes=groups["bytes"].sum(min_count=1), single=groups["single"].all())
    )
    table = table.assign(size=groups["bytes"].median()).sort_values("awaited", ascending=False, kind="stable")
    table = table[table["awaited"] > _LEAST_SHOWN * table["awaited"].sum()].head(_MOST_GROUPS)
    return [
        {"what": what, "collective": collective, "time": row["awaited"] / every, "size": row["size"],
         "rate": 1e9 * row["bytes"] / row["dur"], "single": bool(row["single"])}
        for (what, collective), row in zip(table.index.tolist(), table.to_dict("records"), strict=True)
    ]  # fmt: skip


def _group_words(group: dict[str, Any], found: Found) -> str:
    said = f"{group['what']}: {found.time(group['time'])}"
    if not np.isfinite(group["rate"]):
        return f"{said}."
    size, rate = text(group["size"], Unit.BYTES), text(group["rate"], Unit.BYTES_PER_SECOND)
    return f"{said}, in calls of {size} (median) at {rate} with all waiting."


def _remedy(group: dict[str, Any]) -> str:
    collective = group.get("collective", "")
    if collective.startswith("all_to_all") or collective == "send_recv":
        return "Overlap the exchange with compute that does not need it, or exchange less: lower precision, fewer hops."
    if collective.startswith(("all_gather", "reduce_scatter")):
        return (
            "Under FSDP prefetch (`set_modules_to_forward_prefetch`, `forward_prefetch=True`) and wrap larger blocks; "
            "shard within a node only (HYBRID_SHARD)."
        )
    if collective.startswith("all_reduce"):
        less = "; reduce in bf16 (`bf16_compress_hook`)" if group["single"] else ""
        return (
            "Under DDP let buckets be ready earlier (smaller `bucket_cap_mb`, `static_graph=True`), accumulate "
            f"gradients under `model.no_sync()`{less}. For tensor parallelism: fewer ranks in the group."
        )
    return "Start collectives as early as their input is there, with `async_op=True`, and wait as late as possible."


def _snippet(collective: str) -> str:
    if collective.startswith(("all_gather", "reduce_scatter")):
        return "block.set_modules_to_forward_prefetch([next_block])  # FSDP2: gather ahead"
    if collective.startswith("all_reduce"):
        return "with model.no_sync():  # DDP: reduce every n micro-batches\n    loss.backward()"
    return "work = dist.all_reduce(tensor, async_op=True)\n...  # compute meanwhile\nwork.wait()"
