"""The analysis of collectives: their bandwidth, and how long ranks wait for the last one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from htareport.algorithms.collectives import Matched, arrivals
from htareport.analyses import Analysis, Frames, Group, Job
from htareport.job.matching import Matching, clocks_note, left_out_note, matching
from htareport.rank.capability import Capability
from htareport.rank.collective_calls import call_frames
from htareport.rank.collective_names import shown_names
from htareport.rank.rank import Rank
from htareport.report import Better, Chart, Column, Mark, TableSpec, Unit, chart_of, key, stacked_rows

_NS = Unit.NANOSECONDS
_RATE = Unit.BYTES_PER_SECOND
_GROUP = ["collective", "process_group"]
# Bytes on the bus for each byte of the message, over (n - 1) / n of a group of n ranks.
_BUS_FACTORS = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}
_SPLIT_LABELS = {"moving": "moving bytes", "waiting": "waiting for the last rank"}
_MAX_BARS = 12
_MAX_SIZES = 300
_MIN_SIZE, _MIN_NUM_SIZES = 1024, 3  # Of the messages in the chart of bandwidths.
_BUS_HELP = (
    "Algorithm bandwidth times 2(n−1)/n for all_reduce and (n−1)/n for all_gather, reduce_scatter and all_to_all, as "
    "in NCCL's own tests: comparable with what the links can carry. n is the size of the group. Of others unchanged."
)
_TRANSFER_HELP = "From the last rank's start to the first end on any rank: the collective without the waiting."


class Collectives(Analysis):
    """What each collective costs, and how much of that is waiting for the last rank rather than moving bytes.

    ## How it is computed
    A collective (all-reduce and the like) is one kernel on each of its ranks. These are matched by process group, kind
    and sequence number; where there are no sequence numbers, by size and order within a step; where the trace tells no
    groups either, by name, stream and order, if the kernels then end together. Clocks are aligned by the ends of
    collectives that no rank leaves before all have come (all-reduce, all-gather, reduce-scatter, all-to-all, barrier);
    only these, and what is matched by name, have a wait and a transfer. A rank *waits* from its own start to the last
    rank's start; the *transfer* lasts from there to the first end, at least 0. Algorithm bandwidth is the message size
    over the transfer time, in units of 10^9 bytes per second; bus bandwidth is that times what a link has to carry for
    each byte, and so comparable between collectives. Where not all ranks of a group are recorded, the last one may be
    missing: its lateness then counts as transfer, and the bandwidths are lower bounds.

    ## What to do
    - Mostly waiting: not the network. *Stragglers* says which rank comes last.
    - Mostly moving bytes, at the bandwidth that `all_reduce_perf` of nccl-tests or rccl-tests reaches: send less
      (`bf16_compress_hook` of DDP, `MixedPrecisionPolicy(reduce_dtype=torch.bfloat16)` of FSDP), or hide it under
      compute.
    - Low bandwidth at large messages: see which way they take (NVLink, PCIe, network) with `NCCL_DEBUG=INFO`,
      `nvidia-smi topo -m` or `amd-smi topology`.
    - Small messages: the time is latency. Put several into one: a larger `bucket_cap_mb` of DDP, larger blocks under
      `fully_shard`.
    """

    title = "Collectives"
    group = Group.COMMUNICATION
    order = 10
    requires = frozenset({Capability.COMM})
    tables = (
        TableSpec(
            "groups",
            "By collective and process group",
            (
                key("collective", "Collective", Unit.TEXT, "Kind: from the kernel's arguments, else from its name."),
                key("process_group", "Process group", Unit.TEXT, "Its description or name, where the trace has it."),
                Column("calls", "Kernels", Unit.COUNT, "Communication kernels on all ranks."),
                Column("matched", "Matched", Unit.COUNT, "Collectives found on more than one rank."),
                Column("ranks", "Ranks", Unit.COUNT, "Largest number of ranks on which one of them was found."),
                Column("group_size", "Group size", Unit.COUNT, "Ranks in the process group, where the trace has it."),
                Column("size", "Message", Unit.BYTES, "Median size: the larger of what goes in and out of a rank."),
                Column("time", "Median time", _NS, "Median duration of the kernels.", better=Better.LOWER),
                Column(
                    "wait_share",
                    "Waiting",
                    Unit.RATIO,
                    "Share of the matched kernels' time that lies before the last rank's start; none without matches.",
                    better=Better.LOWER,
                ),
                Column("transfer", "Median transfer", _NS, _TRANSFER_HELP, better=Better.LOWER),
                Column(
                    "algorithm", "Algorithm", _RATE, "Bytes of the messages / transfer time, both summed.",
                    better=Better.HIGHER,
                ),
                Column("bus", "Bus", _RATE, _BUS_HELP, better=Better.HIGHER),
            ),
        ),
        TableSpec(
            "sizes",
            "By message size",
            (
                key("collective", "Collective", Unit.TEXT, "Kind: from the kernel's arguments, else from its name."),
                key("process_group", "Process group", Unit.TEXT, "Its description or name, where the trace has it."),
                key("size", "Message", Unit.BYTES, "The larger of what goes in and out of a rank."),
                Column("matched", "Matched", Unit.COUNT, "Collectives found on more than one rank."),
                Column("transfer", "Median transfer", _NS, _TRANSFER_HELP, better=Better.LOWER),
                Column("bus", "Bus", _RATE, _BUS_HELP, better=Better.HIGHER),
            ),
            is_detail=True,
        ),
    )  # fmt: skip

    def map(self, rank: Rank) -> Frames:
        return call_frames(rank)

    def combine(self, frames: Frames, job: Job) -> Frames:
        del job
        matched = matching(frames)
        kinds = matched.kinds.set_index("kind")[[*_GROUP, "group_size"]]
        collectives = _with_bus(_matched_collectives(matched).join(kinds, on="kind"))
        notes = [left_out_note(matched.left_out), clocks_note(matched)]
        return {
            "groups": _by_group(matched, collectives),
            "sizes": _by_size(collectives),
            "notes": pd.DataFrame({"note": [note for note in notes if note]}),
        }

    def charts(self, frames: Frames) -> Iterator[Chart]:
        groups = frames["groups"]
        timed = groups[groups["wait_share"].notna()].head(_MAX_BARS)
        yield Chart(
            "waiting",
            "Waiting and moving bytes",
            Mark.STACKED_BAR,
            stacked_rows(timed.assign(label=shown_names(timed)), "label", _SPLIT_LABELS),
            "label",
            "value",
            "part",
            x_label="collective",
            x_unit=Unit.TEXT,
            caption="Time of the matched kernels, summed over ranks, before and after the last rank's start.",
        )
        sizes = frames["sizes"][frames["sizes"]["size"] >= _MIN_SIZE]
        if sizes["size"].nunique() >= _MIN_NUM_SIZES:
            yield chart_of(
                self.tables[1],
                "bandwidth",
                "Bus bandwidth by message size",
                Mark.SCATTER,
                sizes.assign(label=shown_names(sizes)).dropna(subset="bus"),
                "size",
                "bus",
                "label",
                y_label="bus bandwidth",
                log_x=True,
                caption="Large messages should come near to what the links carry; small ones are bound by latency.",
            )

    def notes(self, frames: Frames) -> Iterator[str]:
        yield from frames["notes"]["note"]


def _matched_collectives(matched: Matching) -> pd.DataFrame:
    """Return a row per matched collective: kind, members, bytes (-1 unknown), transfer, waited and spent (all ranks).

    Collectives that a rank may leave before all have come have no transfer and no wait (nan), and 0 `spent`.
    """
    columns = ["kind", "members", "bytes", "transfer", "waited", "spent"]
    frames = [_collective_rows(calls, matched) for calls in matched.together]
    unsynchronised = [_collective_rows(calls, matched) for calls in matched.others]
    frames += [frame.assign(transfer=np.nan, waited=np.nan, spent=0.0) for frame in unsynchronised]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({name: [] for name in columns}, dtype=float)


def _collective_rows(calls: Matched, matched: Matching) -> pd.DataFrame:
    skew, durations = arrivals(calls, matched.clocks), calls.end - calls.start
    return pd.DataFrame(
        {
            "kind": matched.calls["kind"].to_numpy()[calls.rows[:, 0]],
            "members": len(calls.ranks),
            "bytes": matched.calls["bytes"].to_numpy()[calls.rows].max(axis=1).astype(float),
            "transfer": skew.transfer.astype(float),
            "waited": np.minimum(skew.wait, durations).sum(axis=1).astype(float),
            "spent": durations.sum(axis=1).astype(float),
        }
    )


def _by_group(matched: Matching, collectives: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the table by collective and process group, those of most time first."""
    kinds = matched.kinds.set_index("kind")
    calls = matched.calls.join(kinds[_GROUP], on="kind")
    groups = kinds.groupby(_GROUP)
    table = pd.DataFrame({"calls": groups["calls"].sum(), "group_size": groups["group_size"].max().astype(float)})
    table["group_size"] = table["group_size"].where(table["group_size"] > 0)
    calls_by_group = calls.assign(bytes=calls["bytes"].where(calls["bytes"] >= 0).astype(float)).groupby(_GROUP)
    table["size"], table["time"] = calls_by_group["bytes"].median(), calls_by_group["dur"].median()
    total_time = calls_by_group["dur"].sum()
    by_group = collectives.groupby(_GROUP)
    table["matched"] = by_group.size()
    table["ranks"] = by_group["members"].max()
    sums = by_group[["waited", "spent", "moved", "on_bus", "moving"]].sum()
    table["waiting"], table["moving"] = sums["waited"], sums["spent"] - sums["waited"]
    table["wait_share"] = sums["waited"] / sums["spent"].where(sums["spent"] > 0)
    table["transfer"] = by_group["transfer"].median()
    table["algorithm"], table["bus"] = (1e9 * sums[name] / sums["moving"] for name in ("moved", "on_bus"))
    table[["algorithm", "bus"]] = table[["algorithm", "bus"]].where(sums["moving"] > 0)
    table = table.assign(total_time=total_time).reset_index()
    table = table.sort_values(["total_time", *_GROUP], ascending=[False, True, True])
    defaults = {"matched": 0, "ranks": 1}
    return table.fillna(defaults).astype(dict.fromkeys(defaults, "int64")).reset_index(drop=True)


