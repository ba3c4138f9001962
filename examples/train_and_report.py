"""A training that leaves a report: a tiny model on the CPU, alone or as several ranks.

    python examples/train_and_report.py reports/
    torchrun --nproc-per-node 2 examples/train_and_report.py reports/

It needs PyTorch, and a few seconds.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn

import htareport

STEPS = 10


def main(arguments: Sequence[str] | None = None) -> None:
    """Train as one of the ranks that torchrun has started, or alone."""
    given = sys.argv[1:] if arguments is None else arguments
    directory = given[0] if given else "reports"
    distributed = "RANK" in os.environ  # Set by torchrun.
    if distributed:
        dist.init_process_group("gloo")
    loss = train(directory, distributed=distributed)
    if distributed:
        gc.collect()  # A model that still holds the process group at the end may abort the process.
        dist.destroy_process_group()
    print(f"loss {loss:.3f}; see {directory}")


def train(directory: str, *, distributed: bool) -> float:
    """Train, and have four of the steps profiled. Returns the last loss."""
    model: nn.Module = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
    if distributed:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with htareport.profile_training(directory, wait=1, warmup=1, active=4, title="A tiny training") as prof:
        for _ in range(STEPS):
            batch = torch.randn(32, 64)
            loss = nn.functional.mse_loss(model(batch), batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            prof.step()
    return loss.item()


if __name__ == "__main__":
    main()
