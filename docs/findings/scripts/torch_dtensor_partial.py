# SPDX-License-Identifier: Apache-2.0
"""torch alone on gloo, 2 and 4 ranks: a DTensor made of each rank's tensor by from_local with Partial, its full tensor, and the gradient of the sum of that, on each rank,
against the gradient of the same number computed on one process. Rank r has (1 + r, 5 - r). The last lines have the same mean written in other ways."""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Shard

os.environ.update(MASTER_ADDR="127.0.0.1", OMP_NUM_THREADS="1")
WHOLE = {"sum": lambda all_ranks: all_ranks.sum(0), "avg": lambda all_ranks: all_ranks.mean(0), "max": lambda all_ranks: all_ranks.amax(0),
         "min": lambda all_ranks: all_ranks.amin(0), "product": lambda all_ranks: all_ranks.prod(0)}


def words(found):
    return " and ".join(" ".join("%g" % one for one in rank) for rank in found)


def main(rank, ranks):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_PORT=str(20000 + os.getppid() % 10000 + ranks))
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (ranks,))
    ways = {"Partial(%r)" % op: (lambda one, op=op: DTensor.from_local(one, mesh, [Partial(op)]).full_tensor(), whole) for op, whole in WHOLE.items()}
    ways['Partial("sum") / ranks'] = (lambda one: DTensor.from_local(one, mesh, [Partial()]).full_tensor() / ranks, WHOLE["avg"])
    ways["Shard(0), mean over ranks"] = (lambda one: DTensor.from_local(one[None], mesh, [Shard(0)]).mean(0).full_tensor(), WHOLE["avg"])
    for name, (distributed, whole) in ways.items():
        one = torch.tensor([1.0 + rank, 5.0 - rank], requires_grad=True)
        value = distributed(one).sum()
        value.backward()
        found = [None] * ranks
        dist.all_gather_object(found, one.grad.tolist())
        everything = torch.tensor([[1.0 + other, 5.0 - other] for other in range(ranks)], requires_grad=True)
        right = whole(everything).sum()
        right.backward()
        if rank == 0:
            print("%d ranks, %s: value %g of %g, gradients %s; right %s" % (ranks, name, value.item(), right.item(), words(found), words(everything.grad.tolist())), flush=True)


if __name__ == "__main__":
    for ranks in (2, 4):
        torch.multiprocessing.start_processes(main, (ranks,), nprocs=ranks, start_method="fork")
