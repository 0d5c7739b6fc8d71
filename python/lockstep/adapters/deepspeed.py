# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed engines, ZeRO 0 to 3, with or without Ulysses.

ZeRO 1 and 2 lay the parameters of a group out in one flat tensor and give each rank an equal part of it; ZeRO 3 cuts each parameter by itself.
BF16_Optimizer (bfloat16 with ZeRO 1 and sums in float32) has ZeRO 1's parts, in gradients of its own, to which it adds each micro-batch.
What a rank's part of the gradient is, it has when the engine begins its model step, before it is unscaled and clipped.
"""

from math import prod

import torch
import torch.distributed as dist

from lockstep.adapters.plain import Plain
from lockstep.errors import CaptureError
from lockstep.optimizers import Replaced, before
from lockstep.parameters import Parameters
from lockstep.pieces import cut_at, whole


class DeepSpeed(Plain):
    name = averages = "deepspeed"
    in_grad = False
    holds_plain = False

    def __init__(self, engine, optimizer, run):
        if optimizer is not None and optimizer is not engine.optimizer:
            raise CaptureError("a DeepSpeed engine has its optimizer: give the engine alone, lockstep.attach(engine, …)")
        self.engine, self.run, self.zero, self.model = engine, run, engine.optimizer, engine
        self.stage = engine.zero_optimization_stage()
        self.optimizers = [self.zero]
        if self.zero is None:
            raise CaptureError("the DeepSpeed engine has no optimizer: give deepspeed.initialize one, or model_parameters and a configured one")
        for name in ("cpu_offload", "offload_optimizer", "zenflow"):
            if getattr(self.zero, name, False):
                raise CaptureError("the optimizer is offloaded (%s): its gradients are not on the device; captures know DeepSpeed without"
                                   " offloading" % name)
        needed = {0: [], 1: ["bit16_groups", "averaged_gradients"], 2: ["bit16_groups", "averaged_gradients"],
                  3: ["fp16_groups", "averaged_gradients"]}
        self.in_float32 = type(self.zero).__name__ == "BF16_Optimizer"
        if self.in_float32:
            self.stage = 1  # with pipelines, ZeRO 0 has it as well
            needed[1] = ["bf16_groups", "bf16_groups_flat", "fp32_groups_gradient_flat_partition", "fp32_groups_has_gradients"]
        missing = [name for name in needed[self.stage] if not hasattr(self.zero, name)]
        if missing or type(self.zero).__name__ == "MiCS_Optimizer":
            raise CaptureError("a DeepSpeed engine with ZeRO %d and %s is not known to captures: they know DeepSpeedZeroOptimizer, BF16_Optimizer"
                               " and optimizers that take .grad" % (self.stage, type(self.zero).__name__))
        self.flat = self.offsets() if self.stage in (1, 2) else {}
        self.parameters = Parameters(engine.module, run.contribute, self.pieces_of, self.shape_of)
        for parameter in self.parameters.all:
            parameter.group = self.flat.get(id(parameter.held), (0,))[0]

    def versions(self):
        import deepspeed

        return {"deepspeed": deepspeed.__version__}

    def install(self):
        return [Replaced(self.engine, "_take_model_step", before(lambda: self.run.before_step(self.zero)))]

    def offsets(self):
        """By parameter: its group, where it begins in the group's flat tensor, and the elements of a rank's part."""
        found = {}
        if self.in_float32:
            groups, flat = self.zero.bf16_groups, self.zero.bf16_groups_flat
        else:
            groups, flat = getattr(self.zero, "round_robin_bit16_groups", self.zero.bit16_groups), self.zero.bit16_groups_flat
        for group, tensors in enumerate(groups):
            world = dist.get_world_size(self.zero.real_dp_process_group[group])
            size = flat[group].numel() // world
            starts = getattr(self.zero, "round_robin_bit16_offsets", {group: None})[group]
            begin = 0
            for number, tensor in enumerate(tensors):
                if starts is not None:
                    begin = int(starts[number])
                found[id(tensor)] = (group, begin, size)
                begin += tensor.numel()
        return found

    def shape_of(self, tensor):
        return getattr(tensor, "ds_shape", tensor.shape)

    def pieces_of(self, tensor):
        shape = self.shape_of(tensor)
        if self.stage == 3:
            size = tensor.ds_tensor.numel()
            return cut_at(shape, range(size, prod(shape), size))
        if id(tensor) not in self.flat:  # frozen, or ZeRO 0
            return whole(shape)
        _, begin, size = self.flat[id(tensor)]
        return cut_at(shape, range(-begin % size, prod(shape), size))

    def cut_flat(self, parameter, flat, begin):
        found = ((number, piece.part_of_flat(flat, begin)) for number, piece in enumerate(parameter.pieces))
        return [(number,) + part for number, part in found if part is not None]

    def results(self, optimizer):
        if self.stage == 0:
            for parameter in self.parameters.all:
                if not parameter.frozen:
                    gradient = parameter.held.grad
                    yield (parameter, None, []) if gradient is None else (parameter,) + self.cut(parameter, gradient)
        elif self.stage == 3:
            for group, tensors in enumerate(self.zero.fp16_groups):
                for tensor, gradient in zip(tensors, self.zero.averaged_gradients.get(group) or [None] * len(tensors)):
                    parameter = self.parameters.by_tensor[id(tensor)]
                    if gradient is None:
                        yield parameter, None, []
                        continue
                    begin = dist.get_rank(tensor.ds_process_group) * tensor.ds_tensor.numel()
                    left = max(0, prod(parameter.shape) - begin)  # the last part is padded
                    yield parameter, self.cut_flat(parameter, gradient.reshape(-1)[:left], begin), []
        else:
            yield from self.results_of_flat_groups()

    def part_of(self, group):
        """This rank's part of a group's flat gradient; None where there is none."""
        if self.in_float32:
            return self.zero.fp32_groups_gradient_flat_partition[group] if any(self.zero.fp32_groups_has_gradients[group]) else None
        gradients = self.zero.averaged_gradients.get(group)
        return torch.cat([part.reshape(-1) for part in gradients]) if gradients is not None else None

    def results_of_flat_groups(self):
        parts = {}
        for number, (group, begin, size) in self.flat.items():
            parameter = self.parameters.by_tensor[number]
            if group not in parts:
                parts[group] = self.part_of(group)
            if parts[group] is None:
                yield parameter, None, []
                continue
            start = dist.get_rank(self.zero.real_dp_process_group[group]) * size
            first = max(begin, start)
            end = min(begin + prod(parameter.shape), start + size)
            flat = parts[group][max(0, first - start):max(0, end - start)]
            yield parameter, self.cut_flat(parameter, flat, first - begin), []

    def owned(self, parameter):
        if self.stage == 0:
            return list(range(len(parameter.pieces)))
        if self.stage == 3:
            rank, size, begin = dist.get_rank(parameter.held.ds_process_group), parameter.held.ds_tensor.numel(), 0
        else:
            group, begin, size = self.flat[id(parameter.held)]
            rank = dist.get_rank(self.zero.real_dp_process_group[group])
        return [number for number, piece in enumerate(parameter.pieces)
                if rank * size <= begin + piece.range[0] < (rank + 1) * size]
