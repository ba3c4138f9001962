"""What a rank sends so that the parent can replay the job: its graph, with the delays of each change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms.frame_packing import Packed, pack
from htareport.algorithms.frames import Frames
from htareport.rank.collective_calls import call_frames
from htareport.rank.communication import kernels
from htareport.rank.rank import Rank
from htareport.rank.replay.contraction import contracted
from htareport.rank.replay.edits import EditedProgram, RankEdit, edited, scaled, unedited
from htareport.rank.replay.program import Program, program_of
from htareport.rank.replay.reduction import Graph, reduced

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

SCALES = (0.9, 0.75, 0.5)  # Shares of its time that a rank's compute takes in fixed changes; so does its host's work.
DEVICE, HOST = "device", "host"


@dataclass(frozen=True)
class RankReplay:
    """A rank's graph, packed.

    Frames: `nodes` (time, ns since the start of the window), `edges` (source, target, delay), `changes` (edge, code,
    delay: how much the delay differs from the recorded one), `collectives` (begin, end: nodes; row of the frame of
    calls, -1 for none; sender, receiver, group: of what goes from one rank to another), `transfers` (collective, code,
    ns: how much less the bytes take), `steps` (number, node; without steps one of number -1). `start` is the start of
    the window on the rank's clock, `codes` the changes in order.
    """

    frames: Packed
    start: int
    codes: tuple[str, ...]


def replay_of(rank: Rank, edits: Mapping[str, RankEdit]) -> RankReplay | str:
    """Return what a rank sends, with the changes of some rules; as words, why it sends nothing."""
    program = program_of(rank)
    if isinstance(program, str):
        return program
    changes = {"": unedited(program)} | {code: edited(program, edit) for code, edit in edits.items()}
    if bool(program.is_collective.any()):
        for scale in SCALES:
            changes |= {
                f"{DEVICE}{scale}": scaled(program, device=scale),
                f"{HOST}{scale}": scaled(program, host=scale),
            }
    graph = reduced(program, list(changes.values()))
    if isinstance(graph, str):
        return graph
    kept = contracted(graph)
    frames = _frames(rank, program, kept, list(changes), list(changes.values()))
    return RankReplay(pack(frames), program.window.start, tuple(changes)[1:])


def _frames(rank: Rank, program: Program, graph: Graph, codes: list[str], changes: list[EditedProgram]) -> Frames:
    delays = np.stack(graph.delays) if graph.delays else np.zeros((0, len(codes)))
    base = np.rint(delays[:, 0])
    edge, code = np.nonzero(np.abs(np.rint(delays) - base[:, None]) > 0)
    changed = delays[edge, code]
    less = np.where(np.isinf(changed), -(2**62), np.rint(changed) - base[edge])
    transfers = np.stack([change.transfer_ns for change in changes], axis=1)[graph.collective]
    call, of_code = np.nonzero(transfers >= 1)
    steps = program.window.steps or (-1,)
    return {
        "nodes": pd.DataFrame({"time": np.array(graph.time, np.int64) - program.window.start}),
        "edges": pd.DataFrame({"source": graph.source, "target": graph.target, "delay": base.astype(np.int64)}),
        "changes": pd.DataFrame({"edge": edge, "code": code, "less": less.astype(np.int64)}),
        "collectives": _collective_frame(rank, program, graph),
        "transfers": pd.DataFrame(
            {"collective": call, "code": of_code, "ns": np.rint(transfers[call, of_code]).astype(np.int64)}
        ),
        "steps": pd.DataFrame({"number": steps, "node": graph.steps}),
    }


def _collective_frame(rank: Rank, program: Program, graph: Graph) -> pd.DataFrame:
    """The collectives of a graph, and how to match them."""
    if not graph.collective:
        columns = ("begin", "end", "row", "sender", "receiver")
        return pd.DataFrame({name: np.zeros(0, np.int64) for name in columns} | {"group": np.zeros(0, object)})
    rows = kernels(rank)
    of_call = _rows_of_calls(rows, call_frames(rank)["calls"])
    place = rows.index.get_indexer(pd.Index(program.row[np.array(graph.collective, np.int64)]))
    chosen = rows.iloc[place]
    sends = chosen["collective"].str.startswith(("send", "isend")).to_numpy(dtype=bool)
    receives = chosen["collective"].str.startswith(("recv", "irecv")).to_numpy(dtype=bool)
    own = np.full(len(chosen), rank.rank)
    sender = np.where(sends, own, np.where(receives, chosen["sender"].to_numpy(), -1))
    receiver = np.where(receives, own, np.where(sends, chosen["receiver"].to_numpy(), -1))
    is_direct = (sends | receives) & (sender >= 0) & (receiver >= 0)
    return pd.DataFrame(
        {
            "begin": np.array(graph.begin, np.int64),
            "end": np.array(graph.end, np.int64),
            "row": of_call[place],
            "sender": np.where(is_direct, sender, -1),
            "receiver": np.where(is_direct, receiver, -1),
            "group": chosen["group"].astype(str).to_numpy(object),
        }
    )


def _rows_of_calls(rows: pd.DataFrame, calls: pd.DataFrame) -> Ints:
    """The row of the frame of calls for each communication kernel, -1 for none: those of equal times in order."""
    keys = ["start", "dur"]
    one = pd.DataFrame({"start": rows["ts"].to_numpy(), "dur": rows["dur"].to_numpy()})
    other = calls[keys].reset_index(drop=True)
    one["again"], other["again"] = one.groupby(keys).cumcount(), other.groupby(keys).cumcount()
    other["row"] = np.arange(len(other))
    merged = one.merge(other, how="left", on=[*keys, "again"])["row"]
    return merged.fillna(-1).to_numpy(np.int64)
