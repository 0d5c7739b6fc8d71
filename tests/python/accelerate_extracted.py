# SPDX-License-Identifier: Apache-2.0
"""A script with Hugging Face accelerate as people write it, for `lockstep extract`: accelerate_extracted.py CASE, right or with a mistake of the
script. It asks for GPUs; "fsdp" shards with FSDP2.
"""

import sys

import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin


class Waves(torch.utils.data.Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        return torch.sin(torch.arange(8.0) * (index + 1))


def main(case="right"):
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="no_wrap", cpu_ram_efficient_loading=False) if case == "fsdp" else None
    accelerator = Accelerator(gradient_accumulation_steps=2, fsdp_plugin=plugin)
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.Tanh(), torch.nn.Linear(12, 8))
    model, optimizer, batches = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01),
                                                    torch.utils.data.DataLoader(Waves(), batch_size=4))
    for number, batch in enumerate(batches):
        if case == "synchronized-too-early":  # the last micro-batch is the one that is not to be kept back
            with accelerator.no_sync(model) if number % 2 == 1 else accelerator.accumulate():
                accelerator.backward((model(batch) - batch).square().mean())
            if number % 2 == 1:
                optimizer.optimizer.step()
                optimizer.optimizer.zero_grad()
            continue
        with accelerator.accumulate(model):
            accelerator.backward((model(batch) - batch).square().mean())
            if accelerator.sync_gradients:
                for parameter in model.parameters():
                    if case == "reduced-twice":  # DistributedDataParallel has done that
                        parameter.grad = accelerator.reduce(parameter.grad, "sum")
                    if case == "one-rank-scaled" and accelerator.is_last_process:
                        parameter.grad /= accelerator.num_processes
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main(*sys.argv[1:])
