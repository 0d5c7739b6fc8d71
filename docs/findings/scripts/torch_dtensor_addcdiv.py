# SPDX-License-Identifier: Apache-2.0
"""torch alone on gloo, 2 and 4 ranks: addcdiv(a, b, c), which is a + b / c, of sums over the rows of sharded DTensors. Each line has the value over the right one, and the
medians of the gradients of a, b and c over those of whole tensors; all are 1 where DTensors compute what one tensor does. The last lines fill such a sum with 1."""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

os.environ.update(MASTER_ADDR="127.0.0.1", OMP_NUM_THREADS="1")
WAYS = {
    "addcdiv, rows": (Shard(0), lambda a, b, c: torch.addcdiv(a, b, c)),
    "addcdiv, columns": (Shard(1), lambda a, b, c: torch.addcdiv(a, b, c)),
    "addcdiv, all reduced before": (Shard(0), lambda a, b, c: torch.addcdiv(*(getattr(one, "redistribute", lambda **_: one)(placements=[Replicate()]) for one in (a, b, c)))),
    "a + b / c, rows": (Shard(0), lambda a, b, c: a + b / c),
    "addcmul(a, b, 1 / c), rows": (Shard(0), lambda a, b, c: torch.addcmul(a, b, 1 / c)),
}


def main(rank, ranks):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_PORT=str(20000 + os.getppid() % 10000 + ranks))
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (ranks,))
    filled = distribute_tensor(torch.ones(8, 4), mesh, [Shard(0)]).sum(0).fill_(1.0).full_tensor()
    for name, (placement, way) in WAYS.items():
        torch.manual_seed(0)
        values = [torch.rand(8, 4) + 1 for _ in range(3)]
        whole = [one.clone().requires_grad_() for one in values]
        right = way(*(one.sum(0) for one in whole)).sum()
        right.backward()
        parts = [distribute_tensor(one, mesh, [placement]).requires_grad_() for one in values]
        found = way(*(one.sum(0) for one in parts)).sum().full_tensor()
        found.backward()
        ratios = [(part.grad.full_tensor() / one.grad).median().item() for part, one in zip(parts, whole)]
        if rank == 0:
            print("%d ranks, %s: value %.3g, gradients %s" % (ranks, name, found.item() / right.item(), " ".join("%.3g" % one for one in ratios)), flush=True)
    if rank == 0:
        print("%d ranks, filled with 1: %s" % (ranks, " ".join("%g" % one for one in filled.tolist())), flush=True)


if __name__ == "__main__":
    for ranks in (2, 4):
        torch.multiprocessing.start_processes(main, (ranks,), nprocs=ranks, start_method="fork")
