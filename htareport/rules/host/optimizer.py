"""Rules about the optimizer: kernels for each parameter, gradients filled with zeros."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms import intervals
from htareport.rank.capability import Capability
from htareport.rank.communication import sets_of
from htareport.rank.compute_time import shortened
from htareport.rank.host_rows import IDLE, during, name_of, per, rows_named
from htareport.rank.interval_sets import joined
from htareport.rank.rank import Rank
from htareport.rank.replay.host_edits import edit_of_fused
from htareport.report.findings import Finding
from htareport.report.units import counted
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence

_SAVED_SHARE = 2 / 3  # Of the time of kernels that each read or write one tensor, if one does the work of all.
_STEP = re.compile(r"^Optimizer\.step#")
_ZERO_GRAD = re.compile(r"^Optimizer\.zero_grad#")
_FUSED = re.compile(r"multi_tensor_apply|[Ff]usedAdam|FusedSgd|fused_adam|fused_sgd")
_TORCH_OPTIMIZERS = frozenset({"SGD", "Adam", "AdamW", "Adagrad"})  # Those of `torch.optim` that have a fused kernel.
_FILL = re.compile(r"[Ff]ill|Memset|zero")


def _launched_in(rank: Rank, rows: NDArray[np.int64]) -> pd.DataFrame:
    """Device events that are launched while rows of the host table run, on any thread."""
    host, events = rank.host, rank.device_events
    runs = intervals.union(host.at("ts", rows), host.at("end", rows))
    launched = np.append(rank.launches["ts"].to_numpy(), -1)[events["launch"].to_numpy()]
    return events[intervals.touching(runs, launched, launched + 1)]


@dataclass(frozen=True, kw_only=True)
class UnfusedOptimizerEvidence(Evidence):
    """Kernels that the optimizer launches, in all steps."""

    num_kernels: int
    num_fused: int  # Of these, that work on many tensors.
    name: str  # The annotation of its step.
    windows: int


@dataclass(frozen=True)
class UnfusedOptimizer(Rule[UnfusedOptimizerEvidence]):
    """The optimizer launches kernels parameter by parameter.

    ## When it speaks
    `Optimizer.step` launches more than `kernels` kernels per step, more than `ratio` for each that works on many
    tensors (`multi_tensor_apply`) or is fused; and these kernels, with the idle time while it runs, take at least
    `least` of the step.

    ## What it could save
    The idle time while `Optimizer.step` runs, and two thirds of the time of its kernels: a fused kernel reads and
    writes each tensor once.

    ## What to do
    Pass `fused=True` to the optimizer, or `foreach=True` where it has no fused implementation, so that a few kernels
    update all parameters. `foreach` is the default since PyTorch 2.0.

    ## How to verify
    An optimizer step has a few kernels.
    """

    code, title, family, section = "H19", "The optimizer works parameter by parameter", Family.HOST, IDLE
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})
    about_idle, confidence, is_estimate = True, "high", True

    kernels: float = 300.0
    ratio: float = 5.0
    least: float = 0.01

    def look(self, rank: Rank) -> UnfusedOptimizerEvidence | None:
        rows = rows_named(rank, _STEP)
        events = _launched_in(rank, rows)
        names = events["name"].astype(str)
        is_fused = names.str.contains(_FUSED).to_numpy(dtype=bool)
        num_fused = int(is_fused.sum())
        if len(names) < self.kernels * per(rank) or len(names) < self.ratio * num_fused:
            return None
        saving = np.zeros(len(rank.device_events))
        unfused = events[~is_fused]
        saving[unfused.index.to_numpy()] = _SAVED_SHARE * unfused["dur"].to_numpy()
        claim = joined(during(rank, rows), shortened(rank, saving))
        if rank.share(claim) < self.least:
            return None
        name = name_of(rank, int(rows[0]))
        return UnfusedOptimizerEvidence(
            claim=claim,
            edit=edit_of_fused(rank, saving, rows),
            spans=rank.spans(claim, name=name),
            num_kernels=len(names),
            num_fused=num_fused,
            name=name,
            windows=per(rank),
        )

    def tell(self, job: JobEvidence[UnfusedOptimizerEvidence]) -> Finding:
        worst = job.worst
        optimizer = worst.name.partition("#")[2].partition(".")[0] or "the optimizer"
        known = optimizer if optimizer in _TORCH_OPTIMIZERS else "AdamW"
        num_fused = worst.num_fused / worst.windows
        fused = f"of which {num_fused:,.3g} work on many tensors" if num_fused else "each for one tensor"
        return self.finding(
            job,
            f"{optimizer[:1].upper()}{optimizer[1:]} updates parameter by parameter: {job.max_saving} {job.per_step}",
            evidence=f"`{worst.name}` launches {counted(worst.num_kernels / worst.windows, 'kernel')} {job.per_step}, "
            f"{fused}.",
            assumption="A few kernels take the place of all.",
            snippet=f"optimizer = torch.optim.{known}(model.parameters(), lr, fused=True)",
        )


@dataclass(frozen=True, kw_only=True)
class ZeroedGradientsEvidence(Evidence):
    """Fills that zeroing the gradients launches."""

    num_fills: int  # In all steps.
    windows: int


@dataclass(frozen=True)
class ZeroedGradients(Rule[ZeroedGradientsEvidence]):
    """Gradients are filled with zeros, tensor by tensor.

    ## When it speaks
    `Optimizer.zero_grad` launches more than `fills` fills per step. They and the idle time while it runs take at least
    `least` of the step.

    ## What it could save
    That time.

    ## What to do
    Drop gradients instead of filling them: call `zero_grad(set_to_none=True)`, the default since PyTorch 2.0.

    ## How to verify
    `Optimizer.zero_grad` launches nothing.
    """

    code, title, family, section = "H20", "Gradients are filled with zeros", Family.HOST, IDLE
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})
    about_idle, confidence = True, "high"

    fills: float = 10.0
    least: float = 0.005

    def look(self, rank: Rank) -> ZeroedGradientsEvidence | None:
        rows = rows_named(rank, _ZERO_GRAD)
        if not len(rows):
            return None
        events = _launched_in(rank, rows)
        fills = events[events["name"].astype(str).str.contains(_FILL)]
        claim = joined(during(rank, rows), sets_of(rank, fills))
        if len(fills) < self.fills * per(rank) or rank.share(claim) < self.least:
            return None
        return ZeroedGradientsEvidence(
            claim=claim, spans=rank.spans(claim, name="zero_grad"), num_fills=len(fills), windows=per(rank)
        )

    def tell(self, job: JobEvidence[ZeroedGradientsEvidence]) -> Finding:
        worst = job.worst
        return self.finding(
            job,
            f"Filling gradients with zeros takes {job.max_saving} {job.per_step}",
            evidence=f"`Optimizer.zero_grad` launches {worst.num_fills / worst.windows:,.0f} fills {job.per_step}.",
            assumption="The first backward pass writes gradients instead of adding to zeros.",
            snippet="optimizer.zero_grad(set_to_none=True)",
        )
