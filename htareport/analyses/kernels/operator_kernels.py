"""The analysis of kernels by the operator that launches them, with the delays before and after the launch."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from htareport.analyses import Analysis, Frames, Group, Job
from htareport.rank import kernel_launches
from htareport.rank.budget import at_most
from htareport.rank.capability import Capability
from htareport.rank.operator_calls import backward_work, operator_calls
from htareport.rank.rank import Rank
from htareport.report import Better, Chart, Column, Mark, TableSpec, Unit, chart_of, key
from htareport.report.rank_charts import cut_note
from htareport.report.units import text

_NS = Unit.NANOSECONDS
_MAX_ROWS = {"operators": 300, "backward": 100, "kernels": 400, "sequences": 150}  # Rows that a rank sends of each,
_ORDER = {"operators": "device", "backward": "total", "kernels": "sum", "sequences": "device"}  # those of most time.
_TABLE_NAMES = {
    "operators": "by operator",
    "backward": "of forward and backward",
    "kernels": "by operator and kernel",
    "sequences": "by operator, input shapes and kernels",
}
_MAX_BARS = 12
_OPERATOR_HELP = "Innermost operator around the launch, on the thread of the launch."
_DEVICE_HELP = "Sum of the durations of the device events; events that overlap count each."
_OP_DELAY_HELP = "Mean time from the start of the operator to the start of the launch"
_LAUNCH_DELAY_HELP = "Mean time from the start of the launch to the start of its first device event, at least 0"


class OperatorKernels(Analysis):
    """Which operators launch which kernels, how long the host takes to launch them, and how long they wait.

    ## How it is computed
    A device event (kernel, copy or fill) belongs to the innermost operator around the call that launched it, on the
    thread of that call; replaying a CUDA or HIP graph is one launch with many device events. *Operator → launch* lasts
    from the start of the operator to the start of the launch: what the host does before it. *Launch → kernel* lasts
    from the start of the launch to the start of its first device event, the wait behind earlier work of the stream
    included. In the table by input shapes both are those of the first launch of each call. Backward work belongs to the
    forward operator of the same sequence number, which autograd gives to both, on the thread that ran the forward pass.
    There an operator contains what it calls, so the rows overlap; one with no more work than the operator around it is
    left out. The tables add up the largest rows of each rank; a note says where a rank has more.

    ## What to do
    - Long operator → launch while the GPU is idle: the host spends it on dispatch, shape checks and allocation.
      `torch.compile(mode="reduce-overhead")` takes most of that away.
    - Long launch → kernel is fine while the GPU is busy. On an idle one the kernel waits for another stream or a copy:
      see *other* under *Idle time by cause*.
    - One operator with many small kernels: `torch.compile`, or a fused version (`fused=True` for the optimizer,
      `torch.nn.functional.scaled_dot_product_attention`).
    """

    title = "Kernels by operator"
    group = Group.KERNELS
    order = 20
    requires = frozenset({Capability.HOST_OPS, Capability.LAUNCHES})
    tables = (
        TableSpec(
            "operators",
            "By operator, all ranks together",
            (
                key("operator", "Operator", Unit.NAME, _OPERATOR_HELP),
                Column("share", "Share", Unit.RATIO, "Share of the device time of all that operators launched."),
                Column("device", "Device time", _NS, _DEVICE_HELP, better=Better.LOWER),
                Column(
                    "calls",
                    "Calls",
                    Unit.COUNT,
                    "Calls that launched device work directly, not through an operator within.",
                ),
                Column("launches", "Launches", Unit.COUNT, "Launches of these calls.", better=Better.LOWER),
                Column(
                    "kernels", "Device events", Unit.COUNT, "Kernels, copies and fills that these launches started."
                ),
                Column(
                    "op_delay_mean", "Operator → launch", _NS, f"{_OP_DELAY_HELP}, over launches.", better=Better.LOWER
                ),
                Column("launch_delay_mean", "Launch → kernel", _NS, f"{_LAUNCH_DELAY_HELP}, over launches."),
            ),
        ),
        TableSpec(
            "backward",
            "Forward and backward by operator, all ranks together",
            (
                key("operator", "Operator", Unit.NAME, "Operator of the forward pass, with all that it calls."),
                Column("calls", "Calls", Unit.COUNT, "Calls that have work in the backward pass."),
                Column(
                    "forward", "Forward", _NS, "Sum of the durations of what these calls launched.", better=Better.LOWER
                ),
                Column(
                    "backward",
                    "Backward",
                    _NS,
                    "Sum of the durations of what the backward operators of their sequence numbers launched.",
                    better=Better.LOWER,
                ),
                Column(
                    "ratio",
                    "Backward / forward",
                    Unit.COUNT,
                    "About 2 for matrix products and convolutions; none without forward time.",
                ),
            ),
        ),
        TableSpec(
            "kernels",
            "By operator and kernel, all ranks together",
            (
                key("operator", "Operator", Unit.NAME, _OPERATOR_HELP),
                key("kernel", "Kernel", Unit.NAME, "Name in the trace."),
                Column("count", "Calls", Unit.COUNT, "Device events of this name launched by the operator."),
                Column("sum", "Device time", _NS, _DEVICE_HELP, better=Better.LOWER),
                Column("mean", "Mean", _NS, "Mean duration of a call."),
                Column("min", "Min", _NS, "Shortest call."),
                Column("max", "Max", _NS, "Longest call."),
            ),
            is_detail=True,
        ),
        TableSpec(
            "sequences",
            "By operator, input shapes and the kernels launched directly, all ranks together",
            (
                key("operator", "Operator", Unit.NAME, _OPERATOR_HELP),
                key("shapes", "Input shapes", Unit.TEXT, kernel_launches.SHAPES_HELP),
                key("sequence", "Kernels", Unit.NAME, f"{kernel_launches.SEQUENCE_HELP} Launch by launch."),
                Column("count", "Calls", Unit.COUNT, "Calls of the operator with just these kernels."),
                Column(
                    "op_delay_mean", "Operator → launch", _NS, f"{_OP_DELAY_HELP}, of the first launch of each call."
                ),
                Column(
                    "launch_delay_mean", "Launch → kernel", _NS, f"{_LAUNCH_DELAY_HELP}, of the first of each call."
                ),
                Column("device", "Device time", _NS, _DEVICE_HELP, better=Better.LOWER),
                Column("mean", "Mean device time", _NS, "Device time / calls."),
            ),
            is_detail=True,
        ),
    )

    def map(self, rank: Rank) -> Frames:
        backward = backward_work(rank)  # Before there are other large frames.
        calls = operator_calls(rank, kernel_launches.operator_rows(rank))
        sequences = calls.sequences.assign(shapes=kernel_launches.shapes_of(rank, calls.sequences["row"].to_numpy()))
        groups = sequences.groupby(["operator", "shapes", "number"], observed=True)
        by_sequence = groups.agg(
            count=("row", "size"),
            first=("first", "first"),
            stop=("stop", "first"),
            op_delay=("op_delay", "sum"),
            launch_delay=("launch_delay", "sum"),
            device=("device", "sum"),
        ).reset_index()
        by_sequence = _largest(by_sequence, "sequences")
        limits = zip(by_sequence["first"], by_sequence["stop"], strict=True)
        texts = kernel_launches.packed(calls.codes[start:stop] for start, stop in limits)
        kernels = calls.kernels.groupby(["operator", "kernel"])["dur"].agg(["size", "sum", "min", "max"]).reset_index()
        launches = calls.launches.groupby("operator").agg(
            launches=("op_delay", "size"), op_delay=("op_delay", "sum"), launch_delay=("launch_delay", "sum")
        )
        operators = sequences.groupby("operator").agg(calls=("row", "size"), device=("device", "sum"))
        operators["kernels"] = calls.kernels.groupby("operator").size()
        frames = {
            "operators": _largest(operators.join(launches).reset_index(), "operators"),
            "kernels": _largest(kernels.rename(columns={"size": "count"}), "kernels"),
            "sequences": by_sequence.drop(columns=["number", "first", "stop"]).assign(
                sequence=pd.Series(texts, dtype=object, index=by_sequence.index),
                shapes=by_sequence["shapes"].astype(object),
            ),
            "backward": _largest(backward, "backward"),
        }
        for frame in frames.values():
            for column in {"operator", "kernel"} & set(frame.columns):
                frame[column] = pd.Series(kernel_launches.texts(rank, frame[column]), dtype=object, index=frame.index)
        device = int(calls.kernels["dur"].sum())
        size = {"device": device, "outside": int(rank.device_events["dur"].sum()) - device}
        size |= {"operators": len(operators), "kernels": len(kernels), "sequences": groups.ngroups}
        size["backward"] = len(backward)
        return frames | {"names": kernel_launches.names_frame(rank, texts), "size": pd.DataFrame([size])}

    def combine(self, frames: Frames, job: Job) -> Frames:
        del job
        size = frames["size"]
        operators = frames["operators"].drop(columns="rank").groupby("operator").sum().reset_index()
        for delay in ("op_delay", "launch_delay"):
            operators[f"{delay}_mean"] = operators[delay] / operators["launches"]
        operators["share"] = operators["device"] / max(float(size["device"].sum()), 1)
        pooling = {"count": "sum", "sum": "sum", "min": "min", "max": "max"}
        kernels = frames["kernels"].groupby(["operator", "kernel"]).agg(pooling).reset_index()
        kernels["mean"] = kernels["sum"] / kernels["count"]
        rows = frames["sequences"].assign(sequence=kernel_launches.unpacked(frames["sequences"], frames["names"]))
        sums = ["count", "op_delay", "launch_delay", "device"]
        sequences = rows.groupby(["operator", "shapes", "sequence"])[sums].sum().reset_index()
        for delay in ("op_delay", "launch_delay"):
            sequences[f"{delay}_mean"] = sequences[delay] / sequences["count"]
        sequences["mean"] = sequences["device"] / sequences["count"]
        backward = frames["backward"].drop(columns="rank").groupby("operator").sum().reset_index()
        forward = backward["forward"].astype("float64")
        backward["ratio"] = backward["backward"] / forward.where(forward > 0)
        joined = {"operators": operators, "backward": backward, "kernels": kernels, "sequences": sequences}
        return {name: _largest(frame, name) for name, frame in joined.items()} | {
            "size": size,
            "joined": pd.DataFrame([{name: len(frame) for name, frame in joined.items()}]),
        }

    def charts(self, frames: Frames) -> Iterator[Chart]:
        top = frames["operators"].head(_MAX_BARS)
        if not len(top):
            return
        spec = self.tables[0]
        yield chart_of(
            spec,
            "top",
            "Operators by the device time that they launch",
            Mark.BAR,
            top,
            "device",
            "operator",
            caption=f"The {len(top)} largest, all ranks and steps together.",
        )
        yield chart_of(
            spec,
            "delays",
            "From operator to launch",
            Mark.BAR,
            top,
            "op_delay_mean",
            "operator",
            x_label="mean time on the host before a launch",
            caption="The same operators: mean time from the start of the operator to the start of a launch.",
        )
        trained = frames["backward"].head(_MAX_BARS)
        if len(trained):
            yield chart_of(
                spec,
                "backward",
                "Forward and backward by operator",
                Mark.STACKED_BAR,
                trained.melt("operator", ["forward", "backward"], var_name="pass", value_name="value"),
                "operator",
                "value",
                "pass",
                caption="Device time of the operators and of their part of the backward pass; all ranks together.",
            )

    def notes(self, frames: Frames) -> Iterator[str]:
        device, outside = (float(frames["size"][name].sum()) for name in ("device", "outside"))
        if outside:
            share = text(outside / (device + outside), Unit.RATIO)
            yield f"{share} of the device time was launched outside operators, or its launch is not in the trace."
        for table, max_rows in _MAX_ROWS.items():
            size, joined = (frames[name][table] for name in ("size", "joined"))
            yield from cut_note(_TABLE_NAMES[table], size, max_rows, "of most device time", joined)


def _largest(frame: pd.DataFrame, table: str) -> pd.DataFrame:
    """Return the rows of most time that a table holds; ties in order of the text columns."""
    texts = [name for name in ("operator", "kernel", "shapes", "sequence", "number") if name in frame.columns]
    ordered = frame.sort_values([_ORDER[table], *texts], ascending=[False, *(True for _ in texts)], ignore_index=True)
    return ordered.head(at_most(_MAX_ROWS[table], len(ordered)))
