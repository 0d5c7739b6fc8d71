# SPDX-License-Identifier: Apache-2.0
"""By what a script multiplies or divides gradients between its backward passes and the optimizer's step, and where: events "scale" (docs/capture.md)."""

import torch

from lockstep.carrying import flat
from lockstep.parameters import local_of

# Operations that change their first argument, or each tensor of it, in place, by one number.
IN_PLACE = {"mul_": "mul", "div_": "div", "_foreach_mul_": "mul", "_foreach_div_": "div"}


def number_of(value):
    """What a gradient is multiplied with or divided by; None where that is no single number greater than 0, or not there to be read."""
    if isinstance(value, torch.Tensor) and value.numel() == 1 and type(value) is torch.Tensor and value.device.type == "cpu":
        value = value.item()
    known = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if known and 0 < value < float("inf") else None


class Scaling:
    """Of one capture, `run`. What is scaled is known by the memory in which gradients are followed (carrying.py)."""

    def __init__(self, run):
        self.run = run
        self.last, self.of_last = None, set()  # the last line that was told, and its parameters

    def is_looked_at(self):
        """Not within a backward pass, whose hooks see parts, nor once an optimizer has what it gets."""
        run = self.run
        return run.active() and run.adapter.in_grad and run.micro >= 0 and not run.taken and run.gaps.stepping is None and not run.in_backward()

    def look(self, function, arguments, carried, call):
        """An operation is about to be executed."""
        kind = IN_PLACE.get(function._schema.name.replace("aten::", ""))
        if kind is None or len(arguments) != 2 or not self.is_looked_at():
            return
        tensors, by = list(flat([arguments[0]])), arguments[1]
        numbers = by if isinstance(by, (list, tuple)) else [by] * len(tensors)
        found = {}
        for tensor, number in zip(tensors, numbers):
            parameters = carried.of(tensor)
            number = number_of(number) if parameters and self.is_whole(tensor, parameters) else None
            if number is not None and number != 1:
                found.setdefault(number, []).extend(parameters)
        for number, parameters in found.items():
            self.tell(kind, number, parameters, call())

    def is_whole(self, tensor, parameters):
        """Whether it has all of what this rank has of these gradients, as far as their sizes say it."""
        known = self.run.adapter.parameters.all
        return tensor.numel() >= sum(local_of(known[number].held.detach()).numel() for number in parameters)

    def tell(self, kind, number, parameters, call):
        line = {"step": self.run.step, "op": kind, "by": number, "call": call}
        is_last = self.run.pending and self.run.pending[-1][1] is self.last
        if is_last and all(self.last[key] == value for key, value in line.items()) and self.of_last.isdisjoint(parameters):
            self.last["parameters"].extend(parameters)
            self.of_last.update(parameters)
            return
        self.last, self.of_last = dict(line, parameters=list(parameters)), set(parameters)
        self.run.pending.append(("scale", self.last, None, None, None))
