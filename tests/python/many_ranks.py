# SPDX-License-Identifier: Apache-2.0
"""What is done for all ranks at once where there are many, held against what it is for each of them."""

import itertools
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh
from torch.distributed.tensor.placement_types import _StridedShard

from lockstep.extracting import numbers, shapes, shims
from lockstep.pieces import box_of, boxes_of


def boxes():
    """Those that are not empty, each once, of all ranks."""
    random.seed(7)
    several = 0
    assert boxes_of([8], [_StridedShard(0, split_factor=2), Shard(0)], [2, 3]) == [((first, end),) for first, end in itertools.pairwise((0, 2, 3, 5, 6, 7, 8))]
    for _ in range(800):
        shape = [random.choice((0, 1, 3, 5, 8)) for _ in range(random.randint(0, 2))]
        sizes = [random.choice((1, 2, 3, 5)) for _ in range(random.randint(1, 3))]
        dims = range(len(shape))
        placements = [random.choice([Replicate(), *map(Shard, dims), *(_StridedShard(dim, split_factor=2) for dim in dims)]) for _ in sizes]
        held = {tuple(box_of(shape, placements, sizes, at)) for at in itertools.product(*map(range, sizes))}
        expected = sorted(box for box in held if all(first < end for first, end in box))
        assert boxes_of(shape, placements, sizes) == expected, (shape, placements, sizes)
        several += len(expected) > 1
    return several


def what_others_have_put_in():
    """It is changed, all of it by one factor, and what this rank has put in is not."""
    members = [3, 5, 8, 9, 11]
    for rank, whole in itertools.product(members, (True, False)):
        before = torch.arange(1.0, 101.0)
        gathered = before.clone()
        numbers.change("call#0", "all_gather", members, rank, [gathered] if whole else list(gathered.chunk(5)), False)
        own, changed = members.index(rank), gathered / before
        assert torch.equal(gathered.chunk(5)[own], before.chunk(5)[own]), rank
        others = torch.cat([part for place, part in enumerate(changed.chunk(5)) if place != own])
        assert others.max() - others.min() < 1e-5 < (others - 1).abs().min(), (rank, others)


def shapes_that_are_told():
    """The same as those that torch works out, and torch is not asked again."""
    import torch.distributed.tensor._sharding_prop as module

    asked = []
    original = module.ShardingPropagator._propagate_tensor_meta_non_cached
    module.ShardingPropagator._propagate_tensor_meta_non_cached = lambda self, schema: (asked.append(schema.op), original(self, schema))[1]
    shims.install()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

    def results():
        mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("mesh %d" % len(asked),))  # nothing is kept of it yet
        one, other = (distribute_tensor(torch.ones(size), mesh, [Shard(0)]) for size in ((6, 4), (4, 5)))
        norms = torch._foreach_norm([one, other], 2)
        made = [one @ other, one.t(), other.t(), other + 1, one.to(torch.bfloat16), one.sum(0), one + 1, one / norms[0], one.lerp_(one, 0.5), torch.zeros_like(one), one.view(3, 8)]
        assert all(isinstance(tensor, DTensor) for tensor in made)
        return [(tensor.shape, tensor.stride(), tensor.dtype, tensor.to_local().shape) for tensor in made]

    first, count = results(), len(asked)
    told = len(shapes.found)
    assert told >= 7, shapes.found
    shapes.known.update(shapes.found)
    shapes.found.clear()
    assert results() == first and not shapes.found
    assert len(asked) - count <= count - told, asked[count:]
    dist.destroy_process_group()
    return told


def main():
    several = boxes()
    what_others_have_put_in()
    print("compared: %d cuts of several boxes, %d shapes" % (several, shapes_that_are_told()))


if __name__ == "__main__":
    main()
