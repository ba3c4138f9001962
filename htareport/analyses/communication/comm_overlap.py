"""How much of the communication is hidden under compute, by collective and by parallel dimension."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType

import pandas as pd

from htareport.algorithms import intervals
from htareport.analyses import Analysis, Frames, Group, Job
from htareport.rank.capability import Capability
from htareport.rank.collective_names import labels_of, shown_names
from htareport.rank.parallel_dimensions import dimensions_of
from htareport.rank.rank import Rank
from htareport.report import Better, Chart, Column, Fact, Mark, TableSpec, Unit, key
from htareport.report.rank_charts import by_rank

_NS = Unit.NANOSECONDS
_PARTS = {"overlap": "hidden", "exposed": "exposed"}
_SUMS = ["count", "time", "overlap", "exposed"]
_ALL, _SEPARATOR = "all", "\n"
_TEXTS = {"told_by": "told_by", "groups": "process_group"}
_MOST_GROUPS = 8  # Names in a cell.
_TOLD_BY = (
    "The group's name or description; or inferred from what issues the call: gradients that DDP reduces, FSDP's own "
    "annotations, sends between ranks, an all-to-all of experts. Empty where neither is certain."
)
_OVERLAP = Column(
    "overlap", "Hidden", _NS, "Time in which communication and compute run at once.", better=Better.HIGHER
)
_EXPOSED = Column("exposed", "Exposed", _NS, "Communication time in which no compute runs.", better=Better.LOWER)
_COUNT = Column("count", "Kernels", Unit.COUNT, "Communication kernels on all ranks.")
_TIMES = (
    Column("time", "Time", _NS, "Time in which at least one of these kernels runs, summed over ranks and devices."),
    _OVERLAP,
    _EXPOSED,
    Column("ratio", "Overlap", Unit.RATIO, "Hidden / time.", better=Better.HIGHER),
)


class CommOverlap(Analysis):
    """How much communication time is hidden under compute, and which collectives are not.

    ## How it is computed
    On each device the communication kernels (NCCL, RCCL and the like) are merged into one set of intervals, the compute
    kernels into another. *Hidden* is the time in both, *exposed* the rest of the communication, and the overlap is
    hidden / communication. By collective: the same for the kernels of one collective (all-reduce and the like) and
    process group alone, so those that run at the same time count each. A kernel's time contains its wait for the last
    rank. The *parallel dimension* (data, tensor, pipeline, expert, context) is what the group's name or description
    says, else what the operators around the call make certain, else unknown; what two dimensions do at the same time
    counts in both rows, and in *all* once.

    ## What to do
    - Little overlap: let communication start earlier. DDP: a smaller `bucket_cap_mb` (25 MiB by default). FSDP:
      `fully_shard` each block by itself, then `set_modules_to_forward_prefetch` and `set_modules_to_backward_prefetch`.
    - A small collective that takes long: some rank comes late. See *Collectives* and *Stragglers*.
    - Compute kernels that are slower while communication runs share multiprocessors and memory bandwidth with it; on
      NVIDIA `NCCL_MAX_CTAS` leaves them more.
    - Dimension unknown: name the groups, `init_device_mesh("cuda", (2, 8), mesh_dim_names=("dp", "tp"))` or
      `new_group(ranks, group_desc="tp")`.
    - A change has helped if exposed time and step time are both smaller; more overlap alone is no gain.
    """

    title = "Communication hidden under compute"
    group = Group.COMMUNICATION
    order = 0
    requires = frozenset({Capability.COMM})
    worst = MappingProxyType({"ranks": "exposed"})
    tables = (
        TableSpec(
            "ranks",
            "By rank and device",
            (
                key("rank", "Rank"),
                key("device", "Device"),
                Column("comm", "Communication", _NS, "Time in which a communication kernel runs."),
                _OVERLAP,
                _EXPOSED,
                Column(
                    "ratio",
                    "Overlap",
                    Unit.RATIO,
                    "Hidden / communication; none without communication.",
                    better=Better.HIGHER,
                ),
            ),
        ),
        TableSpec(
            "collectives",
            "By collective and process group, all ranks together",
            (
                key("collective", "Collective", Unit.TEXT, "Kind: from the kernel's arguments, else from its name."),
                key(
                    "process_group",
                    "Process group",
                    Unit.TEXT,
                    "Description or name of the group, where the trace has it.",
                ),
                _COUNT,
                Column(
                    "bytes",
                    "Bytes",
                    Unit.BYTES,
                    "Message sizes (the larger of what goes in and out), summed over kernels; none if not recorded.",
                ),
                *_TIMES,
            ),
        ),
        TableSpec(
            "dimensions",
            "By parallel dimension, all ranks together",
            (
                key("dimension", "Dimension", Unit.TEXT, "What the process group splits the model or the batch by."),
                Column("told_by", "Told by", Unit.TEXT, _TOLD_BY),
                Column("groups", "Process groups", Unit.TEXT, "Descriptions or names, where the trace has them."),
                _COUNT,
                *_TIMES,
            ),
        ),
    )

    def map(self, rank: Rank) -> Frames:
        labels = labels_of(rank)
        labels = labels.join(dimensions_of(rank, labels))
        ranks, collectives, dimensions = [], [], []
        for device, events in rank.devices.items():
            compute = rank.busy_by_capture(events, "compute")
            comm = events[events["kind"] == "comm"].join(labels)
            ranks.append({"device": device, **_overlap(rank.busy_by_capture(comm), compute, "comm")})
            for keys, rows in comm.groupby(["collective", "process_group"], sort=True):
                row = dict(zip(("collective", "process_group"), keys, strict=True))
                size = rows["bytes"].sum(min_count=1)
                collectives.append(
                    {**row, "count": len(rows), "bytes": size, **_overlap(rank.busy_by_capture(rows), compute, "time")}
                )
            for name, rows in [*comm.groupby("dimension", sort=True), (_ALL, comm)]:
                texts = {key: _SEPARATOR.join(sorted(set(rows[of]) - {""})) for key, of in _TEXTS.items()}
                dimensions.append(
                    {
                        "dimension": name,
                        **texts,
                        "count": len(rows),
                        **_overlap(rank.busy_by_capture(rows), compute, "time"),
                    }
                )
        columns = ["collective", "process_group", "count", "bytes", "time", "overlap", "exposed"]
        return {
            "ranks": pd.DataFrame(ranks),
            "collectives": pd.DataFrame(collectives, columns=columns),
            "dimensions": pd.DataFrame(dimensions, columns=["dimension", *_TEXTS, *_SUMS]),
        }

    def without(self, rank: Rank) -> Frames:
        devices = list(rank.devices) or [None]
        rows = [{"device": d, "comm": 0, "overlap": 0, "exposed": 0} for d in devices]
        return self.map(rank) | {"ranks": pd.DataFrame(rows)}

    def combine(self, frames: Frames, job: Job) -> Frames:
        del job
        ranks = frames["ranks"]
        groups = frames["collectives"].groupby(["collective", "process_group"])
        by = groups[["count", "time", "overlap", "exposed"]].sum()
        by["bytes"] = groups["bytes"].sum(min_count=1).astype("float64")
        by = by.reset_index().sort_values("exposed", ascending=False)
        return {
            "ranks": ranks.assign(ratio=_ratio(ranks, "comm")),
            "collectives": by.assign(ratio=_ratio(by, "time")),
            "dimensions": _by_dimension(frames["dimensions"]),
        }

    def facts(self, frames: Frames) -> Iterator[Fact]:
        ranks = frames["ranks"]
        if total := float(ranks["comm"].sum()):
            words = "Share of communication time in which compute runs too, over all ranks and devices."
            yield Fact(
                "overlap_share",
                "of communication hidden",
                float(ranks["overlap"].sum()) / total,
                Unit.RATIO,
                "under compute",
                words,
                Better.HIGHER,
            )

    def charts(self, frames: Frames) -> Iterator[Chart]:
        ranks = frames["ranks"]
        yield by_rank(
            "ranks",
            "Communication by rank",
            ranks[ranks["comm"] > 0],
            _PARTS,
            caption="Time with a communication kernel: hidden under compute, and exposed.",
        )
        top = frames["collectives"].head(12)
        label = shown_names(top)
        long = top.assign(label=label).melt("label", list(_PARTS), var_name="part", value_name="value")
        yield Chart(
            "collectives",
            "Communication by collective",
            Mark.STACKED_BAR,
            long.replace({"part": _PARTS}),
            "label",
            "value",
            "part",
            x_label="collective",
            x_unit=Unit.TEXT,
            caption="Summed over ranks, the most exposed first.",
        )


def _by_dimension(rows: pd.DataFrame) -> pd.DataFrame:
    """The dimensions of all ranks, the most exposed first, and what they are together."""
    groups = rows[rows["count"] > 0].groupby("dimension")
    table = groups[_SUMS].sum()
    for name in _TEXTS:
        table[name] = groups[name].agg(_joined)
    table = table.reset_index().sort_values(["exposed", "dimension"], ascending=[False, True])
    together = table["dimension"] == _ALL
    parts = [table[~together], table[together]] if len(table) > 2 else [table[~together]]  # noqa: PLR2004  one and all
    table = pd.concat(parts, ignore_index=True)
    return table.assign(ratio=_ratio(table, "time"))


def _joined(texts: pd.Series[str]) -> str:
    names = sorted({name for text in texts for name in text.split(_SEPARATOR)} - {""})
    more = f" and {len(names) - _MOST_GROUPS:,} more" if len(names) > _MOST_GROUPS else ""
    return f"{', '.join(names[:_MOST_GROUPS])}{more}"


def _overlap(part: list[intervals.Intervals], compute: list[intervals.Intervals], name: str) -> dict[str, int]:
    time = sum(map(intervals.total, part))
    hidden = sum(intervals.total(intervals.intersection(*pair)) for pair in zip(part, compute, strict=True))
    return {name: time, "overlap": hidden, "exposed": time - hidden}


def _ratio(frame: pd.DataFrame, whole: str) -> pd.Series:
    time = frame[whole].astype("float64")
    return frame["overlap"] / time.where(time > 0)
