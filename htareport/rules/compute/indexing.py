"""The backward pass of looking things up by index."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from htareport.rank.capability import Capability
from htareport.rank.compute_time import compute_time
from htareport.rank.host_rows import names_of
from htareport.rank.kernel_types import events_of
from htareport.rank.operator_kernels import times_of, within
from htareport.rank.operator_work import NONE
from htareport.rank.rank import Rank
from htareport.report.findings import Finding
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import JobEvidence
from htareport.rules.engine.kernel_evidence import KernelEvidence, evidence_of, listed

# What PyTorch calls the nodes of the backward pass, and the operators that these call.
_NODES = re.compile(
    r"(?:^|: )(?:Index|_?EmbeddingBag|Embedding)Backward\d*$|"
    r"^aten::(?:embedding(?:_dense)?_backward|_?embedding_bag(?:_dense)?_backward)$"
)
_EMBEDS = re.compile(r"[Ee]mbedding")
_LEFT = 0.4


@dataclass(frozen=True, kw_only=True)
class IndexingEvidence(KernelEvidence):
    """What IndexingBackward sees on one rank."""

    operators: list[tuple[str, float]]  # Name, and ns per step.


@dataclass(frozen=True)
class IndexingBackward(Rule[IndexingEvidence]):
    """The backward pass of indexing or of an embedding takes much of the compute time.

    ## When it speaks
    What is launched within the backward pass of `x[index]` (`IndexBackward0`) and of embeddings
    (`aten::embedding_dense_backward`) takes at least `least` of the compute time: gradients of equal indices are summed
    up, which sorts them first, and tables that are looked up only here and there get gradients of full size.

    ## What it could save
    60 % of its time; nothing for the lower estimate. Of that, what no other work covers and the host's launches allow.

    ## What to do
    - **embedding**: Let the table have sparse gradients, or fuse its update into the backward pass (FBGEMM, TorchRec).
    - **indexing**: Replace `x[index]` by `torch.index_select` or `torch.gather`, whose gradients are summed without
      sorting, or by slices and masks where the positions are known.

    ## How to verify
    The operators take less time in *Kernels by operator*.
    """

    code, title, family, section = "C20", "Gradients of indexing", Family.COMPUTE, "operator_kernels"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES, Capability.HOST_OPS})
    confidence, low_share = "low", 0.0

    least: float = 0.02

    def look(self, rank: Rank) -> IndexingEvidence | None:
        events, rows = events_of(rank), within(rank, _NODES)
        mine = events.wanted & (rows != NONE)
        times = events.durations[mine]
        if not len(times) or times.sum() < self.least * compute_time(rank):
            return None
        names = [name.rpartition(": ")[2] for name in names_of(rank, rows[mine].tolist())]
        return evidence_of(
            IndexingEvidence, rank, mine, np.full(len(mine), _LEFT), operators=times_of(rank, names, times)
        )

    def tell(self, job: JobEvidence[IndexingEvidence]) -> Finding | None:
        worst = job.worst
        by = ", ".join(f"`{name}` {job.time(time)}" for name, time in worst.operators)
        embeds = _EMBEDS.search(worst.operators[0][0]) is not None
        return self.finding(
            job,
            f"Gradients of {'embeddings' if embeds else 'indexing'} take {job.time(worst.time_ns)} {job.per_step}, "
            f"{job.percent(worst.compute_share)} of compute",
            evidence=f"By operator: {by}. Kernels: {listed(job)}.",
            cases=("embedding" if embeds else "indexing",),
            assumption="Without sorting and gradients of full size it takes 40 %; the lower estimate is nothing.",
            snippet="table = torch.nn.EmbeddingBag(rows, size, sparse=True)\n"
            "optimizer = torch.optim.SparseAdam(list(table.parameters()))"
            if embeds
            else "rows = torch.index_select(x, 0, index)  # Instead of x[index]",
        )
