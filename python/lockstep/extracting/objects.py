# SPDX-License-Identifier: Apache-2.0
"""Objects that all ranks gather. torch.distributed makes a tensor for each member and looks at each: of 16,384 members that takes longer than the rest of
a script. Here one tensor has them all; what is sent is the same, first the sizes and then the bytes."""

import pickle

import torch
import torch.distributed as dist


def around_all_gather_object(original):
    c10d = dist.distributed_c10d

    def all_gather_object(object_list, obj, group=None):
        if dist.get_rank(group) < 0:
            return original(object_list, obj, group)
        own = torch.frombuffer(bytearray(pickle.dumps(obj)), dtype=torch.uint8)
        sizes = torch.zeros(dist.get_world_size(group), dtype=torch.long)
        c10d.all_gather_into_tensor(sizes, torch.tensor([own.numel()]), group=group)
        sizes = sizes.tolist()
        longest = max(sizes)
        gathered = torch.zeros(longest * len(sizes), dtype=torch.uint8)
        c10d.all_gather_into_tensor(gathered, torch.nn.functional.pad(own, (0, longest - own.numel())), group=group)
        gathered = gathered.numpy()
        for number, size in enumerate(sizes):
            object_list[number] = pickle.loads(gathered[longest * number:longest * number + size].tobytes())
    return all_gather_object


def around_monitored_barrier(original):
    """gloo's own, which c10d refuses of other backends: it has a name for who is late, and is a barrier else."""
    def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
        if dist.get_rank(group) >= 0:
            dist.barrier(group)
    return monitored_barrier
