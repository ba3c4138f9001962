"""A training for the tests: a tiny model on the CPU, in one of several ways, under a launcher or alone.

    training.py WAY DIRECTORY

At the end it prints when the training itself was over: `over TIME`.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import profile, schedule

import htareport
from htareport.integrations.torch import report_handler

OUTPUTS = ("report.html", "report.json")
WAIT_S = float(os.environ.get("WAIT_S", "3"))


def main(way, directory):
    """Train in this way."""
    distributed = "RANK" in os.environ and way != "uninitialised"
    if distributed:
        dist.init_process_group("gloo")
    train(way, directory, distributed=distributed)
    if distributed:
        gc.collect()  # A model that still holds the process group at the end may abort the process.
        dist.destroy_process_group()
    print(f"over {time.time()}", flush=True)  # noqa: T201  the test reads it


def train(way, directory, *, distributed):
    """Take ten steps."""
    rank = int(os.environ.get("RANK", "0"))
    handler = None if way == "plain" else report_handler(directory, outputs=OUTPUTS, wait_s=WAIT_S)
    model = nn.Linear(32, 32)
    if distributed:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    repeat = 2 if way == "cycles" else 1
    with profiler(way, directory, handler, schedule(wait=1, warmup=1, active=2, repeat=repeat)) as prof:
        for step, batch in enumerate(batches(way)):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            if way in {"killed", "plain"} and rank == 1 and step == 3:
                killed(directory, with_traces=way == "killed")
            if way == "exception" and step == 3:
                raise RuntimeError("diverged")
            if way == "terminated" and step == 6:
                os.kill(os.getpid(), signal.SIGTERM)
            prof.step()


def profiler(way, directory, handler, cycles):
    """Return the profiler of a way."""
    if way in {"one_line", "exception"}:
        return htareport.profile_training(directory, active=2, outputs=OUTPUTS, wait_s=WAIT_S)
    return profile(schedule=cycles, on_trace_ready=handler, record_shapes=True)


def batches(way):
    """Yield ten batches, in one way from a loader with worker processes."""
    data = torch.randn(40, 32)
    if way == "workers":
        return torch.utils.data.DataLoader(data, batch_size=4, num_workers=2)
    return data.split(4)


def killed(directory, *, with_traces):
    """Kill this process, when the other rank has written its trace: before it writes its own."""
    end = time.monotonic() + 20
    while with_traces and not list(Path(directory).glob("traces/rank0.*.gz")) and time.monotonic() < end:
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
