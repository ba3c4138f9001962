"""Kineto traces on disk, and one rank's events in memory."""

from htareport.trace.capture import Capture
from htareport.trace.events import Events
from htareport.trace.job import Trace
from htareport.trace.model import Capability, RankTrace
from htareport.trace.options import ReadOptions
from htareport.trace.window import ALL, Window

__all__ = ["ALL", "Capability", "Capture", "Events", "RankTrace", "ReadOptions", "Trace", "Window"]
