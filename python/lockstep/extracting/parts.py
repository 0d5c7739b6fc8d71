# SPDX-License-Identifier: Apache-2.0
"""Which elements of a parameter an optimizer has that a framework wraps, and where: DeepSpeed's has parts of flat tensors in the place of parameters, and
Megatron-core's distributed one has shards. And with which weights a module would compute if every other rank had what this one has, as all are taken to have put
in the same where weights are gathered.
"""

from dataclasses import dataclass
from math import prod

import torch
import torch.distributed as dist


@dataclass
class Part:
    """Elements [at, at + count) of a parameter, or none, are [first, first + count) of a tensor `main` of the optimizer. In the `buffer` that is gathered each rank
    of the process group has `size` elements, one after the other, and the parameter begins at `begin`; None where nothing is."""

    parameter: object
    main: torch.Tensor
    first: int
    at: int
    count: int
    buffer: object
    begin: int
    size: int
    group: object


def whole(parameter, main, first):
    """That of an optimizer which has all of a parameter."""
    size = prod(parameter.shape)
    return Part(parameter, main, first, 0, size, None, 0, size, None)


def without_zero(adapter):
    """Under ZeRO 0 the parameters themselves, or what FP16_Optimizer and FP16_UnfusedOptimizer have of them. Of kernels that are handed gradients past .grad nothing
    is known."""
    zero, known = adapter.zero, adapter.parameters.by_tensor
    if isinstance(zero, torch.optim.Optimizer):
        for parameter in adapter.parameters.all:
            if not parameter.frozen and isinstance(parameter.held, torch.Tensor):
                yield whole(parameter, parameter.held, 0)
    elif not getattr(zero, "fused_adam_legacy", False) and not getattr(zero, "fused_lamb_legacy", False):
        for group, tensors in enumerate(getattr(zero, "fp16_groups", ())):
            flat, first = getattr(zero, "fp32_groups_flat", None), 0
            for number, tensor in enumerate(tensors):
                parameter = known.get(id(tensor))
                if parameter is not None and (flat is not None or hasattr(zero, "fp32_groups")):
                    yield whole(parameter, zero.fp32_groups[group][number] if flat is None else flat[group], first)
                first += 0 if flat is None else tensor.numel()


def of_deepspeed(adapter):
    zero, known = adapter.zero, adapter.parameters.by_tensor
    if adapter.stage == 0:
        yield from without_zero(adapter)
    elif adapter.stage == 3:
        is_exact = not getattr(adapter.engine, "zero_quantized_weights", lambda: False)()
        for tensors, main in zip(zero.fp16_groups, getattr(zero, "fp32_partitioned_groups_flat", ())):
            first = 0
            for tensor in tensors:
                parameter, size, group = known.get(id(tensor)), tensor.ds_tensor.numel(), tensor.ds_process_group
                at = dist.get_rank(group) * size
                if parameter is not None and main is not None:
                    yield Part(parameter, main, first, at, max(0, min(size, prod(tensor.ds_shape) - at)),
                               id(tensor) if is_exact else None, 0, size, group)
                first += size
    else:
        # Of BF16_Optimizer it is not known what is gathered.
        mains = getattr(zero, "fp32_groups_flat_partition" if adapter.in_float32 else "single_partition_of_fp32_groups", None)
        for number, (index, begin, size) in adapter.flat.items() if mains is not None else ():
            parameter, group = known.get(number), zero.real_dp_process_group[index]
            start = dist.get_rank(group) * size
            first, end = max(begin, start), min(begin + prod(parameter.shape), start + size)
            yield Part(parameter, mains[index], first - start, first - begin, max(0, end - first), None if adapter.in_float32 else index, begin, size, group)


def of_megatron(adapter):
    """Of its distributed optimizer."""
    for optimizer in adapter.optimizers:
        if not hasattr(optimizer, "model_float16_groups") or getattr(optimizer, "is_stub_optimizer", False):
            continue
        own = {id(model): main for model, main in mains(optimizer)}
        for buffer in optimizer.buffers:
            for model, (begin, _, index) in buffer.param_index_map.items():
                parameter, bucket = adapter.parameters.by_tensor.get(id(model)), buffer.buckets[index]
                part = optimizer._get_model_param_range_map(model)["param"] if own.get(id(model)) is not None else None
                at, count = (part.start, part.end - part.start) if part else (0, 0)
                if parameter is not None:
                    group = optimizer.data_parallel_group
                    yield Part(parameter, own.get(id(model)), 0, at, count, (id(buffer), index), begin - bucket.offset, bucket.grad_data.numel() // group.size(), group)


def mains(optimizer):
    for models, shards in ((optimizer.model_float16_groups, optimizer.shard_fp32_from_float16_groups), (optimizer.model_fp32_groups, optimizer.shard_fp32_groups)):
        for model_group, shard_group in zip(models, shards):
            yield from zip(model_group, shard_group)


def parts_of(adapter):
    """None are known of other frameworks."""
    find = {"deepspeed": of_deepspeed, "megatron": of_megatron}.get(adapter.name)
    return list(find(adapter)) if find is not None else []


def gathered(parts):
    """By number of a parameter: its elements, were all ranks' parts what this rank's is; and which of them are known. Of those that are in buffers."""
    buffers, found = {}, {}
    parts = [part for part in parts if part.buffer is not None]
    for part in parts:
        if part.count:
            if part.buffer not in buffers:
                buffers[part.buffer] = part.main.new_zeros(part.size), torch.zeros(part.size, dtype=torch.bool)
            values, known = buffers[part.buffer]
            place = (part.begin + part.at) % part.size
            values[place:place + part.count] = part.main.detach().reshape(-1)[part.first:part.first + part.count]
            known[place:place + part.count] = True
    for part in parts:
        if part.buffer in buffers and isinstance(part.parameter.held, torch.Tensor):
            values, known = buffers[part.buffer]
            places = (part.begin + torch.arange(prod(part.parameter.shape))) % part.size
            found[part.parameter.number] = values[places].to(part.parameter.held.dtype), known[places]
    return found
