# SPDX-License-Identifier: Apache-2.0
"""A training script with DeepSpeed: deepspeed_step.py NAME=VALUE…, where NAME is a key of DeepSpeed's configuration, with dots to one inside, and VALUE as
in JSON. `unit=N` gives DeepSpeed its own unit (mpu) with sequence parallelism N, as Ulysses has it; `mesh=N` is its configuration of a mesh."""

import json
import sys

import deepspeed
import torch
import torch.distributed as dist


def main(*given):
    config = {"train_micro_batch_size_per_gpu": 4, "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
    values = {name: json.loads(value) for name, _, value in (one.partition("=") for one in given)}
    unit, mesh = values.pop("unit", 1), values.pop("mesh", 1)
    for name, value in values.items():
        *outer, last = name.split(".")
        place = config
        for one in outer:
            place = place.setdefault(one, {})
        place[last] = value
    deepspeed.init_distributed(verbose=False)
    if mesh > 1:
        config.update(sequence_parallel_size=mesh, data_parallel_size=dist.get_world_size() // mesh)
    own = None
    if unit > 1:
        from deepspeed.runtime.sequence_parallel import parallel_state_sp as own

        own.initialize_sequence_parallel(unit)
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.Tanh(), torch.nn.Linear(12, 8))
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), config=config, mpu=own)
    number = 0
    while True:
        torch.manual_seed(100 * dist.get_rank() + number)
        batch = torch.randn(4, 8).to(next(engine.module.parameters()).dtype)
        engine.backward((engine(batch) - batch).float().square().mean())
        engine.step()
        number += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
