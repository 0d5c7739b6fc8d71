# SPDX-License-Identifier: Apache-2.0
"""A right training script with FSDP2: fsdp2_step.py CASE."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard

MICRO_BATCHES, STEPS = 2, 2


class Sometimes(nn.Sequential):
    """Of its modules the second is left out in every other pass."""

    count = 0

    def forward(self, inputs):
        self.count += 1
        return self[2](self[0](inputs) if self.count % 2 else self[1](self[0](inputs)))


class Rows(nn.Module):
    """A linear layer that keeps its weight transposed."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) / inputs)

    def forward(self, inputs):
        return inputs @ self.weight


class Block(nn.Module):
    def __init__(self, size, last=nn.Linear):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, size)
        self.down = last(size, 8)

    def forward(self, inputs):
        return inputs + self.down(torch.tanh(self.up(self.norm(inputs))))


def sharded(size=10, shape=None, kind=nn.Sequential, **options):
    """Two blocks that are units, and what is left. Of many ranks each has more than the 16 numbers that an extraction takes for counts, and rows of each matrix:
    one of 8 rows is gathered as one of a row for each rank."""
    world = dist.get_world_size()
    even = "shard_placement_fn" in options  # what is not sharded in its rows has parts of one size
    rows = nn.Linear if world <= 8 or even else Rows
    size, last = (size, 8) if world <= 8 else (4 * world + (0 if even else size), 4 * world)
    mesh = init_device_mesh("cpu", shape or (world,), mesh_dim_names=("replicate", "shard") if shape else ("shard",))
    torch.manual_seed(3)
    model = kind(Block(size, rows), Block(size, rows), nn.Linear(8, last))
    for block in model[:2]:
        fully_shard(block, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def train(model, first=lambda model, is_first: None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        for micro_batch in range(MICRO_BATCHES):
            torch.manual_seed(100 * dist.get_rank() + 10 * step + micro_batch)
            first(model, micro_batch == 0)
            (model(torch.randn(5, 8)).float().square().mean() / MICRO_BATCHES).backward()
        optimizer.step()


def accumulated():
    """Gradients are reduced with the last micro-batch alone."""
    train(sharded(), lambda model, is_first: model.set_requires_gradient_sync(not is_first))


def each():
    """With each of them, and parameters are sharded over other groups between forward and backward."""
    train(sharded(size=16, reshard_after_forward=2))


def replicated():
    """Reduced along one axis with each micro-batch, and along both with the last."""
    train(sharded(shape=(2, dist.get_world_size() // 2)), lambda model, is_first: model.set_requires_all_reduce(not is_first))


def mixed():
    """Weights in bfloat16, gradients in float32, matrices sharded in their second dimension, which takes other ways through the buffers."""
    train(sharded(size=16, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
                  shard_placement_fn=lambda parameter: Shard(parameter.dim() - 1 if dist.get_world_size() <= 8 else parameter.shape.index(max(parameter.shape)))))


def divided():
    """By a number that the script gives, in sums."""
    model = sharded(reshard_after_forward=False)
    for module in (model, *model[:2]):
        module.set_gradient_divide_factor(float(dist.get_world_size()))
        module.set_force_sum_reduction_for_comms(True)
    train(model)


def accumulated_mixed():
    """Gradients of the first micro-batch wait, whole, in the type in which they are reduced."""
    train(sharded(mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)),
          lambda model, is_first: model.set_requires_gradient_sync(not is_first))


def replicated_mixed():
    """Partly reduced ones of the first micro-batch wait."""
    train(sharded(shape=(2, dist.get_world_size() // 2), mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)),
          lambda model, is_first: model.set_requires_all_reduce(not is_first))


def sometimes():
    """With parameters of which a micro-batch yields nothing, and weights that stay whole between micro-batches."""
    def first(model, is_first):
        model.set_reshard_after_backward(not is_first)
        model.set_is_last_backward(not is_first)
    train(sharded(kind=Sometimes), first)


def prefetched():
    model = sharded(reshard_after_forward=True)
    model.set_modules_to_forward_prefetch([model[0]])
    model[0].set_modules_to_forward_prefetch([model[1]])
    model[1].set_modules_to_backward_prefetch([model[0]])
    train(model)


def copies():
    """Each rank has all, as under DDP: shards of one rank each, and an all-reduce."""
    train(sharded(shape=(dist.get_world_size(), 1)))


def grouped():
    """Both blocks are one unit, of which a part of the weights does not learn, and one gets no gradient."""
    world = dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("shard",))
    torch.manual_seed(3)
    size, rows, last = (16, nn.Linear, 8) if world <= 8 else (4 * world + 16, Rows, 4 * world)
    model = Sometimes(Block(size, rows), Block(size, rows), nn.Linear(8, last))
    model[0].norm.weight.requires_grad_(False)
    fully_shard(list(model[:2]), mesh=mesh)
    fully_shard(model, mesh=mesh)
    train(model, lambda model, is_first: model.set_requires_gradient_sync(not is_first))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    globals()[sys.argv[1]]()
    dist.destroy_process_group()
