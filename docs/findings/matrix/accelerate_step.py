# SPDX-License-Identifier: Apache-2.0
"""A training script with Hugging Face accelerate: accelerate_step.py MICRO_BATCHES BATCHES CLIP. The loader has BATCHES batches for each rank, over and over; where these
are no multiple of MICRO_BATCHES, the last window of an epoch is shorter."""

import sys

import torch
from accelerate import Accelerator


class Waves(torch.utils.data.Dataset):
    def __init__(self, number):
        self.number = number

    def __len__(self):
        return self.number

    def __getitem__(self, index):
        return torch.sin(torch.arange(8.0) * (index + 1))


def main(micro_batches, batches, clip="0"):
    accelerator = Accelerator(gradient_accumulation_steps=int(micro_batches))
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.Tanh(), torch.nn.Linear(12, 8))
    loader = torch.utils.data.DataLoader(Waves(4 * int(batches) * accelerator.num_processes), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01), loader)
    while True:
        for batch in loader:
            with accelerator.accumulate(model):
                accelerator.backward((model(batch) - batch).square().mean())
                if float(clip) and accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), float(clip))
                optimizer.step()
                optimizer.zero_grad()


if __name__ == "__main__":
    main(*sys.argv[1:])
