# SPDX-License-Identifier: Apache-2.0
"""When the gradients are what the optimizer gets: before it steps, or before they are clipped, whichever comes first."""

import functools

import torch

from lockstep.errors import CaptureError


def unwrapped(optimizer):
    """torch's own optimizers of one or of a list, below wrappers such as accelerate's and schedulers'."""
    found = []
    for one in optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]:
        while one is not None and not isinstance(one, torch.optim.Optimizer) and hasattr(one, "optimizer"):
            one = one.optimizer
        while hasattr(one, "optimizer") and isinstance(one.optimizer, torch.optim.Optimizer):
            one = one.optimizer  # accelerate's is an Optimizer itself
        if not hasattr(one, "param_groups"):
            raise CaptureError("optimizer is a %s: expected a torch.optim.Optimizer, or a list of them" % type(one).__name__)
        found.append(one)
    return found


def parameters_of(optimizers):
    return [tensor for optimizer in optimizers for group in optimizer.param_groups for tensor in group["params"]]


class Replaced:
    """An attribute of a module or object that is another for a while."""

    def __init__(self, owner, name, make):
        self.owner, self.name = owner, name
        self.own = name in vars(owner)
        self.original = getattr(owner, name)
        replacement = make(self.original)
        setattr(owner, name, functools.wraps(self.original)(replacement) if callable(self.original) else replacement)
        self.replacement = getattr(owner, name)

    def remove(self):
        # Whoever replaced it after us keeps what he has put there, which calls us, and we call the original.
        if getattr(self.owner, self.name) is not self.replacement:
            return
        if self.own:
            setattr(self.owner, self.name, self.original)
        else:
            delattr(self.owner, self.name)


def before(action):
    """Makes a function that calls action() and then the original."""
    def make(original):
        def call(*arguments, **keys):
            action()
            return original(*arguments, **keys)
        return call
    return make


def on_step(optimizer, action):
    """Calls action() before each step of it; what takes that back."""
    if hasattr(optimizer, "register_step_pre_hook"):
        return optimizer.register_step_pre_hook(lambda *_: action())
    return Replaced(optimizer, "step", before(action))


def before_clipping(action):
    """Makes a function that calls action(the tensors whose gradients are clipped) and then the original."""
    def make(original):
        def call(*arguments, **keys):
            named = "parameters" in keys
            given = keys["parameters"] if named else arguments[0] if arguments else ()
            tensors = [given] if isinstance(given, torch.Tensor) else list(given)
            if not isinstance(given, torch.Tensor) and iter(given) is given:  # it is used up now
                again = (tensor for tensor in tensors)
                if named:
                    keys["parameters"] = again
                else:
                    arguments = (again,) + arguments[1:]
            action(tensors)
            return original(*arguments, **keys)
        return call
    return make


def on_clipping(action):
    """Calls action(tensors) before torch clips their gradients, wherever its functions were imported to."""
    clip = torch.nn.utils.clip_grad
    # All of torch's clipping by norm ends in this function; releases before it had one public function alone.
    inner = [name for name in ("_clip_grads_with_norm_",) if hasattr(clip, name)]
    replaced = [Replaced(clip, name, before_clipping(action)) for name in inner]
    for owner in (clip, torch.nn.utils):
        for name in ("clip_grad_value_",) + (() if inner else ("clip_grad_norm_",)):
            replaced.append(Replaced(owner, name, before_clipping(action)))
    return replaced
