"""Load one rank with htareport: the events table, and device events linked to their launches."""

import sys

from htareport.rows.options import ReadOptions
from htareport.trace import RankTrace

trace = RankTrace.load(0, sys.argv[1], options=ReadOptions(cache=False))
print(len(trace.events), int((trace.device_events["launch"] >= 0).sum()))
