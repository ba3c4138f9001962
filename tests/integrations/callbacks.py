"""Trainings by the real frameworks for the tests: `callbacks.py lightning|transformers DIRECTORY [raise]`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

OPTIONS = {"active": 2, "outputs": ("report.json",), "title": "By callback"}


def lightning(directory, *, fail):
    """Train ten batches by Lightning."""
    import lightning.pytorch as pl

    from htareport.integrations.lightning import HtaReportCallback

    class Model(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(16, 16)

        def training_step(self, batch, index):
            if fail and index == 3:
                raise RuntimeError("diverged")
            return self.layer(batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[HtaReportCallback(directory, **OPTIONS)],
    )  # fmt: skip
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.randn(40, 16), batch_size=4))


def transformers(directory, *, fail):
    """Train ten batches by Transformers."""
    from transformers import Trainer, TrainingArguments

    from htareport.integrations.transformers import HtaReportCallback

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.calls = nn.Linear(16, 16), 0

        def forward(self, values):
            self.calls += 1
            if fail and self.calls == 4:
                raise RuntimeError("diverged")
            return {"loss": self.layer(values).square().mean()}

    arguments = TrainingArguments(
        output_dir=str(Path(directory) / "model"), max_steps=10, per_device_train_batch_size=4, use_cpu=True,
        report_to=[], save_strategy="no", disable_tqdm=True, remove_unused_columns=False,
    )  # fmt: skip
    data = [{"values": row} for row in torch.randn(40, 16)]
    Trainer(Model(), arguments, train_dataset=data, callbacks=[HtaReportCallback(directory, **OPTIONS)]).train()


if __name__ == "__main__":
    {"lightning": lightning, "transformers": transformers}[sys.argv[1]](sys.argv[2], fail="raise" in sys.argv)
