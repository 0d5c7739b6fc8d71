# SPDX-License-Identifier: Apache-2.0
"""Lightning alone on gloo, two ranks: an epoch of some batches a rank, four of which are accumulated. The gradient of each batch is 1, and SGD has the learning rate 1, so
that each optimizer step moves the weight by 1 where a step averages the batches that it has."""

import os
import tempfile

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 10000), OMP_NUM_THREADS="1")

import lightning
import torch


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.found = [0.0]

    def training_step(self, batch, _):
        return (self.weight * batch).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1.0)

    def optimizer_step(self, *more):
        super().optimizer_step(*more)
        self.found.append(-self.weight.item())


def main(rank, folder):
    os.environ.update(NODE_RANK="0", LOCAL_RANK=str(rank))
    quiet = {name: False for name in ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")}
    for batches in (8, 6, 5):
        module = Module()
        lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, accumulate_grad_batches=4, default_root_dir=folder, **quiet).fit(
            module, torch.utils.data.DataLoader(torch.ones(2 * batches, 1)))
        if rank == 0:
            print("%d batches: %s" % (batches, " ".join("%g" % (new - old) for old, new in zip(module.found, module.found[1:]))), flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.start_processes(main, (folder,), nprocs=2, start_method="fork")
