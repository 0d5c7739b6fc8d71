# SPDX-License-Identifier: Apache-2.0
"""What the optimizer gets that really steps, where a framework has wrapped one: under DeepSpeed, whose engine has gradients of parts of parameters, hands them to the
optimizer in the place of its own parts, and steps with it. What the engine has is looked at before (program.py). Here it is looked whether the optimizer steps with that,
by the numbers, which are noise. In the first draw alone.

And by what the engine multiplies the loss that it was handed before its backward pass begins.
"""

import torch

from lockstep.extracting.merging import NO_STEP, NOT_CLIPPED, NOT_DIVIDED, OTHER_GRADIENTS, OTHER_SCALE, OVERFLOWED, SKIPPED
from lockstep.extracting.parts import parts_of
from lockstep.measuring import unseen
from lockstep.optimizers import Replaced, on_step
from lockstep.parameters import local_of
from lockstep.roots import scaled_from

SCALED = ("DeepSpeedZeroOptimizer", "DeepSpeedZeroOptimizer_Stage3", "FP16_Optimizer", "FP16_UnfusedOptimizer")  # whose scale the loss gets
CLOSE = 1e-2  # of the largest number: no type of gradients has less than eight binary digits


def factor_between(root, node):
    """By what the scalar that a node of autograd's graph yields was multiplied to be the root; None where the graph does not say."""
    at = root, 1.0
    while at is not None and at[0] is not None and at[0] is not node:
        at = scaled_from(*at)
    return at[1] if at is not None and at[0] is node else None


def ratio_of(found, handed):
    """By what all elements were multiplied; None where it is not one number."""
    found, handed = found.to(torch.float64), handed.to(torch.float64)
    largest = int(handed.abs().argmax())
    ratio = float(found[largest] / handed[largest])
    return ratio if bool(((found - ratio * handed).abs() <= CLOSE * abs(ratio) * handed[largest].abs()).all()) else None


