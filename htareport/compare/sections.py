"""Makes the sections of the Compare chapter: kernels, names, communication and ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from htareport.compare import changes, tables, topics
from htareport.compare.matching import SAME_SHAPES, Matched
from htareport.compare.sides import Side, Sides
from htareport.compare.words import listed
from htareport.report import Better, Chart, Column, Section, Status, Table, TableSpec, Unit, key
from htareport.report.units import text

_NS = Unit.NANOSECONDS
_MAX_RANKS = 10  # In a sentence.
_NO_WORK = "one of the reports does not tell its work (was it written with --only, or by an older htareport?)"
_SMALL_KERNELS = "(kernels of small sums)"  # The row of analyses/kernels/step_work.py for kernels not listed.


def kernels_section(sides: Sides, matched: Matched, rows: pd.DataFrame) -> Section:
    """Return the section on the changes of kernels and of the operators that launch them."""
    section, per_step = topics.section("compare_kernels"), sides[0].per_step_label
    if not all(side.tells_kernels for side in sides):
        return _not_there(section, _NO_WORK)
    if not len(matched.base) or not len(matched.new):
        return _not_there(section, "one of the runs has no device work")
    kernels, operators = changes.summed(rows, ["kernel", "kind"]), changes.summed(rows, ["operator"])
    operators = operators.replace({"operator": {"": "(no operator)"}})
    kernel = key("kernel", "Kernel", Unit.NAME, "Name as traced; a → b: what runs instead.")
    kind = key("kind", "Class", Unit.TEXT)
    operator = key("operator", "Operator", Unit.NAME, "Innermost operator around the launch; a → b: base and new.")
    path = key("path", "Operators", Unit.NAME, "Operators around the launch, without numbers; a → b: base and new.")
    shapes = key("shapes", "Input shapes", Unit.TEXT, "Of the innermost operator; a → b: base and new.")
    level = Column("level", "Matched by", Unit.TEXT, "What it was matched by; nothing: it is on one side only.")
    details = changes.summed(rows, ["path", "shapes", "kernel", "kind", "level"])
    return _filled(
        section,
        [_basis_note(sides), _coverage_note(rows), _small_kernels_note(sides)],
        [
            tables.movers_chart("kernels", "Kernels that changed most", kernels, "kernel", per_step,
                                caption="Positive: longer than before."),
            tables.movers_chart("operators", "Operators whose kernels changed most", operators, "operator", per_step,
                                caption="Device time launched directly by the operator."),
        ],
        [
            tables.work_table("kernels", "By kernel", (kernel, kind), kernels, per_step),
            tables.work_table("operators", "By operator", (operator,), operators, per_step),
            tables.work_table("details", "By operators, shapes and kernel", (path, shapes, kernel, kind, level),
                              details, per_step, is_detail=True),
        ],
    )  # fmt: skip


def _basis_note(sides: Sides) -> str:
    """Say what is compared where only one run has steps."""
    if sides[0].has_steps == sides[1].has_steps:
        return ""
    with_steps, other = ("base", "new run") if sides[0].has_steps else ("new run", "base")
    return f"The {other} has no steps: all that one of its ranks did is beside all steps of a rank of the {with_steps}."


def _coverage_note(rows: pd.DataFrame) -> str:
    """Say how much of the device time is like for like, and how much of that runs other kernels."""
    time = rows["base_time"] + rows["new_time"]
    is_same, is_swapped, is_matched = rows["level"].isin(SAME_SHAPES), rows["by_swap"].ne(0), rows["level"].ne("")
    shares = [text(float(time[mask].sum()) / (float(time.sum()) or 1.0), Unit.RATIO)
              for mask in (is_matched, is_same, is_matched & is_swapped)]  # fmt: skip
    return (
        f"Of the device time of both runs {shares[0]} is matched, {shares[1]} by operator and input shapes; "
        f"{shares[2]} is operators that run other kernels now."
    )


def _small_kernels_note(sides: Sides) -> str:
    if not any((side.kernels["kernel"] == _SMALL_KERNELS).any() for side in sides):
        return ""
    return "Kernels of small sums are one row: what is new or gone may be among them on the other side."


def names_section(base: Side, new: Side) -> Section:
    """Return the section that does what HTA's trace diff does: names by what happened to their number of calls."""
    section, per_step, frames, both = topics.section("compare_names"), base.per_step_label, [], (base, new)
    if all(side.tells_operators for side in both):
        frames.append(_names("CPU", base.operators, new.operators))
    if all(side.tells_kernels for side in both):
        frames.append(_names("GPU", _by_kernel(base.kernels), _by_kernel(new.kernels)))
    rows = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
    if not len(rows):
        return _not_there(section, "neither run has operators or device work" if len(frames) > 1 else _NO_WORK)
    tables_of_names = [_name_counts(rows, per_step), _names_table(rows, per_step)]
    return _filled(section, [_basis_note(both)], list(_name_charts(rows, per_step)), tables_of_names)


