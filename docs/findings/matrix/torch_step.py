# SPDX-License-Identifier: Apache-2.0
"""Training scripts with torch alone: torch_step.py CASE ARGUMENTS…. Each micro-batch has a mean as its loss."""

import contextlib
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel


def sharded(model, **options):
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:  # before torch 2.6
        from torch.distributed._composable.fsdp import fully_shard
    fully_shard(model, **options)
    return model


def small_model():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.Tanh(), torch.nn.Linear(12, 8)).cuda()


def train(model, optimizer, micro_batches=1, held_back=lambda number: contextlib.nullcontext()):
    while True:
        optimizer.zero_grad()
        for number in range(micro_batches):
            batch = torch.randn(4, 8, device="cuda")
            with held_back(number):
                ((model(batch) - batch).square().mean() / micro_batches).backward()
        optimizer.step()


def hsdp(replicas, shards, factor):
    model = sharded(small_model(), mesh=init_device_mesh("cuda", (int(replicas), int(shards)), mesh_dim_names=("replicate", "shard")))
    if factor == "world":
        model.set_gradient_divide_factor(float(dist.get_world_size()))
        model.set_force_sum_reduction_for_comms(True)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1))


def ddp(optimizer, micro_batches, no_sync="yes", hook=""):
    """Averages over the ranks in the last micro-batch, or with NO_SYNC=no in each of them."""
    micro_batches, model = int(micro_batches), DistributedDataParallel(small_model())
    if hook:
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        model.register_comm_hook(None, getattr(default_hooks, hook))
    made = torch.optim.SGD(model.parameters(), lr=0.1) if optimizer == "sgd" else ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.SGD, lr=0.1, parameters_as_bucket_view=optimizer == "zero-views")
    train(model, made, micro_batches, lambda number: model.no_sync() if no_sync == "yes" and number < micro_batches - 1 else contextlib.nullcontext())


def fsdp2(micro_batches, last_alone):
    """Reduces in each micro-batch, or with LAST_ALONE=yes in the last one."""
    micro_batches, model = int(micro_batches), sharded(small_model(), mesh=init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("dp",)))

    def held_back(number):
        model.set_requires_gradient_sync(last_alone == "no" or number == micro_batches - 1)
        return contextlib.nullcontext()

    train(model, torch.optim.SGD(model.parameters(), lr=0.1), micro_batches, held_back)


def pipeline(schedule, *calls):
    from torch.distributed import pipelining

    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(3 + rank)
    example = {} if hasattr(pipelining.PipelineStage, "has_backward") and torch.__version__ >= "2.6" else {"input_args": torch.zeros(2, 8, device="cuda")}
    stage = pipelining.PipelineStage(torch.nn.Sequential(torch.nn.Linear(8, 8)).cuda(), rank, ranks, torch.device("cuda"), **example)
    schedule = getattr(pipelining, schedule)(stage, 2 * ranks, loss_fn=lambda output, target: (output - target).square().mean())
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
    {"hsdp": hsdp, "ddp": ddp, "fsdp2": fsdp2, "pipeline": pipeline}[sys.argv[1]](*sys.argv[2:])
