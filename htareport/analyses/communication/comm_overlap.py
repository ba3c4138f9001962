"""The analysis of exposed communication: by rank, by collective and by parallel dimension."""

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
from htareport.report import Better, Chart, Column, Fact, Mark, TableSpec, Unit, key, stacked_rows
from htareport.report.rank_charts import by_rank

_NS = Unit.NANOSECONDS
_SPLIT_LABELS = {"overlap": "hidden", "exposed": "exposed"}
_GROUP = ["collective", "process_group"]
_SUMS = ["count", "time", "overlap", "exposed"]
_ALL, _SEPARATOR = "all", "\n"
_SOURCE_COLUMNS = {"told_by": "told_by", "groups": "process_group"}
_MAX_GROUPS = 8  # Names in a cell.
_SOURCE_HELP = (
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
                Column("told_by", "Told by", Unit.TEXT, _SOURCE_HELP),
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
            for keys, rows in comm.groupby(_GROUP, sort=True):
                size = rows["bytes"].sum(min_count=1)
                row = dict(zip(_GROUP, keys, strict=True)) | {"count": len(rows), "bytes": size}
                collectives.append(row | _overlap(rank.busy_by_capture(rows), compute, "time"))
            for name, rows in [*comm.groupby("dimension", sort=True), (_ALL, comm)]:
                texts = {
                    key: _SEPARATOR.join(sorted(set(rows[source]) - {""})) for key, source in _SOURCE_COLUMNS.items()
                }
                row = {"dimension": name, **texts, "count": len(rows)}
                dimensions.append(row | _overlap(rank.busy_by_capture(rows), compute, "time"))
        return {
            "ranks": pd.DataFrame(ranks),
            "collectives": pd.DataFrame(collectives, columns=[*_GROUP, "count", "bytes", *_SUMS[1:]]),
            "dimensions": pd.DataFrame(dimensions, columns=["dimension", *_SOURCE_COLUMNS, *_SUMS]),
        }

    def without(self, rank: Rank) -> Frames:
        rows = pd.DataFrame({"device": list(rank.devices) or [None]}).assign(comm=0, overlap=0, exposed=0)
        return self.map(rank) | {"ranks": rows}

    def combine(self, frames: Frames, job: Job) -> Frames:
        del job
        ranks = frames["ranks"]
        groups = frames["collectives"].groupby(_GROUP)
        collectives = groups[_SUMS].sum()
        collectives["bytes"] = groups["bytes"].sum(min_count=1).astype("float64")
        collectives = collectives.reset_index().sort_values("exposed", ascending=False)
        return {
            "ranks": ranks.assign(ratio=_ratio(ranks, "comm")),
            "collectives": collectives.assign(ratio=_ratio(collectives, "time")),
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
            _SPLIT_LABELS,
            caption="Time with a communication kernel: hidden under compute, and exposed.",
        )
        top = frames["collectives"].head(12)
        yield Chart(
            "collectives",
            "Communication by collective",
            Mark.STACKED_BAR,
            stacked_rows(top.assign(label=shown_names(top)), "label", _SPLIT_LABELS),
            "label",
            "value",
            "part",
            x_label="collective",
            x_unit=Unit.TEXT,
            caption="Summed over ranks, the most exposed first.",
        )


def _by_dimension(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the dimensions of all ranks, the most exposed first, then their total."""
    groups = rows[rows["count"] > 0].groupby("dimension")
    table = groups[_SUMS].sum()
    for name in _SOURCE_COLUMNS:
        table[name] = groups[name].agg(_joined)
    table = table.reset_index().sort_values(["exposed", "dimension"], ascending=[False, True])
    is_total = table["dimension"] == _ALL
    tables = [table[~is_total], table[is_total]] if len(table) > 2 else [table[~is_total]]  # noqa: PLR2004  one and all
    table = pd.concat(tables, ignore_index=True)
    return table.assign(ratio=_ratio(table, "time"))


def _joined(texts: pd.Series[str]) -> str:
    names = sorted({name for text in texts for name in text.split(_SEPARATOR)} - {""})
    suffix = f" and {len(names) - _MAX_GROUPS:,} more" if len(names) > _MAX_GROUPS else ""
    return f"{', '.join(names[:_MAX_GROUPS])}{suffix}"


def _overlap(comm: list[intervals.Intervals], compute: list[intervals.Intervals], time_name: str) -> dict[str, int]:
    """Return communication time (as `time_name`), and how much of it is hidden under compute and exposed, ns."""
    comm_ns = sum(map(intervals.total, comm))
    hidden_ns = sum(intervals.total(intervals.intersection(*sets)) for sets in zip(comm, compute, strict=True))
    return {time_name: comm_ns, "overlap": hidden_ns, "exposed": comm_ns - hidden_ns}


def _ratio(frame: pd.DataFrame, time_name: str) -> pd.Series:
    time = frame[time_name].astype("float64")
    return frame["overlap"] / time.where(time > 0)
