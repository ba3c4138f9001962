"""Kineto traces on disk, and one rank's events in memory."""

from htareport.trace.model import Capability, Events, RankTrace, Trace
from htareport.trace.window import ALL, Window

__all__ = ["ALL", "Capability", "Events", "RankTrace", "Trace", "Window"]
