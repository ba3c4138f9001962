"""Analyses that go wrong, in a module that worker processes can import."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar

import pandas as pd

from htareport.analyses import Analysis, Frames, Group, Job
from htareport.report import Chart, Column, TableSpec, Unit, key
from htareport.trace import RankTrace


@dataclass(frozen=True)
class Faulty(Analysis):
    """Counts device events, and fails where it is told to: in `map` (on `ranks`, or all), `combine`, `charts`, ….

    ## How it is computed
    By counting.

    ## What to do
    Nothing.
    """

    title: ClassVar[str] = "Faulty"
    group: ClassVar[Group] = Group.HOST
    tables: ClassVar[tuple[TableSpec, ...]] = (
        TableSpec("counts", "Counts", (key("rank", "Rank"), Column("count", "Count", Unit.COUNT, "Device events."))),
    )

    fails_in: str = ""
    ranks: tuple[int, ...] = ()

    def _do(self, place: str, rank: int | None = None) -> None:
        if place == self.fails_in and (rank is None or not self.ranks or rank in self.ranks):
            raise ValueError(f"wrong in {place}")

    def map(self, trace: RankTrace) -> Frames:
        """Count."""
        self._do("map", trace.rank)
        if self.fails_in == "exit" and trace.rank in self.ranks:
            os._exit(9)
        if self.fails_in == "type" and trace.rank in self.ranks:
            return {"counts": 7}
        return {"counts": pd.DataFrame({"count": [len(trace.device_events)]})}

    def combine(self, frames: Frames, job: Job) -> Frames:
        """Leave as is."""
        del job
        self._do("combine")
        return {} if self.fails_in == "table" else frames

    def charts(self, frames: Frames) -> tuple[Chart, ...]:
        """Draw nothing."""
        del frames
        self._do("charts")
        return ()

    def facts(self, frames: Frames) -> tuple[()]:
        """Say nothing."""
        del frames
        self._do("facts")
        return ()

    def notes(self, frames: Frames) -> tuple[()]:
        """Note nothing."""
        del frames
        self._do("notes")
        return ()
