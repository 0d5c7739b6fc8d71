# SPDX-License-Identifier: Apache-2.0
"""A right training script with DeepSpeed: deepspeed_step.py STAGE [OPTION…]."""

import os
import sys

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

MICRO_BATCHES = 2


def main(stage, *options):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 11), nn.LayerNorm(11), nn.Tanh(), nn.Linear(11, 10), nn.Tanh(), nn.Linear(10, 8))
    zero = {"stage": int(stage), "reduce_bucket_size": 150, "stage3_param_persistence_threshold": 0,
            **{option: True for option in options if option in ("overlap_comm", "contiguous_gradients")},
            **{option[3:]: False for option in options if option.startswith("no-")}}
    config = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": MICRO_BATCHES, "zero_optimization": zero, "bf16": {"enabled": "bf16" in options},
              "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
              **({"prescale_gradients": True} if "prescaled" in options else {})}
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), config=config)
    for number in range(3 * MICRO_BATCHES):
        torch.manual_seed(100 * dist.get_rank() + number)
        batch = torch.randn(4, 8).to(next(engine.module.parameters()).dtype)
        engine.backward((engine(batch) - batch).float().square().mean())
        engine.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
