# SPDX-License-Identifier: Apache-2.0
"""A training script as people write it, for `lockstep extract`: extracted.py CASE. With CAPTURE=FOLDER in the environment it is captured as well,
for ranks that really run; nothing else differs.
"""

import contextlib
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

MICRO_BATCHES = 2


class Block(nn.Module):
    def __init__(self, size=8):
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.up = nn.Linear(size, 12)
        self.down = nn.Linear(12, size)

    def forward(self, inputs):
        return inputs + self.down(torch.tanh(self.up(self.norm(inputs))))


def model():
    torch.manual_seed(3)
    return nn.Sequential(Block(), Block())


def train(module, optimizer, reduce=lambda: None, first=contextlib.nullcontext, scale=1.0 / MICRO_BATCHES, data=None, before=lambda micro: None, steps=2,
          clip=None):
    capture = contextlib.nullcontext()
    if "CAPTURE" in os.environ:
        sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
        import lockstep
        capture = lockstep.capture(module, optimizer, out=os.environ["CAPTURE"], loss="local_mean", report=False)
    data = dist.get_rank() if data is None else data
    with capture:
        for step in range(steps):
            optimizer.zero_grad()
            for micro in range(MICRO_BATCHES):
                before(micro)
                torch.manual_seed(100 * data + 10 * step + micro)
                with first() if micro == 0 else contextlib.nullcontext():
                    (module(torch.randn(5, 8)).square().mean() * scale).backward()
            reduce()
            if clip:
                torch.nn.utils.clip_grad_norm_(module.parameters(), clip)
            optimizer.step()


def all_reduced(module, divide, skip=()):
    def reduce():
        for name, parameter in module.named_parameters():
            if not any(one in name for one in skip):
                dist.all_reduce(parameter.grad)
                parameter.grad /= divide
    return reduce


def ddp(**options):
    module = DistributedDataParallel(model())
    train(module, torch.optim.SGD(module.parameters(), lr=0.1), first=module.no_sync, clip=0.1, **options)


def by_hand(divide=None, skip=()):
    module = model()
    train(module, torch.optim.SGD(module.parameters(), lr=0.1), all_reduced(module, divide or dist.get_world_size(), skip))


def in_one_buffer():
    """As frameworks do it: a flat buffer, the gradients added to it, one reduction in a lower precision."""
    module = model()
    parameters = list(module.parameters())

    def reduce():
        flat = torch.cat([parameter.grad.reshape(-1) for parameter in parameters]).to(torch.bfloat16)
        flat.mul_(1 / dist.get_world_size())
        dist.all_reduce(flat)
        for parameter, part in zip(parameters, flat.split([parameter.numel() for parameter in parameters])):
            parameter.grad.copy_(part.view_as(parameter))
    train(module, torch.optim.SGD(module.parameters(), lr=0.1), reduce)


def scattered():
    """A reduce-scatter and an all-gather, as ZeRO has them."""
    module = model()
    parameters, world = list(module.parameters()), dist.get_world_size()

    def reduce():
        flat = torch.cat([parameter.grad.reshape(-1) for parameter in parameters])
        flat = torch.nn.functional.pad(flat, (0, -flat.numel() % world))
        part = torch.empty(flat.numel() // world)
        dist.reduce_scatter_tensor(part, flat / world)
        dist.all_gather_into_tensor(flat, part)
        begin = 0
        for parameter in parameters:
            parameter.grad = flat[begin:begin + parameter.numel()].view_as(parameter)
            begin += parameter.numel()
    train(module, torch.optim.SGD(module.parameters(), lr=0.1), reduce)


def reduced_in_every_micro_batch():
    """Of the second micro-batch on, what was reduced before is reduced again."""
    module = model()
    reduce = all_reduced(module, dist.get_world_size())
    train(module, torch.optim.SGD(module.parameters(), lr=0.1), reduce, before=lambda micro: reduce() if micro else None)


def not_zeroed():
    module = model()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    optimizer.zero_grad = lambda: None
    train(module, optimizer, all_reduced(module, dist.get_world_size()))


def fsdp2(shape=None, names=("dp",), **options):
    from torch.distributed.fsdp import fully_shard

    module, world = model(), dist.get_world_size()
    mesh = init_device_mesh("cpu", shape or (world,), mesh_dim_names=names)
    for block in module:
        fully_shard(block, mesh=mesh, **options)
    fully_shard(module, mesh=mesh, **options)
    train(module, torch.optim.AdamW(module.parameters(), lr=0.1), clip=0.1)


def tensor_parallel(own_data=False):
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    module = model()
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "tp"))
    for block in module:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["dp"])
    train(module, torch.optim.AdamW(module.parameters(), lr=0.1), data=None if own_data else mesh.get_local_rank("dp"))


CASES = {
    "ddp": ddp,
    "ddp-not-divided-by-micro-batches": lambda: ddp(scale=1.0),
    "by-hand": by_hand,
    "divided-twice": lambda: by_hand(divide=dist.get_world_size() ** 2),
    "left-out": lambda: by_hand(skip=("norm",)),
    "in-one-buffer": in_one_buffer,
    "scattered": scattered,
    "reduced-in-every-micro-batch": reduced_in_every_micro_batch,
    "not-zeroed": not_zeroed,
    "fsdp2": fsdp2,
    "hsdp": lambda: fsdp2((2, dist.get_world_size() // 2), ("dp_replicate", "dp_shard")),
    "tensor-parallel": tensor_parallel,
    "tensor-parallel-other-data": lambda: tensor_parallel(own_data=True),  # along tp as well
}


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    CASES[sys.argv[1]]()
    dist.destroy_process_group()
