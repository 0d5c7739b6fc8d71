# SPDX-License-Identifier: Apache-2.0
"""torch alone on gloo: fully_shard over replicas and shards, with set_requires_all_reduce(False) for all micro-batches but the last. Two weights of one unit; the
loss of a micro-batch is the sum of the weights that it uses, each times a number. Each line has the gradients after each step; gradients are cleared between."""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 10000), WORLD_SIZE="2", OMP_NUM_THREADS="1")
BOTH = {"a": 1.0, "b": 10.0}
CASES = {"a and b in both micro-batches": [[BOTH, BOTH]], "a in the first, b in the last": [[{"a": 1.0}, {"b": 10.0}]],
         "a in the first, b in the last, then both": [[{"a": 1.0}, {"b": 10.0}], [BOTH, BOTH]]}


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = (torch.nn.Parameter(torch.zeros(4)) for _ in range(2))

    def forward(self, uses):
        return sum(getattr(self, name).sum() * number for name, number in uses.items())


class Layers(torch.nn.ModuleDict):
    def __init__(self):
        super().__init__({name: Branches() for name in "ab"})

    def forward(self, uses):
        return sum(self[name]({name: number}) for name, number in uses.items())


def gradients(kind, setter, steps):
    model, mesh = kind(), init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard"))
    for unit in (*(model.children()), model):
        fully_shard(unit, mesh=mesh)
    for micro_batches in steps:
        model.zero_grad()
        for number, uses in enumerate(micro_batches):
            if setter:
                getattr(model, setter)(number == len(micro_batches) - 1)
            model(uses).backward()
        yield " ".join(name[-1] + " %g" % one.grad.full_tensor()[0] for name, one in model.named_parameters() if one.grad is not None)


def main(rank):
    os.environ["RANK"] = str(rank)
    dist.init_process_group("gloo")
    for kind, title in ((Branches, "one unit"), (Layers, "a unit each")):
        for setter in (None, "set_requires_gradient_sync", "set_requires_all_reduce"):
            for name, steps in CASES.items():
                found = ", ".join(gradients(kind, setter, steps))
                if rank == 0:
                    print("%s, %s, %s: %s" % (title, setter or "all reduced", name, found), flush=True)


if __name__ == "__main__":
    torch.multiprocessing.start_processes(main, nprocs=2, start_method="fork")
