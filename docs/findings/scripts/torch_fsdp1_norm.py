# SPDX-License-Identifier: Apache-2.0
"""torch alone on gloo, four ranks: clip_grad_norm_ of FullyShardedDataParallel with a root and an inner module of two sharding strategies; hybrid ones have two replicas of
two shards. All ranks have the same batch. Each line has the norm that each rank returns over that of the whole model, and the changes that both weights get by clipping
to 1 and a step of SGD, over the right ones: of each weight the least and the greatest, or one where they are the same."""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 10000), WORLD_SIZE="4", OMP_NUM_THREADS="1")
CASES = [("FULL_SHARD", "FULL_SHARD"), ("FULL_SHARD", "NO_SHARD"), ("HYBRID_SHARD", "HYBRID_SHARD"), ("HYBRID_SHARD", "NO_SHARD"),
         ("NO_SHARD", "HYBRID_SHARD"), ("FULL_SHARD", "HYBRID_SHARD"), ("HYBRID_SHARD", "FULL_SHARD")]


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 8, bias=False), torch.nn.Linear(8, 8, bias=False))


def step(one, clip):
    """The norm, and what a step of SGD with clipping changes."""
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(one.parameters(), lr=1.0)
    (one(torch.randn(4, 8)) ** 2).sum().backward()
    norm = clip(one)
    optimizer.step()
    return norm.item()


def weights(one):
    with FullyShardedDataParallel.summon_full_params(one):
        return [weight.detach().clone() for weight in one.parameters()]


def main(rank):
    os.environ["RANK"] = str(rank)
    dist.init_process_group("gloo")
    meshes = {"HYBRID_SHARD": init_device_mesh("cpu", (2, 2))}
    before, whole = [weight.detach().clone() for weight in model().parameters()], model()
    right = step(whole, lambda one: torch.nn.utils.clip_grad_norm_(one.parameters(), 1.0))
    changes = [weight.detach() - old for weight, old in zip(whole.parameters(), before)]
    for root, inner in CASES:
        layers = model()
        layers[1] = FullyShardedDataParallel(layers[1], sharding_strategy=ShardingStrategy[inner], device_mesh=meshes.get(inner), use_orig_params=True, device_id=torch.device("cpu"))
        sharded = FullyShardedDataParallel(layers, sharding_strategy=ShardingStrategy[root], device_mesh=meshes.get(root), use_orig_params=True, device_id=torch.device("cpu"))
        norm = step(sharded, lambda one: one.clip_grad_norm_(1.0))
        ratios = [(new - old) / change for new, old, change in zip(weights(sharded), before, changes)]
        found = [" to ".join(sorted({"%.3g" % edge.item() for edge in one.aminmax()})) for one in ratios]
        everyone = [None] * 4
        dist.all_gather_object(everyone, (norm / right, *found))
        if rank == 0:
            print("root %s, inner %s: norms %s, changes %s" % (root, inner, " ".join("%.3g" % one[0] for one in everyone), " and ".join("%s, %s" % one[1:] for one in everyone)), flush=True)


if __name__ == "__main__":
    torch.multiprocessing.start_processes(main, nprocs=4, start_method="fork")
