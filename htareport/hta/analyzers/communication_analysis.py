"""Communication under compute, as a class method."""

from __future__ import annotations

import pandas as pd

from htareport.hta.common.trace import Trace
from htareport.hta.trace_analysis import TraceAnalysis


class CommunicationAnalysis:
    """See TraceAnalysis for what it answers."""

    @classmethod
    def get_comm_comp_overlap(cls, t: Trace, visualize: bool = False) -> pd.DataFrame:
        """Share of communication time that is hidden under compute."""
        return TraceAnalysis.of(t).get_comm_comp_overlap(visualize)
