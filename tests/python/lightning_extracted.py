# SPDX-License-Identifier: Apache-2.0
"""A script with Lightning as people write it, for `lockstep extract`: lightning_extracted.py CASE, right or with a mistake in the module or the
strategy. It asks for GPUs.
"""

import contextlib
import os
import sys

import lightning
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy


class Waves(torch.utils.data.Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        return torch.sin(torch.arange(8.0) * (index + 1))


class Model(lightning.LightningModule):
    def __init__(self, case):
        super().__init__()
        self.case = case
        self.up, self.down = torch.nn.Linear(8, 12), torch.nn.Linear(12, 8)
        self.automatic_optimization = case != "synchronized-too-early"

    def training_step(self, batch, number):
        loss = (self.down(torch.tanh(self.up(batch))) - batch).square().mean()
        if not self.automatic_optimization:  # the last micro-batch is the one that is not to be kept back
            with self.trainer.strategy.block_backward_sync() if number % 2 == 1 else contextlib.nullcontext():
                self.manual_backward(loss / 2)
            if number % 2 == 1:
                self.optimizers().step()
                self.optimizers().zero_grad()
        return loss

    def on_before_optimizer_step(self, optimizer):
        if self.case == "divided-twice":
            for parameter in self.parameters():
                parameter.grad /= self.trainer.world_size

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def summed(_, bucket):
    """A hook of communication that forgets to divide."""
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda future: future.value()[0])


def main(case="right"):
    lightning.seed_everything(3)
    trainer = lightning.Trainer(accelerator="gpu", devices="auto", num_nodes=int(os.environ["GROUP_WORLD_SIZE"]), max_steps=2,
                                accumulate_grad_batches=1 if case == "synchronized-too-early" else 2,
                                strategy=DDPStrategy(ddp_comm_hook=summed if case == "summed" else None),
                                logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Model(case), torch.utils.data.DataLoader(Waves(), batch_size=4))


if __name__ == "__main__":
    main(*sys.argv[1:])
