# SPDX-License-Identifier: Apache-2.0
"""What frameworks do at their beginning that a played rank without its hardware cannot, done otherwise: applied to a module when it is imported.

None of it changes what is computed of gradients. Each says what it stands for.
"""

import importlib.abc
import importlib.util
import sys

import torch

SHIMS = {}  # by module: functions of it


def of(name):
    def add(function):
        SHIMS.setdefault(name, []).append(function)
        return function
    return add


@of("deepspeed.comm.torch")
def no_shared_memory(module):
    """Compiles a kernel that reduces through shared memory with the other ranks of the machine, which are not there."""
    module.build_shm_op = lambda: None


@of("torch.distributed.tensor.experimental._context_parallel._attention")
def attention_of_each_part(module):
    """Ring attention has kernels for GPUs alone. Each rank attends to its own part here, whose shapes are the same; what passes around carries no gradient of
    a parameter."""
    style = getattr(module, "_ContextParallel", None)
    if hasattr(style, "sdpa_input_fn") and hasattr(style, "sdpa_output_fn"):
        style.sdpa_input_fn = lambda _, module, args, kwargs, mesh: (args, kwargs)
        style.sdpa_output_fn = lambda _, module, inputs, outputs, mesh: outputs


@of("torch.distributed.fsdp._fully_shard._fsdp_param")
def one_empty_part(module):
    """Cuts a parameter into a part for each rank. Of 1,024 ranks, most of which get nothing, FSDP2 makes as many empty tensors, each time; here it is one."""
    def chunk_with_empty(tensor, num_chunks, dim):
        chunks = list(torch.chunk(tensor, num_chunks, dim=dim))
        return chunks + [chunks[0].new_empty(0)] * (num_chunks - len(chunks))

    if hasattr(module, "_chunk_with_empty"):
        module._chunk_with_empty = chunk_with_empty


class Finder(importlib.abc.MetaPathFinder):
    """Applies them after the module was executed."""

    def find_spec(self, name, path, target=None):
        if name not in SHIMS:
            return None
        sys.meta_path.remove(self)
        try:
            found = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if found is None or found.loader is None:
            return None
        execute = found.loader.exec_module

        def exec_module(module):
            execute(module)
            for shim in SHIMS[name]:
                shim(module)
        found.loader.exec_module = exec_module
        return found


_on_optimizer = None


def on_optimizer(found):
    """`found(model, optimizer)` is called when a framework has made what is to be captured."""
    global _on_optimizer
    _on_optimizer = found


def optimizer_made(model, optimizer):
    if _on_optimizer is not None:
        _on_optimizer(model, optimizer)


def install():
    """For modules that were not imported yet, and those that were."""
    for name, shims in SHIMS.items():
        for shim in shims if name in sys.modules else ():
            shim(sys.modules[name])
    sys.meta_path.insert(0, Finder())
