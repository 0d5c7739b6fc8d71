# SPDX-License-Identifier: Apache-2.0
"""torch alone on gloo, two ranks: the gradient of an embedding with scale_grad_by_freq, of DTensors by how indices and weight are placed. Each occurrence of a token
has the gradient 1, and is divided by how often the token is in the batch, so that each token that is there has 1."""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 10000), WORLD_SIZE="2", OMP_NUM_THREADS="1")
TOKENS = torch.tensor([[0, 1, 1, 1], [1, 2, 2, 3]])


def gradient(weight, tokens, scaled):
    torch.nn.functional.embedding(tokens, weight, scale_grad_by_freq=scaled).sum().backward()
    found = getattr(weight.grad, "full_tensor", lambda: weight.grad)()
    return " ".join("%g" % one for one in found[:, 0].tolist())


def main(rank):
    os.environ["RANK"] = str(rank)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2,))
    for scaled in (True, False):
        found = {"one tensor": gradient(torch.zeros(4, 2, requires_grad=True), TOKENS, scaled)}
        for name, weight, tokens in (("tokens sharded by rows", Replicate(), Shard(0)), ("tokens sharded by columns", Replicate(), Shard(1)),
                                     ("weight sharded by columns", Shard(1), Replicate())):
            found[name] = gradient(distribute_tensor(torch.zeros(4, 2), mesh, [weight]).requires_grad_(), distribute_tensor(TOKENS, mesh, [tokens]), scaled)
        if rank == 0:
            print("\n".join("scale_grad_by_freq %s, %s: %s" % (scaled, *one) for one in found.items()), flush=True)


if __name__ == "__main__":
    torch.multiprocessing.start_processes(main, nprocs=2, start_method="fork")
