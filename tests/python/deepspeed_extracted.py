# SPDX-License-Identifier: Apache-2.0
"""A script with DeepSpeed as people write it, for `lockstep extract`: deepspeed_extracted.py STAGE."""

import sys

import deepspeed
import torch


def main(stage="2"):
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.Tanh(), torch.nn.Linear(12, 8))
    config = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "zero_optimization": {"stage": int(stage)}, "bf16": {"enabled": True}}
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=0.01), config=config)
    while True:
        batch = torch.randn(4, 8, dtype=torch.bfloat16, device=engine.device)
        engine.backward((engine(batch) - batch).float().square().mean())
        engine.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
