# SPDX-License-Identifier: Apache-2.0
"""torch alone on gloo, four ranks: pipelines of four stages on two ranks, twice, whose stages are plain, DistributedDataParallel or fully_shard modules. The first
replica's batch has the gradient 0.5 for each weight and the second's 1.5, so that all have 1 where gradients are averaged."""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble
from torch.distributed.pipelining.schedules import ScheduleDualPipeV, ScheduleZBVZeroBubble
from torch.nn.parallel import DistributedDataParallel

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 10000), WORLD_SIZE="4", OMP_NUM_THREADS="1")


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1, 2))

    def forward(self, numbers):
        return numbers * self.weight


def gradients(kind, wrap, mesh):
    """Of the weights of this rank's stages, by number."""
    place = mesh["pipeline"].get_local_rank()
    numbers = (place, 3 - place) if kind in (ScheduleZBVZeroBubble, ScheduleDualPipeV) else (place, place + 2)
    modules = [Scaled() for _ in numbers]
    stages = [PipelineStage(wrap(module), number, 4, torch.device("cpu"), group=mesh["pipeline"].get_group()) for module, number in zip(modules, numbers)]
    batch = torch.full((4, 2), 0.5 + mesh["data"].get_local_rank())
    schedule = kind(stages, 4, loss_fn=lambda output, target: 2 * output.mean())
    schedule.step(*([batch] if 0 in numbers else []), **({"target": batch} if 3 in numbers else {}))
    whole = [getattr(module.weight.grad, "full_tensor", lambda module=module: module.weight.grad)() for module in modules]
    return {number: one[0, 0].item() for number, one in zip(numbers, whole)}


def main(rank):
    os.environ["RANK"] = str(rank)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "pipeline"))
    wraps = {"plain": lambda module: module, "DDP": lambda module: DistributedDataParallel(module, process_group=mesh["data"].get_group()),
             "fully_shard": lambda module: fully_shard(module, mesh=mesh["data"])}
    for kind in (ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble, ScheduleZBVZeroBubble, ScheduleDualPipeV):
        for name, wrap in wraps.items():
            found = [None] * 4
            dist.all_gather_object(found, gradients(kind, wrap, mesh))
            if rank == 0:
                replicas = [{**found[first], **found[first + 1]} for first in (0, 2)]
                print("%s, %s: %s" % (kind.__name__, name, " | ".join(" ".join("%g" % one[stage] for stage in range(4)) for one in replicas)), flush=True)


if __name__ == "__main__":
    torch.multiprocessing.start_processes(main, nprocs=4, start_method="fork")
