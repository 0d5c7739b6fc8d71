# SPDX-License-Identifier: Apache-2.0
"""One rank of the runs of test_gpu.py: gpu_worker.py FOLDER RANK WORLD CASE…, on a Python with torch.

Each case is trained on the processor and on a GPU (NAME_cpu, NAME_cuda), with gloo: all ranks share one GPU, which NCCL refuses. All weights and
inputs are small whole numbers, so that no order of additions and no kernel can give other gradients than another.
"""

import contextlib
import functools

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from worker import CASES, main, seeded, tokens_of

import lockstep


class Whole(nn.Module):
    """A tied embedding, two linear layers and a parameter that no pass uses, of whole numbers."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 6)
        self.up = nn.Linear(6, 4)
        self.down = nn.Linear(4, 6, bias=False)
        self.head = nn.Linear(6, 7, bias=False)
        self.head.weight = self.embedding.weight
        self.unused = nn.Parameter(torch.ones(3))
        seeded(0)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randint(-1, 2, parameter.shape))

    def forward(self, tokens):
        return self.head(self.down(torch.relu(self.up(self.embedding(tokens)))))


def train(out, wrap, device, dtype=torch.float32, without_sync=None, same_tokens=False, **options):
    """Two steps of two micro-batches, with SGD of a whole learning rate."""
    reader = 0 if same_tokens else dist.get_rank()
    model = wrap(Whole().to(device=device, dtype=dtype), device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1, foreach=False)  # torch 2.11 takes no tensors beside DTensors in one
    with lockstep.capture(model, optimizer, out=out, loss="local_mean", report=False, seed=3, **options):
        for step in range(2):
            for micro_batch in range(2):
                tokens = tokens_of(reader, step, micro_batch, 3)
                seeded(reader, step, micro_batch, 9)
                weights = torch.randint(0, 2, (3, 7))
                with without_sync(model) if without_sync and micro_batch == 0 else contextlib.nullcontext():
                    (model(tokens.to(device)) * weights.to(device=device, dtype=dtype)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()


def ddp(model, device):
    return DistributedDataParallel(model, find_unused_parameters=True)


def fsdp2(model, device):
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh(device, (dist.get_world_size(),), mesh_dim_names=("dp",))
    for layer in (model.up, model.down):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def tensor_parallel(model, device):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = init_device_mesh(device, (dist.get_world_size(),), mesh_dim_names=("tp",))
    return parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})


def by_hand(model, device):
    """Every rank's own gradients, which nobody reduces: a mistake."""
    return model


for name, script in {
    "ddp": functools.partial(train, wrap=ddp),
    "ddp_no_sync": functools.partial(train, wrap=ddp, without_sync=lambda model: model.no_sync()),
    "ddp_bfloat16": functools.partial(train, wrap=ddp, dtype=torch.bfloat16),
    "fsdp2": functools.partial(train, wrap=fsdp2),
    "tensor_parallel": functools.partial(train, wrap=tensor_parallel, same_tokens=True),
    "nobody_reduces": functools.partial(train, wrap=by_hand, mesh={"dp": 2}),
}.items():
    for device in ("cpu", "cuda"):
        CASES[name + "_" + device] = (2, functools.partial(script, device=device))


if __name__ == "__main__":
    main()
