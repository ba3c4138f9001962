"""Limits of queues and durations."""

from __future__ import annotations

CUDA_MAX_LAUNCH_QUEUE_PER_STREAM = 1024
MAX_EVENT_DURATION_US = 604_800_000_000  # Seven days: longer events are set aside when a file is read.
