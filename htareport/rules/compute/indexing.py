"""The backward pass of indexing and embeddings."""

from __future__ import annotations

import re
from dataclasses import dataclass

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
from htareport.rules.engine.kernel_evidence import KernelEvidence, kernel_fields, listed

# Names of nodes of the backward pass, and of the operators that these call.
_NODES = re.compile(
    r"(?:^|: )(?:Index|_?EmbeddingBag|Embedding)Backward\d*$|"
    r"^aten::(?:embedding(?:_dense)?_backward|_?embedding_bag(?:_dense)?_backward)$"
)
_EMBEDS = re.compile(r"[Ee]mbedding")
_REMAINING_SHARE = 0.4  # Of their time.


@dataclass(frozen=True, kw_only=True)
class IndexingEvidence(KernelEvidence):
    """Kernels of the backward pass of indexing and embeddings."""

    operators: list[tuple[str, float]]  # Name, with ns per step; those of most time.


@dataclass(frozen=True)
class IndexingBackward(Rule[IndexingEvidence]):
    """The backward pass of indexing or of an embedding takes much of the compute time.

    ## When it speaks
    Kernels launched in the backward pass of `x[index]` (`IndexBackward0`) or of embeddings
    (`aten::embedding_dense_backward`) take at least `least` of the compute time. Two things make them slow: gradients
    of equal indices are sorted before they are summed, and a table gets a gradient of its full size even if only few
    rows were looked up.

    ## What it could save
    60 % of their time. The lower estimate is zero. Only what shortens the step counts: time that no other work covers,
    as far as the CPU launches early enough.

    ## What to do
    - **embedding**: Use sparse gradients for the table, or fuse its update into the backward pass (FBGEMM, TorchRec).
    - **indexing**: Replace `x[index]` by `torch.index_select` or `torch.gather`, which sum gradients without sorting.
      Where the positions are known in advance, use slices or masks.

    ## How to verify
    These operators take less time in *Kernels by operator*.
    """

    code, title, family, section = "C20", "Gradients of indexing", Family.COMPUTE, "operator_kernels"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES, Capability.HOST_OPS})
    confidence, low_share = "low", 0.0

    least: float = 0.02

    def look(self, rank: Rank) -> IndexingEvidence | None:
        events, rows = events_of(rank), within(rank, _NODES)
        is_backward = events.wanted & (rows != NONE)
        times = events.durations[is_backward]
        if not len(times) or times.sum() < self.least * compute_time(rank):
            return None
        fields = kernel_fields(rank, is_backward, _REMAINING_SHARE)
        names = [name.rpartition(": ")[2] for name in names_of(rank, rows[is_backward].tolist())]
        return IndexingEvidence(**fields, operators=times_of(rank, names, times)) if fields else None

    def tell(self, job: JobEvidence[IndexingEvidence]) -> Finding | None:
        worst = job.worst
        operator_times = ", ".join(f"`{name}` {job.time(time)}" for name, time in worst.operators)
        is_embedding = _EMBEDS.search(worst.operators[0][0]) is not None
        return self.finding(
            job,
            f"Gradients of {'embeddings' if is_embedding else 'indexing'} take {job.time(worst.time_ns)} "
            f"{job.per_step}, {job.percent(worst.compute_share)} of compute",
            evidence=f"By operator: {operator_times}. Kernels: {listed(job)}.",
            cases=("embedding" if is_embedding else "indexing",),
            assumption="Without sorting and full-size gradients they take 40 %. The lower estimate is no saving.",
            snippet="table = torch.nn.EmbeddingBag(rows, size, sparse=True)\n"
            "optimizer = torch.optim.SparseAdam(list(table.parameters()))"
            if is_embedding
            else "rows = torch.index_select(x, 0, index)  # Instead of x[index]",
        )
