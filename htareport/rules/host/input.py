"""Rules about the data loader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from htareport.rank.capability import Capability
from htareport.rank.host_rows import IDLE, per
from htareport.rank.idle import Cause
from htareport.rank.rank import Rank
from htareport.rank.replay.host_edits import edit_without_causes
from htareport.report.findings import Finding
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence
from htareport.rules.engine.wording import listed


@dataclass(frozen=True, kw_only=True)
class LoadingEvidence(Evidence):
    """Idle time while the data loader runs."""

    names: list[tuple[str, int]]  # Host rows that fill it, with ns in all steps.
    has_workers: bool  # Whether worker processes load.
    windows: int


@dataclass(frozen=True)
class _Loading(Rule[LoadingEvidence]):
    """What the rules about the data loader have in common."""

    family, section = Family.HOST, IDLE
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})
    about_idle, confidence = True, "high"
    single: ClassVar[bool]

    least: float = 0.05

    def look(self, rank: Rank) -> LoadingEvidence | None:
        claim = rank.idle_by(Cause.LOADING)
        if rank.share(claim) < self.least:
            return None
        names = rank.idle_names(Cause.LOADING)
        if self.single != any("_SingleProcess" in name for name, _ in names):
            return None
        spans = rank.spans(claim, name=names[0][0] if names else "")
        has_workers = any("_MultiProcessing" in name for name, _ in names)
        edit = edit_without_causes(rank, claim, Cause.LOADING)
        return LoadingEvidence(
            claim=claim, edit=edit, spans=spans, names=names, has_workers=has_workers, windows=per(rank)
        )

    def loading_finding(self, job: JobEvidence[LoadingEvidence], clause: str, snippet: str) -> Finding:
        """The finding of both rules: `clause` says how the loader works, as the end of the title."""
        worst = job.worst
        return self.finding(
            job,
            f"The GPU waits {job.max_saving} {job.per_step} for the data loader{clause}",
            evidence=f"While the device is idle the host runs {listed(worst.names, job, worst.windows)} "
            f"{job.per_step}.",
            assumption="Loading is hidden behind the device's work altogether.",
            snippet=snippet,
        )


@dataclass(frozen=True)
class InputStall(_Loading):
    """The device waits for the next batch, which worker processes load.

    ## When it speaks
    The data loader's `__next__` runs while the device is idle, for at least `least` of the step. Loading that the
    device's work hides is no finding. Where the loader works in the main process, H15 says so instead.

    ## What it could save
    The idle time that the loader fills.

    ## What to do
    Use more workers (at most as many as cores per rank), or load more batches ahead (`prefetch_factor`). Profile the
    dataset's `__getitem__`. Decode on the GPU, or once before the run.

    ## How to verify
    *Data loading* is gone from *Idle time by what the host did*.
    """

    code, title, single = "H14", "The device waits for the data loader", False

    def tell(self, job: JobEvidence[LoadingEvidence]) -> Finding:
        return self.loading_finding(
            job,
            ", whose workers are too slow" if job.worst.has_workers else "",
            "DataLoader(dataset, batch_size, num_workers=16, prefetch_factor=4, persistent_workers=True)",
        )


@dataclass(frozen=True)
class SingleProcessLoader(_Loading):
    """The device waits for the next batch, which the main process loads itself.

    ## When it speaks
    The `__next__` of a loader without workers (`_SingleProcessDataLoaderIter`) runs while the device is idle, for at
    least `least` of the step.

    ## What it could save
    The idle time that the loader fills, if enough workers load ahead.

    ## What to do
    Load in worker processes and ahead: `num_workers=4` or more, `persistent_workers=True`, and `pin_memory=True`.

    ## How to verify
    *Data loading* is gone from *Idle time by what the host did*.
    """

    code, title, single = "H15", "The data loader works in the main process", True

    def tell(self, job: JobEvidence[LoadingEvidence]) -> Finding:
        return self.loading_finding(
            job,
            ", which works in the main process",
            "DataLoader(dataset, batch_size, num_workers=8, persistent_workers=True, pin_memory=True)",
        )
