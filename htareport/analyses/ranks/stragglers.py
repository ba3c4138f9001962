"""The analysis of stragglers: which rank arrives last at collectives, and how long the others wait for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import pandas as pd

from htareport.algorithms.collectives import Clocks
from htareport.analyses import Analysis, Frames, Group, Job
from htareport.job.arrivals import arrival_rows, held_share, is_late, significant
from htareport.job.matching import clocks_note, matching
from htareport.rank.capability import Capability
from htareport.rank.collective_calls import call_frames, recorded_times
from htareport.rank.rank import Rank
from htareport.rank.steps import OUTSIDE
from htareport.report import Better, Chart, Column, Fact, TableSpec, Unit, key
from htareport.report.rank_charts import MOST_BARS, by_rank, rank_heatmap
from htareport.report.units import text

_NS = Unit.NANOSECONDS
_MAX_COLLECTIVES = 200
_MAX_IN_HEATMAP = 40
_HELD_UP_HELP = (
    "How much later than the second-latest rank it started, summed over the collectives in which it was last."
)
_WAIT_HELP = "From its own start to the last rank's start, summed over collectives."
_MATCHED_HELP = "Collectives that it takes part in, of those matched across ranks."


class Stragglers(Analysis):
    """Which rank comes last to collectives, how much that costs, and whether it is more than chance.

    ## How it is computed
    Collectives (all-reduce and the like) are matched across ranks and clocks aligned by their ends, as under
    *Collectives*. The *lateness* of a rank is its start after the earliest start; a rank *waits* until the last rank's
    start. The last rank *holds up* the others from the second-latest start to its own, so ranks that are late together
    hold up nobody alone. It was *late* if that is more than 50 µs, more than 5 % of the transfer (last start to first
    end) and more than the ends lie apart. A rank is called a straggler if it was the late one in more than half of the
    collectives in which somebody was, if among equal ranks that would happen with a probability below 1 %, and if it
    thereby holds up at least 2 % of its step time. Often there is none.

    ## What to do
    - A straggler with slower kernels (*Kernel duration distribution*): its GPU; compare clocks, temperature and power
      limit (`nvidia-smi -q -d PERFORMANCE,CLOCK`, `amd-smi metric`). With more host wait (*Idle time by cause*): its
      CPU or input. With more calls of the same kernels: it has more work.
    - Late by turns: work is uneven (sequence lengths, experts). Balance batches, or synchronise less often (accumulate
      gradients under DDP's `model.no_sync()`).
    - A change has helped if less is held up and the step time is smaller.
    """

    title = "Stragglers"
    group = Group.RANKS
    order = 20
    requires = frozenset({Capability.COMM})
    worst = MappingProxyType({"per_step": "held_up"})
    tables = (
        TableSpec(
            "ranks",
            "By rank",
            (
                key("rank", "Rank"),
                Column("straggler", "Straggler", Unit.TEXT, "Yes if its lateness is more than chance and costs time."),
                Column("collectives", "Collectives", Unit.COUNT, _MATCHED_HELP),
                Column("last", "Last", Unit.COUNT, "Collectives in which it starts last."),
                Column(
                    "late",
                    "Late",
                    Unit.COUNT,
                    "Collectives it holds up by more than 50 µs, 5 % of the transfer, and the distance of the ends.",
                ),
                Column(
                    "lateness",
                    "Mean lateness",
                    _NS,
                    "Mean over its collectives of its start after the earliest start.",
                    better=Better.LOWER,
                ),
                Column(
                    "lateness_p50",
                    "Median lateness",
                    _NS,
                    "Median over its collectives of its start after the earliest start.",
                ),
                Column("held_up", "Holds up", _NS, _HELD_UP_HELP, better=Better.LOWER),
                Column(
                    "held_share",
                    "Of step time",
                    Unit.RATIO,
                    "What it holds up within steps, as a share of the time of those steps in which it has collectives; "
                    "where all are outside steps, as a share of the time recorded.",
                ),
                Column(
                    "caused",
                    "Wait caused",
                    _NS,
                    "Holds up × the other ranks of the collective, summed over collectives.",
                ),
                Column("wait", "Waits", _NS, _WAIT_HELP),
            ),
        ),
        TableSpec(
            "collectives",
            "Collectives that somebody held up longest",
            (
                key("collective", "No.", Unit.ID, "In order of time."),
                Column("name", "Collective", Unit.TEXT, "Kind: from the kernel's arguments, else from its name."),
                Column("process_group", "Process group", Unit.TEXT, "Its description or name, where the trace has it."),
                Column("step", "Step", Unit.ID, "Step in which the last rank launches it; none outside steps."),
                Column("start", "Start", _NS, "Earliest start on any rank, since the run's first event."),
                Column("ranks", "Ranks", Unit.COUNT, "Ranks on which it is recorded."),
                Column("last_rank", "Last rank", Unit.ID, "The rank that starts last."),
                Column("margin", "Held up", _NS, "From the second-latest start to the last."),
                Column("wait", "Mean wait", _NS, "Mean of the waits of its ranks, the last one's 0 included."),
                Column("transfer", "Transfer", _NS, "From the last start to the first end, at least 0."),
            ),
            is_detail=True,
        ),
        TableSpec(
            "per_step",
            "By rank and step",
            (
                key("rank", "Rank"),
                key("step", "Step"),
                Column("collectives", "Collectives", Unit.COUNT, _MATCHED_HELP),
                Column("last", "Last", Unit.COUNT, "Collectives in which it starts last."),
                Column(
                    "lateness", "Mean lateness", _NS, "Mean over its collectives of its start after the earliest start."
                ),
                Column("held_up", "Holds up", _NS, _HELD_UP_HELP),
                Column("wait", "Waits", _NS, _WAIT_HELP),
            ),
            is_detail=True,
        ),
        TableSpec(
            "clocks",
            "Clocks",
            (
                key("rank", "Rank"),
                Column(
                    "offset", "Offset", _NS, "How far its clock was ahead of the ranks' median; already subtracted."
                ),
                Column("residual", "Residual", _NS, "Median distance of its ends from the median end after that."),
                Column("used", "Collectives", Unit.COUNT, "Collectives that the offset comes from."),
            ),
            is_detail=True,
        ),
    )

    def map(self, rank: Rank) -> Frames:
        frames = call_frames(rank)
        return {**frames, "times": recorded_times(rank, frames["calls"])}

    def combine(self, frames: Frames, job: Job) -> Frames:
        matched = matching(frames)
        arrivals = arrival_rows(matched, frames["times"], job.zero_ns)
        stragglers = significant(arrivals)
        ranks = _by_rank(arrivals, sorted(set(frames["times"]["rank"])), stragglers)
        per_step = _summed(arrivals[arrivals["step"] != OUTSIDE], ["rank", "step"])
        notes = [clocks_note(matched), _verdict(arrivals, ranks, stragglers)]
        return {
            "ranks": ranks,
            "collectives": _held_up_longest(arrivals),
            "per_step": per_step[[column.name for column in self.tables[2].columns]],
            "clocks": _clock_rows(matched.clocks),
            "arrivals": arrivals,
            "notes": pd.DataFrame({"note": [note for note in notes if note]}),
        }

    def facts(self, frames: Frames) -> Iterator[Fact]:
        stragglers = frames["ranks"][frames["ranks"]["straggler"] == "yes"]
        if len(stragglers):
            row = stragglers.sort_values("held_up", ascending=False).iloc[0]
            detail = f"late to {int(row['late'])} of {int(row['collectives'])} collectives"
            words = (
                "The rank that is late to collectives more often than chance. What others wait for it may be hidden "
                "under their compute: what it costs per step stands at own time, in the temporal breakdown."
            )
            yield Fact("straggler", "straggler", row["rank"], Unit.RANK, detail, words, order=35)

    def charts(self, frames: Frames) -> Iterator[Chart]:
        ranks, arrivals = frames["ranks"], frames["arrivals"]
        if not len(arrivals):
            return
        yield by_rank(
            "ranks",
            "Holding up and waiting, by rank",
            ranks,
            {"held_up": "holds up the others", "wait": "waits for the last"},
            caption="A rank that holds up the others hardly waits itself.",
        )
        if 1 < arrivals["collective"].nunique() <= _MAX_IN_HEATMAP:
            yield rank_heatmap(
                "lateness", "Lateness by rank and collective", arrivals, "collective", "lateness",
                x_label="collective, in order of time", caption="Start after the earliest start of the collective.",
            )  # fmt: skip
        elif frames["per_step"]["step"].nunique() > 1:
            yield rank_heatmap(
                "lateness", "Mean lateness by rank and step", frames["per_step"], "step", "lateness",
                x_label="step", caption="Start after the earliest start of the collective, mean over the step.",
            )  # fmt: skip

    def notes(self, frames: Frames) -> Iterator[str]:
        yield from frames["notes"]["note"]


def _summed(arrivals: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    caused = arrivals["margin"] * (arrivals["ranks"] - 1)
    groups = arrivals.assign(caused=caused, late=is_late(arrivals)).groupby(keys)
    sums = groups[["last", "late", "margin", "caused", "wait"]].sum().rename(columns={"margin": "held_up"})
    return sums.assign(collectives=groups.size(), lateness=groups["lateness"].mean()).reset_index()


def _by_rank(arrivals: pd.DataFrame, ranks: list[int], stragglers: list[int]) -> pd.DataFrame:
    """Return a row per rank with communication, zeros where nothing is matched; of very many ranks the latest first."""
    table = _summed(arrivals, ["rank"]).set_index("rank").reindex(ranks)
    counts = ["collectives", "last", "late", "held_up", "caused", "wait"]
    table[counts] = table[counts].fillna(0).astype("int64")
    table["lateness"] = table["lateness"].astype("float64")
    table["lateness_p50"] = arrivals.groupby("rank")["lateness"].median().reindex(ranks).astype("float64")
    table["held_share"] = held_share(arrivals, arrivals).reindex(ranks).astype("float64")
    table["straggler"] = ["yes" if rank in stragglers else "" for rank in ranks]
    table = table.rename_axis("rank").reset_index()
    if len(table) <= MOST_BARS:
        return table
    return table.sort_values(["held_up", "lateness", "rank"], ascending=[False, False, True], ignore_index=True)


def _held_up_longest(arrivals: pd.DataFrame) -> pd.DataFrame:
    groups = arrivals.groupby("collective")
    first = groups[["name", "process_group", "ranks", "transfer"]].first()
    last = arrivals[arrivals["last"].astype(bool)].set_index("collective")
    table = first.assign(
        step=last["step"],
        start=groups["start"].min(),
        last_rank=last["rank"],
        margin=last["margin"],
        wait=groups["wait"].mean(),
    )
    table = table.sort_values("margin", ascending=False, kind="stable").head(_MAX_COLLECTIVES)
    table["step"] = table["step"].astype("float64").where(table["step"] != OUTSIDE)
    return table.reset_index()


def _clock_rows(clocks: Clocks) -> pd.DataFrame:
    ranks = sorted(clocks.offset)
    by_name: dict[str, Mapping[int, float]] = {
        "offset": clocks.offset,
        "residual": clocks.residual,
        "used": clocks.used,
    }
    columns = {name: [by_rank[rank] for rank in ranks] for name, by_rank in by_name.items()}
    return pd.DataFrame({"rank": ranks, **columns}).astype({"offset": "int64", "residual": "float64", "used": "int64"})


def _verdict(arrivals: pd.DataFrame, ranks: pd.DataFrame, stragglers: list[int]) -> str:
    """Say in a sentence which ranks are stragglers, if any."""
    if not len(arrivals):
        return "Nobody's lateness can be told: no collective is recorded on more than one rank."
    late, total = arrivals.loc[is_late(arrivals), "collective"].nunique(), arrivals["collective"].nunique()
    if not late:
        return "No straggler: no rank alone holds up a collective by more than 50 µs and 5 % of its transfer."
    worst = ranks.sort_values(["held_up", "rank"], ascending=[False, True])
    if total == 1:
        cost = text(worst["held_up"].iloc[0], _NS)
        return (
            f"One collective is too little to call a rank a straggler: rank {worst['rank'].iloc[0]} is late by {cost}."
        )
    sentences = [
        f"rank {rank} holds up {count:,} of them, by {text(cost, _NS)} in all"
        for rank, count, cost in zip(worst["rank"], worst["late"], worst["held_up"], strict=True)
        if rank in stragglers or not stragglers
    ]
    several, names = len(stragglers) > 1, ", ".join(map(str, stragglers[:8]))
    verdict = f"Rank{'s' * several} {names} {'are stragglers' if several else 'is a straggler'}"
    verdict = verdict if stragglers else "No straggler by more than chance"
    details = "; ".join(sentences[: 4 if stragglers else 1])
    are = "is" if late == 1 else "are"
    return f"{verdict}: {late:,} of {total:,} collectives {are} held up by one rank alone; {details}."