def _by_size(collectives: pd.DataFrame) -> pd.DataFrame:
    by_size = collectives[collectives["moving"] > 0].groupby([*_GROUP, "bytes"])
    sums = by_size[["on_bus", "moving"]].sum()
    table = pd.DataFrame({"matched": by_size.size(), "transfer": by_size["transfer"].median()})
    table["bus"] = 1e9 * sums["on_bus"] / sums["moving"]
    table = table.reset_index().rename(columns={"bytes": "size"}).nlargest(_MAX_SIZES, "size", keep="first")
    return table.sort_values([*_GROUP, "size"], ignore_index=True)


def _with_bus(collectives: pd.DataFrame) -> pd.DataFrame:
    """Add moved and on_bus (bytes), and moving (ns), to collectives whose size and transfer are known; 0 to others."""
    is_usable = (collectives["bytes"] > 0) & (collectives["transfer"] > 0)
    ranks = collectives["group_size"].where(collectives["group_size"] > 1, collectives["members"]).astype(float)
    factor = pd.Series(1.0, collectives.index)
    for kind, bytes_per_byte in _BUS_FACTORS.items():
        is_kind = collectives["collective"].astype(str).str.startswith(kind)
        factor = factor.mask(is_kind, bytes_per_byte * (ranks - 1) / ranks)
    moved = collectives["bytes"].where(is_usable, 0.0)
    return collectives.assign(moved=moved, on_bus=moved * factor, moving=collectives["transfer"].where(is_usable, 0.0))