class Stepping:
    """Of a run (program.ProgramRun) of a DeepSpeed engine."""

    def __init__(self, run):
        self.run, self.engine, self.zero = run, run.adapter.engine, run.adapter.zero
        self.optimizer = self.zero if isinstance(self.zero, torch.optim.Optimizer) else getattr(self.zero, "optimizer", None)
        self.handed, self.found, self.hooked, self.loss = {}, {}, {}, None
        self.before, self.others = {}, False  # by number, what the optimizer had; whether another one has stepped within its step
        self.scaled = []  # the scales that losses got since the last step
        self.overflowed = False  # a gradient that the engine has
        self.within = False  # the engine's step, in which the optimizer may step several times

    def install(self):
        found = [Replaced(self.engine, "_take_model_step", self.around_step)]
        if self.run.session.draw or not isinstance(self.optimizer, torch.optim.Optimizer):
            return found
        if hasattr(self.optimizer, "_optimizer_step_pre_hooks"):
            found += on_step(self.optimizer, self.reads, lambda: None)  # behind all other hooks
        if self.zero is self.optimizer or type(self.zero).__name__ in SCALED:
            found += [Replaced(self.engine, "backward", self.around_backward), Replaced(torch.autograd, "backward", self.around_pass)]
        return found

    # The loss.

    def around_backward(self, original):
        def backward(loss, *arguments, **keys):
            scales = keys.get("scale_wrt_gas", arguments[1] if len(arguments) > 1 else True)
            self.loss = (loss.grad_fn, scales) if isinstance(loss, torch.Tensor) and loss.grad_fn is not None else None
            try:
                return original(loss, *arguments, **keys)
            finally:
                self.loss = None
        return backward

    def scale(self):
        return 1.0 if self.zero is self.optimizer else float(getattr(self.zero, "loss_scale", None) or 1.0)

    def around_pass(self, original):
        def backward(*arguments, **keys):
            if self.loss is not None and not self.run.in_backward():
                self.begins(arguments[0] if arguments else keys.get("tensors"))
            return original(*arguments, **keys)
        return backward

    def begins(self, root):
        """A backward pass of the engine."""
        if not isinstance(root, torch.Tensor) or root.grad_fn is None:
            return
        node, scales = self.loss
        with unseen(root):
            factor = factor_between(root.grad_fn, node)
        self.scaled.append(self.scale())
        expected = self.scaled[-1] / (self.engine.gradient_accumulation_steps() if scales else 1)
        if factor is not None and abs(factor - expected) > 1e-6 * expected and not getattr(self.engine, "torch_autocast_z0_gradscaler", None):
            self.say(NOT_DIVIDED, [parameter.number for parameter in self.run.adapter.parameters.all if not parameter.frozen], self.run.step, True)

    # The step.

    def around_step(self, original):
        def take(*arguments, **keys):
            self.within = True
            try:
                result = original(*arguments, **keys)
            finally:
                self.within = self.run.following.stepping = False
            with torch.no_grad(), self.run.following.pause():
                self.end()
            return result
        return take

    def begin(self, step):
        """What the engine has now."""
        self.step, self.handed, self.found, self.hooked, self.before, self.others = step, {}, {}, {}, {}, False
        # That of the losses: within its step an engine may already have the next one.
        self.scales, self.scaled = sorted(set(self.scaled)) or [self.scale()], []
        self.overflowed, gradients = False, {}
        for parameter, pieces, _ in self.run.adapter.results(self.zero):
            if pieces:
                flat = gradients[parameter.number] = torch.cat([local_of(flat).reshape(-1) for _, flat, _ in pieces])
                self.overflowed = self.overflowed or not bool(flat.isfinite().all())
        for part in parts_of(self.run.adapter):
            number = part.parameter.number
            flat = gradients.get(number)
            if flat is not None and flat.numel() == part.count and bool(flat.any()) and bool(flat.isfinite().all()):
                self.handed[number] = part, flat.clone()
                self.before[number] = part.main.detach().reshape(-1)[part.first:part.first + part.count].clone()

    def steps(self, optimizer):
        """One is about to: it, or another that it has of its own."""
        self.others = self.others or optimizer is not self.optimizer
        if optimizer is self.optimizer or self.within:
            self.read(optimizer, self.found)

    def reads(self):
        if self.within:
            with torch.no_grad(), self.run.following.pause():
                self.read(self.optimizer, self.hooked)

    def read(self, optimizer, result):
        own = {id(tensor) for group in optimizer.param_groups for tensor in group["params"]}
        for number, (part, flat) in self.handed.items():
            if id(part.main) in own:
                gradient = part.main.grad
                found = None if gradient is None else local_of(gradient).reshape(-1)[part.first:part.first + part.count]
                result[number] = ratio_of(found, flat) if found is not None and found.numel() == part.count else 0.0

    def is_as_before(self):
        """Whether nothing has changed of all that it has been given gradients of, where it learns at all."""
        learns = all(group.get("lr", 1) for group in self.optimizer.param_groups)
        return learns and bool(self.before) and all(
            torch.equal(self.handed[number][0].main.detach().reshape(-1)[self.handed[number][0].first:][:values.numel()], values) for number, values in self.before.items())

    def end(self):
        handed, found, hooked = self.handed, self.found, self.hooked
        is_as_before = self.is_as_before()
        self.handed, self.found, self.hooked, self.before = {}, {}, {}, {}
        if getattr(self.zero, "overflow", False) and not found:
            if self.overflowed:
                self.say(OVERFLOWED, [parameter.number for parameter in self.run.adapter.parameters.all if not parameter.frozen], self.step, False)
            else:
                self.say(SKIPPED, list(handed), self.step, True)
            return
        if not handed:
            return
        self.say(NO_STEP, [number for number in handed if found.get(number, 0.0) == 0.0], self.step, True)
        if found and is_as_before:
            self.say(NO_STEP, list(handed), self.step, self.others)
        others = [number for number, ratio in found.items() if ratio is None]
        # What a hook makes of it may be meant.
        self.say(OTHER_GRADIENTS, [number for number, ratio in hooked.items() if number in found and (ratio is None) != (found[number] is None)], self.step, False)
        self.say(OTHER_SCALE, [number for number, ratio in hooked.items() if ratio is not None and found.get(number) is not None
                               and abs(ratio - found[number]) > CLOSE * abs(found[number])], self.step, False)
        # Where it has an optimizer that makes something else of gradients, another factor may be no mistake.
        makes_others = any(getattr(self.zero, name, False) for name in ("use_muon", "_uses_muon", "zenflow"))
        limit = self.engine.gradient_clipping()
        self.say(OTHER_GRADIENTS, others, self.step, not (limit > 0 or makes_others))
        scale, *others = self.scales
        if others:  # micro-batches have other multiples
            self.say(OTHER_SCALE, list(found), self.step, False)
            return
        factors = {number: ratio * scale for number, ratio in found.items() if ratio}
        if not factors or makes_others:
            return
        if limit > 0:
            if not self.is_clipped(handed, factors, limit, scale) or not self.is_of_norm(factors, limit, scale):
                self.say(NOT_CLIPPED, list(factors), self.step, True)
        else:
            self.say(OTHER_SCALE, [number for number, factor in factors.items() if abs(factor - 1) > CLOSE], self.step, True)

    def is_clipped(self, handed, factors, limit, scale):
        """Whether it can be so: all by one factor, which is at most 1. And what this rank alone has is no more than all may be; twice as much where noise took the
        place of what other ranks have as well, and is counted once."""
        least, most = min(factors.values()), max(factors.values())
        if least < 0 or most > min(1, least) * (1 + CLOSE):
            return False
        # Of what several ranks of a unit (mpu) have alike, the first one counts it for all, and here the others do not get its number.
        if getattr(self.engine, "mpu", None) is not None:
            return True
        own = sum(float(handed[number][1].to(torch.float64).square().sum()) * (factor / scale) ** 2 for number, factor in factors.items())
        return own ** 0.5 <= 2 * limit

    def is_of_norm(self, factors, limit, scale):
        """Whether the factor is that of the norm that the engine says. Looked at where the loss scale has changed within the step: then the one that was taken away
        may be another one than the loss has got. The norm that is said has one or the other."""
        said, now = getattr(self.zero, "_global_grad_norm", None), self.scale()
        if now == scale or said is None:
            return True
        expected = [min(1.0, limit / (norm + 1e-6)) for norm in (float(said), float(said) * now / scale)]
        return any(abs(factor - one) <= CLOSE * one for factor in (min(factors.values()),) for one in expected)

    def say(self, why, numbers, step, is_certain):
        if numbers:
            self.run.say_wrong(why, sorted(numbers), step, is_certain)
