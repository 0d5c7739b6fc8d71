# SPDX-License-Identifier: Apache-2.0
"""accelerate and the Trainer alone on gloo, two ranks: an epoch of some batches a rank, four of which are accumulated. The gradient of each batch is 1, and SGD has the
learning rate 1, so that each optimizer step moves the weight by 1 where a step averages the batches that it has."""

import os
import tempfile

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 10000), WORLD_SIZE="2", OMP_NUM_THREADS="1", ACCELERATE_USE_CPU="1")

import torch
import transformers
from accelerate import Accelerator


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, numbers):
        return {"loss": (self.weight * numbers).mean()}


class Sgd(torch.optim.SGD):
    def step(self, closure=None):
        before = self.param_groups[0]["params"][0].item()
        super().step(closure)
        self.found = [*getattr(self, "found", []), before - self.param_groups[0]["params"][0].item()]


def accelerate(model, optimizer, samples):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    model, stepped, batches = accelerator.prepare(model, optimizer, torch.utils.data.DataLoader(samples))
    for batch in batches:
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch)["loss"])
            stepped.step()
            stepped.zero_grad()


def trainer(model, optimizer, samples):
    with tempfile.TemporaryDirectory() as folder:
        transformers.Trainer(model=model, train_dataset=samples, optimizers=(optimizer, None), args=transformers.TrainingArguments(
            output_dir=folder, use_cpu=True, num_train_epochs=1, per_device_train_batch_size=1, gradient_accumulation_steps=4, max_grad_norm=0.0, report_to=[],
            save_strategy="no", disable_tqdm=True, lr_scheduler_type="constant")).train()


def main(rank):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    for run in (accelerate, trainer):
        for batches in (8, 6, 5):
            optimizer = Sgd((model := Model()).parameters(), lr=1.0)
            run(model, optimizer, [{"numbers": torch.ones(1)}] * (2 * batches))
            if rank == 0:
                print("%s, %d batches: %s" % (run.__name__, batches, " ".join("%g" % one for one in optimizer.found)), flush=True)


if __name__ == "__main__":
    torch.multiprocessing.start_processes(main, nprocs=2, start_method="fork")
