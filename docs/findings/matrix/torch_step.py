# SPDX-License-Identifier: Apache-2.0
"""Training scripts with torch alone: torch_step.py CASE."""

import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


def hsdp(replicas, shards, factor):
    mesh = init_device_mesh("cuda", (int(replicas), int(shards)), mesh_dim_names=("replicate", "shard"))
    torch.manual_seed(3)
    model = fully_shard(torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.Tanh(), torch.nn.Linear(12, 8)), mesh=mesh)
    if factor == "world":
        model.set_gradient_divide_factor(float(dist.get_world_size()))
        model.set_force_sum_reduction_for_comms(True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while True:
        optimizer.zero_grad()
        batch = torch.randn(4, 8, device="cuda")
        (model(batch) - batch).square().mean().backward()
        optimizer.step()


def pipeline(*calls):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(3 + rank)
    stage = PipelineStage(torch.nn.Sequential(torch.nn.Linear(8, 8)).cuda(), rank, ranks, torch.device("cuda"))
    schedule = Schedule1F1B(stage, 2 * ranks, loss_fn=lambda output, target: (output - target).square().mean())
    optimizer = torch.optim.SGD(stage.submod.parameters(), lr=0.1)
    while True:
        optimizer.zero_grad()
        for call in calls:
            batch = torch.randn(4 * ranks, 8, device="cuda")
            with torch.set_grad_enabled(call == "step"):
                getattr(schedule, call)(*([batch] if rank == 0 else []), **({"target": batch} if rank == ranks - 1 else {}))
        optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("nccl")
    {"hsdp": hsdp, "pipeline": pipeline}[sys.argv[1]](*sys.argv[2:])
