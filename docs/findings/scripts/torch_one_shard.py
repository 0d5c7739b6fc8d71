# SPDX-License-Identifier: Apache-2.0
"""torch alone on gloo: fully_shard over two replicas of one shard each (NO_SHARD, as a HSDP mesh), with a divide factor and sums. Averaged over 2 ranks each
rank's gradient counts 1/2."""

import multiprocessing
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 10000), WORLD_SIZE="2", OMP_NUM_THREADS="1")


class Picked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(4))

    def forward(self, picks):
        return (self.weight * picks).sum()


def coefficients(rank, mesh, factor):
    model = fully_shard(Picked(), mesh=mesh)
    if factor is not None:
        model.set_gradient_divide_factor(factor)
        model.set_force_sum_reduction_for_comms(True)
    model(torch.eye(4)[rank]).backward()
    return model.weight.grad.full_tensor()[:2].tolist()


def main(rank):
    os.environ["RANK"] = str(rank)
    dist.init_process_group("gloo")
    for shape in ((2, 1), (1, 2)):
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))
        for factor in (None, 2.0):
            found = coefficients(rank, mesh, factor)
            if rank == 0:
                print("%d replicas of %d shards, divide factor %s: %s" % (*shape, factor, " ".join("%g" % one for one in found)), flush=True)


if __name__ == "__main__":
    ranks = [multiprocessing.get_context("fork").Process(target=main, args=(rank,)) for rank in range(2)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
    raise SystemExit(max(abs(one.exitcode) for one in ranks))
