# SPDX-License-Identifier: Apache-2.0
"""torch alone on gloo: fully_shard over two replicas of one shard each (NO_SHARD, as a HSDP mesh), and composable replicate, with a divide factor: as it is, with
sums forced, and with the reduction in float16. Averaged over 2 ranks each rank's gradient counts 1/2; with a factor of 4, 1/4."""

import multiprocessing
import os

import torch
import torch.distributed as dist
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 10000), WORLD_SIZE="2", OMP_NUM_THREADS="1")


class Picked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(4))

    def forward(self, picks):
        return (self.weight * picks).sum()


def coefficients(rank, wrap, factor, sums, policy):
    model = wrap(Picked(), mp_policy=policy)
    if factor is not None:
        model.set_gradient_divide_factor(factor)
    if sums:
        model.set_force_sum_reduction_for_comms(True)
    model(torch.eye(4)[rank]).backward()
    return " ".join("%g" % one for one in model.weight.grad.full_tensor()[:2].tolist())


def main(rank):
    os.environ["RANK"] = str(rank)
    dist.init_process_group("gloo")
    sharded = {"%d replicas of %d shards" % shape: init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")) for shape in ((2, 1), (1, 2))}
    wraps = {name: lambda model, mesh=mesh, **more: fully_shard(model, mesh=mesh, **more) for name, mesh in sharded.items()}
    wraps["replicate"] = lambda model, **more: replicate(model, mesh=init_device_mesh("cpu", (2,), mesh_dim_names=("replicate",)), **more)
    half = MixedPrecisionPolicy(reduce_dtype=torch.float16)
    for name, wrap in wraps.items():
        for factor, sums, policy in ((None, False, None), (2.0, False, None), (2.0, True, None), (2.0, False, half), (4.0, False, half)):
            found = coefficients(rank, wrap, factor, sums, policy or MixedPrecisionPolicy())
            if rank == 0:
                print("%s, divide factor %s%s%s: %s" % (name, factor, ", sums" if sums else "", ", float16" if policy else "", found), flush=True)


if __name__ == "__main__":
    ranks = [multiprocessing.get_context("fork").Process(target=main, args=(rank,)) for rank in range(2)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
    raise SystemExit(max(abs(one.exitcode) for one in ranks))
