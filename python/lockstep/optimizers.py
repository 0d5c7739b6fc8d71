# SPDX-License-Identifier: Apache-2.0
"""When the gradients are what the optimizer gets: before it steps, or before they are clipped, whichever comes first."""

import functools
import sys

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
        self.replacement = functools.wraps(self.original)(make(self.original))
        self.replacement.replaced, self.removed = self, False
        setattr(owner, name, self.replacement)

    def remove(self):
        """Who replaced it later keeps what he has put there, which calls this, which calls the original; another of these takes both away."""
        self.removed = True
        if getattr(self.owner, self.name) is not self.replacement:
            return
        if self.own:
            setattr(self.owner, self.name, self.original)
        else:
            delattr(self.owner, self.name)
        below = getattr(self.original, "replaced", None)
        if isinstance(below, Replaced) and below.replacement is self.original and below.removed:
            below.remove()


def before(action):
    """Makes a function that calls action() and then the original."""
    def make(original):
        def call(*arguments, **keys):
            action()
            return original(*arguments, **keys)
        return call
    return make


def outermost(stepping, frame):
    """Whether the step in whose wrapper (torch's) a frame is, is within no other of the same optimizer, as of a class that its own inherits."""
    code, frame = frame.f_code, frame.f_back
    while frame is not None:
        if frame.f_code is code and frame.f_locals.get("self") is stepping:
            return False
        frame = frame.f_back
    return True


def on_step(optimizer, begin, end):
    """Calls begin() when the gradients are what a step of it gets: before it or, of one with a closure, whenever that has returned; and end()
    after it. What takes that back."""
    left = []  # whether begin() is to be called yet

    def evaluated(closure):
        def call(*arguments, **keys):
            result = closure(*arguments, **keys)
            left.clear()
            begin()
            return result
        return call

    def before_it(stepping, arguments, keys):
        if not outermost(stepping, sys._getframe(1)):
            return None
        left.clear()  # of a step whose closure raised
        closure = keys.get("closure", arguments[1] if len(arguments) > 1 else None)
        if not callable(closure):
            begin()
            return None
        left[:] = [True]
        if "closure" in keys:
            return arguments, dict(keys, closure=evaluated(closure))
        return (arguments[0], evaluated(closure)) + tuple(arguments[2:]), keys

    def after_it(stepping, *_):
        if outermost(stepping, sys._getframe(1)):
            if left:
                left.clear()
                begin()
            end()

    def last(own):
        """Makes a register_step_pre_hook after which our hook is still the last one: what those before it change, it sees."""
        def make(original):
            def register(*arguments, **keys):
                handle = original(*arguments, **keys)
                hooks = getattr(optimizer, "_optimizer_step_pre_hooks", {})
                if own.id in hooks:
                    hooks.move_to_end(own.id)
                return handle
            return register
        return make

    if hasattr(optimizer, "register_step_pre_hook"):
        own = optimizer.register_step_pre_hook(before_it)
        return [own, Replaced(optimizer, "register_step_pre_hook", last(own)), optimizer.register_step_post_hook(after_it)]
    return [Replaced(optimizer, "step", before(begin))]


def changes_nothing(limit, norm):
    """Whether gradients of this norm (None: not known) stay as they are when they are clipped to `limit`."""
    if isinstance(limit, (int, float)) and limit == float("inf"):
        return True
    known = type(norm) is torch.Tensor and isinstance(limit, (int, float))  # of a DTensor a number takes a collective
    return known and bool((limit / (norm.detach() + 1e-6) >= 1).all())  # as torch computes its factor


def around_clipping(begin, end):
    """Makes a function that calls begin(the tensors whose gradients are clipped, the value to which each element is, or None), the original and, where
    begin() says that it clips something, end(the tensors)."""
    def make(original):
        by_value = original.__name__ == "clip_grad_value_"

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
            limit = keys.get("max_norm", keys.get("clip_value", arguments[1] if len(arguments) > 1 else None))
            clips = not changes_nothing(limit, keys.get("total_norm", arguments[2] if len(arguments) > 2 else None)) \
                and begin(tensors, limit if by_value else None)
            result = original(*arguments, **keys)
            if clips:
                end(tensors)
            return result
        return call
    return make


def on_clipping(begin, end):
    """Calls begin() and end(), as above, around what torch clips, wherever its functions were imported to; but for clip_grads_with_norm_ that a script
    took from torch.nn.utils before it was captured, which is the inner function itself."""
    clip = torch.nn.utils.clip_grad
    # All of torch's clipping by norm ends in this function; releases before it had one public function alone.
    inner = [name for name in ("_clip_grads_with_norm_",) if hasattr(clip, name)]
    replaced = [Replaced(clip, name, around_clipping(begin, end)) for name in inner]
    if hasattr(torch.nn.utils, "clip_grads_with_norm_"):  # the same one's public name
        replaced.append(Replaced(torch.nn.utils, "clip_grads_with_norm_", around_clipping(begin, end)))
    for owner in (clip, torch.nn.utils):
        for name in ("clip_grad_value_",) + (() if inner else ("clip_grad_norm_",)):
            replaced.append(Replaced(owner, name, around_clipping(begin, end)))
    return replaced
