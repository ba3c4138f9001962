"""How to record a trace: the profiler's call as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from htareport.rank.rank import Rank
from htareport.rows.classify import NPU_PROCESS
from htareport.rules.engine.evidence import JobEvidence


def is_npu(rank: Rank) -> bool:
    """Whether another profiler than PyTorch's own wrote the trace: torch_npu's."""
    return NPU_PROCESS in rank.loaded.device_categories


def profiler_call(job: JobEvidence[Any], *options: str, steps: int = 5) -> str:
    """The call that records so many steps once warm, with further options such as `with_stack=True`."""
    lines = [
        "with torch.profiler.profile(",
        "    activities=torch.profiler.supported_activities(),",
        f"    schedule=torch.profiler.schedule(wait=5, warmup=3, active={steps}, repeat=1),",
        '    on_trace_ready=torch.profiler.tensorboard_trace_handler("traces", use_gzip=True),',
        *(f"    {option}," for option in options),
        ") as prof:",
        "    for batch in loader:",
        f"        {'model' if job.infers else 'train_step'}(batch)",
        "        prof.step()",
    ]
    return "\n".join(lines)


def joined_words(words: Sequence[str]) -> str:
    """Words with commas, and *and* before the last."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1] if words else "")))
