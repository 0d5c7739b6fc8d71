# SPDX-License-Identifier: Apache-2.0
"""Communication hooks of DDP, and groups of the ranks of a machine, where there is no GPU: torch refuses some of them there, or has them in C++, which takes
no process group of Python's."""

import functools
import inspect
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from lockstep.optimizers import Replaced


def around_check(original):
    """Those in bfloat16 need NCCL, by their name."""
    def check(wrapper, hook):
        if getattr(hook, "__name__", "").startswith("bf16_compress"):
            checked = functools.partial(hook)
            checked.__name__, checked.__signature__ = hook.__name__ + "_for_nccl", inspect.signature(hook)
            hook = checked
        return original(wrapper, hook)
    return check


def around_builtin(original):
    def register(wrapper, kind):
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        same = {dist.BuiltinCommHookType.ALLREDUCE: default_hooks.allreduce_hook, dist.BuiltinCommHookType.FP16_COMPRESS: default_hooks.fp16_compress_hook}
        if kind not in same:
            return original(wrapper, kind)
        return wrapper.register_comm_hook(wrapper.process_group, same[kind])
    return register


def around_subgroups(original):
    """Of a machine's ranks, where no size is given, which torch asks its GPUs for."""
    def new_subgroups(group_size=None, *arguments, **keys):
        return original(group_size or int(os.environ["LOCAL_WORLD_SIZE"]), *arguments, **keys)
    return new_subgroups


def install():
    Replaced(DistributedDataParallel, "_register_builtin_comm_hook", around_builtin)
    if not torch.cuda.is_available():
        Replaced(DistributedDataParallel, "_check_comm_hook", around_check)
        for owner in (dist, dist.distributed_c10d):
            Replaced(owner, "new_subgroups", around_subgroups)
