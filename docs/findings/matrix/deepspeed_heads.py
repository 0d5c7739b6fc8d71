# SPDX-License-Identifier: Apache-2.0
"""A training script with DeepSpeed, of a model with two heads: deepspeed_heads.py STAGE OFFLOAD TAKEN…, where each TAKEN is the head that a micro-batch
takes, in turn, or `rank`: each rank that of its own number."""

import sys

import deepspeed
import torch
import torch.distributed as dist


class Heads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.head0, self.head1 = (torch.nn.Linear(8, 8, bias=False) for _ in range(3))

    def forward(self, batch, head):
        return (self.head1 if head else self.head0)(self.trunk(batch))


def main(stage, offload, micro_batches, *taken):
    torch.manual_seed(3)
    model = Heads()
    zero = {"stage": int(stage), **({"offload_optimizer": {"device": offload}} if offload != "none" else {})}
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), config={
        "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": int(micro_batches), "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False, "zero_optimization": zero})
    number = 0
    while True:
        torch.manual_seed(100 * dist.get_rank() + number)
        batch, head = torch.randn(4, 8), taken[number % len(taken)]
        engine.backward((engine(batch, dist.get_rank() if head == "rank" else int(head)) - batch).square().mean())
        engine.step()
        number += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
