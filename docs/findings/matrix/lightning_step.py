# SPDX-License-Identifier: Apache-2.0
"""A training script with Lightning: lightning_step.py STRATEGY MICRO_BATCHES CLIP."""

import os
import sys

import lightning
import torch


class Waves(torch.utils.data.Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        return torch.sin(torch.arange(8.0) * (index + 1))


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 12), torch.nn.Linear(12, 8)

    def training_step(self, batch, number):
        return (self.down(torch.tanh(self.up(batch))) - batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def main(strategy, micro_batches, clip="0"):
    lightning.seed_everything(3)
    trainer = lightning.Trainer(accelerator="gpu", devices="auto", num_nodes=int(os.environ["GROUP_WORLD_SIZE"]), max_steps=4, strategy=strategy,
                                accumulate_grad_batches=int(micro_batches), gradient_clip_val=float(clip) or None,
                                logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Model(), torch.utils.data.DataLoader(Waves(), batch_size=4))


if __name__ == "__main__":
    main(*sys.argv[1:])
