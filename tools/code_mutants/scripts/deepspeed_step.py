# SPDX-License-Identifier: Apache-2.0
"""A right training script with DeepSpeed: deepspeed_step.py STAGE [OPTION…]. Options: of ZeRO, each switched on, or off behind "no-"; bf16; prescaled, with a
predivide factor; parts: several sub-groups of ZeRO 3; groups: two groups of parameters; persistent: small parameters
of ZeRO 3 are not sharded; fp32: the type of what is sent; clipped; ones, threes: so many micro-batches."""

import os
import sys

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import torch
import torch.distributed as dist
from torch import nn


def grouped(model):
    """Matrices and the rest, as where the rest has no weight decay."""
    return [{"params": [one for one in model.parameters() if one.dim() == dimensions]} for dimensions in (2, 1)]


def main(stage, *options):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 11), nn.LayerNorm(11), nn.Tanh(), nn.Linear(11, 10), nn.Tanh(), nn.Linear(10, 8))
    micro_batches = 1 if "ones" in options else 3 if "threes" in options else 2
    zero = {"stage": int(stage), "reduce_bucket_size": 150, "stage3_param_persistence_threshold": 0,
            **{option: True for option in options if option in ("overlap_comm", "contiguous_gradients", "round_robin_gradients")},
            **{option[3:]: False for option in options if option.startswith("no-")},
            **({"sub_group_size": 40} if "parts" in options else {}), **({"stage3_param_persistence_threshold": 12} if "persistent" in options else {})}
    config = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": micro_batches, "zero_optimization": zero, "bf16": {"enabled": "bf16" in options},
              "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
              **({"prescale_gradients": True, "gradient_predivide_factor": 2.0 if "divided" in options else 1.0} if "prescaled" in options else {}),
              **({"gradient_clipping": 0.5} if "clipped" in options else {}),
              **({"communication_data_type": "fp32"} if "fp32" in options else {})}
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(grouped(model) if "groups" in options else model.parameters(), lr=0.1),
                                     config=config)
    for number in range(3 * micro_batches):
        torch.manual_seed(100 * dist.get_rank() + number)
        batch = torch.randn(4, 8).to(next(engine.module.parameters()).dtype)
        engine.backward((engine(batch) - batch).float().square().mean())
        engine.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