def _names(where: str, base: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    rows = changes.by_name(base, new, ["name"])
    calls = list(map(_call_change, rows["base_count"], rows["new_count"]))
    return rows.assign(where=where, delta_count=rows["new_count"] - rows["base_count"], calls=calls)


def _by_kernel(kernels: pd.DataFrame) -> pd.DataFrame:
    return kernels.rename(columns={"kernel": "name"})[["name", "count", "time"]]


def _call_change(base: float, new: float) -> str:
    if not base or not new:
        return "added" if not base else "removed"
    return "increased" if new > base else "decreased" if new < base else "unchanged"


def _name_charts(rows: pd.DataFrame, per_step: str) -> Iterator[Chart]:
    for where in ("CPU", "GPU"):
        shown, name = rows[rows["where"] == where], where.lower()
        caption = f"{per_step.capitalize()}; positive: more than before."
        yield tables.movers_chart(f"{name}_calls", f"{where}: calls that changed most", shown, "name", per_step,
                                  value="delta_count", caption=caption)  # fmt: skip
        yield tables.movers_chart(f"{name}_time", f"{where}: time that changed most", shown, "name", per_step,
                                  caption=caption)  # fmt: skip


def _name_counts(rows: pd.DataFrame, per_step: str) -> Table:
    spec = TableSpec(
        "classes",
        "Names by what happened to their calls",
        (
            key("where", "Where", Unit.TEXT, "CPU: operators of the host; GPU: kernels, copies and fills."),
            key("calls", "Calls", Unit.TEXT, f"{per_step.capitalize()}."),
            Column("names", "Names", Unit.COUNT, "How many names."),
            Column("delta", "Change of time", Unit.TIME_CHANGE, f"Of these names together, {per_step}."),
        ),
    )
    counts = rows.groupby(["where", "calls"]).agg(names=("name", "size"), delta=("delta", "sum")).reset_index()
    return Table(spec, counts)


def _names_table(rows: pd.DataFrame, per_step: str) -> Table:
    where = key("where", "Where", Unit.TEXT, "CPU: operators of the host (self time); GPU: device work.")
    calls = Column("calls", "Calls", Unit.TEXT, "What happened to their number.")
    keys = (where, key("name", "Name", Unit.NAME), calls)
    order = rows["delta"].abs().sort_values(ascending=False, kind="stable").index
    return tables.work_table("names", "By name", keys, rows.loc[order], per_step, is_detail=True)


def communication_section(base: Side, new: Side) -> Section:
    """Return the section on the changes of collectives and copies."""
    section, per_step = topics.section("compare_communication"), base.per_step_label
    if not base.tells_kernels or not new.tells_kernels:
        return _not_there(section, _NO_WORK)
    groups = ["collective", "process_group"]
    collectives = _with_bytes(base.collectives, new.collectives, groups)
    copies = _with_bytes(base.copies, new.copies, ["kind"])
    if not len(collectives) and not len(copies):
        return _not_there(section, "neither run has collectives or copies")
    sizes = (
        Column("base_bytes", "Base bytes", Unit.BYTES, f"{per_step.capitalize()}, where sizes are known."),
        Column("new_bytes", "New bytes", Unit.BYTES, f"{per_step.capitalize()}, where sizes are known."),
    )
    keys = (key("collective", "Collective", Unit.TEXT), key("process_group", "Process group", Unit.TEXT), *sizes)
    labelled = collectives.assign(label=collectives["collective"] + " " + collectives["process_group"])
    return _filled(
        section,
        [_basis_note((base, new))],
        [
            tables.movers_chart("collectives", "Collectives that changed most", labelled, "label", per_step),
            tables.movers_chart("copies", "Copies that changed most", copies, "kind", per_step),
        ],
        [
            tables.work_table("collectives", "Collectives", keys, collectives, per_step),
            tables.work_table("copies", "Copies and fills", (key("kind", "Kind", Unit.TEXT), *sizes), copies, per_step),
        ],
    )


def _with_bytes(base: pd.DataFrame, new: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    rows = changes.by_name(base, new, keys)
    for name, side in (("base_bytes", base), ("new_bytes", new)):
        sizes = side.groupby(keys)["bytes"].sum(min_count=1).rename(name).reset_index()
        rows = rows.merge(sizes, on=keys, how="left")
    return rows


def ranks_section(base: Side, new: Side) -> Section:
    """Return the section on the ranks that became slower or faster."""
    section = topics.section("compare_ranks")
    if not len(base.ranks) or not len(new.ranks):
        return _not_there(section, "one of the runs has no times by rank")
    rows = base.ranks.merge(new.ranks, on="rank", how="outer", suffixes=("_base", "_new")).sort_values("rank")
    rows["delta"], rows["own_delta"] = rows["time_new"] - rows["time_base"], rows["own_new"] - rows["own_base"]
    rows["share"] = rows["delta"] / rows["time_base"]
    both = rows.dropna(subset=["time_base", "time_new"])
    shown = both.assign(label="rank " + both["rank"].astype(str), change="moved")
    by_step = base.per_step_label != "per rank"
    what = "mean step time" if by_step else "GPU span"
    chart = tables.movers_chart("ranks", "Ranks that moved most", shown, "label", "of the " + what,
                                caption=f"{what[:1].upper()}{what[1:]}, new - base.")  # fmt: skip
    notes = [_one_sided(rows, "time_new", "base"), _one_sided(rows, "time_base", "new")]
    return _filled(section, notes, [chart] if len(both) > 1 else [], [_ranks_table(rows, what)])


def _ranks_table(rows: pd.DataFrame, what: str) -> Table:
    lower, mean = Better.LOWER, "Mean over the steps of this rank." if "step" in what else "Of everything recorded."
    spec = TableSpec(
        "ranks",
        f"{what[:1].upper()}{what[1:]} by rank",
        (
            key("rank", "Rank"),
            Column("time_base", "Base", _NS, mean),
            Column("time_new", "New", _NS, mean),
            Column("delta", "Change", Unit.TIME_CHANGE, "New - base.", better=lower),
            Column("share", "Change %", Unit.RATIO_CHANGE, "Of the base.", better=lower),
            Column("own_base", "Own base", _NS, "Without exposed communication."),
            Column("own_new", "Own new", _NS, "Without exposed communication."),
            Column("own_delta", "Own change", Unit.TIME_CHANGE, "New - base.", better=lower),
        ),
    )
    return Table(spec, rows)


def _one_sided(rows: pd.DataFrame, missing: str, side: str) -> str:
    ranks = [str(rank) for rank in rows.loc[rows[missing].isna(), "rank"]]
    if not ranks:
        return ""
    return f"In the {side} run only: rank{'s' if len(ranks) > 1 else ''} {listed(ranks, _MAX_RANKS)}."


def _filled(section: Section, notes: list[str], charts: list[Chart], shown_tables: list[Table]) -> Section:
    return replace(
        section,
        notes=tuple(filter(None, notes)),
        charts=tuple(chart for chart in charts if len(chart.frame)),
        tables=tuple(shown_tables),
    )


def _not_there(section: Section, reason: str) -> Section:
    return replace(section, status=Status.NOT_APPLICABLE, reason=reason)
