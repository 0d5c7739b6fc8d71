# SPDX-License-Identifier: Apache-2.0
"""What a capture knows that it cannot know: events "gap" (docs/capture.md), of which `lockstep verify` judges nothing, and micro-batches
before which gradients were set to zero.
"""

import sys
import threading

import torch

from lockstep.mesh import is_over_data
from lockstep.optimizers import parameters_of
from lockstep.parameters import local_of

REDUCE = ("all_reduce", "reduce_scatter", "reduce")
EXCHANGE = ("all_gather", "gather", "all_to_all", "broadcast", "scatter", "send")
MOST_SHAPES = 3
PIPELINING = "torch.distributed.pipelining._backward"


class Gaps:
    """Of one capture, `run`. What needs .grad to be where gradients are is asked where the adapter's `in_grad` says so."""

    def __init__(self, run):
        self.run, self.thread, self.first = run, threading.get_ident(), True
        self.clipped = {}  # parameters by number: clipped since their optimizer stepped
        self.stepping = None  # the step whose results an optimizer steps with now
        self.asking = 0  # within torch.autograd.grad
        self.nested = 0  # and that within a backward pass
        self.told = set()
        self.added = set()  # parameters whose optimizer adds up what it gets, in its step
        self.seen = None  # what look_for_change() compares with
        self.new_step()

    def new_step(self):
        self.yielded, self.kept, self.witness = {}, {}, None  # parameters by number; the smallest with a gradient that is not zero
        self.asked, self.passed = set(), set()
        self.recomputed = set()  # parameters that torch.autograd.grad was called for within the backward pass
        self.zeroed = []  # micro-batches before which gradients were set to zero
        self.last = -1  # micro-batch that yielded something
        self.changed = False  # parameters, since a backward pass of the step
        self.partial = set()  # parameters whose optimizer gets shares, which it adds up itself

    def say(self, why, numbers=None, step=None):
        """Nothing of the parameters of these numbers (of all where there are none) is to be judged in that step (in this one)."""
        numbers = None if numbers is None else tuple(sorted(set(numbers)))
        line = {"step": self.run.step if step is None else step}
        self.write(dict(line, why=why) if numbers is None else dict(line, parameters=list(numbers), why=why))

    def write(self, line):
        known = (line["step"], tuple(line.get("parameters", ())), line["why"])
        if known not in self.told:
            self.told.add(known)
            self.run.recorder.event("gap", line)

    # Backward passes.

    def stands(self, parameter):
        """Whether it has a gradient that is not zero."""
        gradient = parameter.held.grad
        with torch.no_grad(), self.run.not_followed():
            return gradient is not None and bool(local_of(gradient).any())

    def before_pass(self, within):
        """`within`: the pass has begun, as autograd was called past torch's functions."""
        self.after_step()
        if not within and self.run.mode is not None:
            self.run.mode.begin_pass()
        if not within and self.run.mode is not None and threading.get_ident() != self.thread:
            self.write({"step": None, "parameters": [],
                        "why": "backward passes run in another thread than the one in which the capture began, where no collective is seen"
                               " (collectives=False records none)"})
        if not self.run.adapter.in_grad:
            return
        if not within:
            self.run.adapter.parameters.unfreeze()
        if self.first:
            left = [parameter.number for parameter in self.run.adapter.parameters.all if self.stands(parameter)]
            if left:
                self.say("gradients of before the capture are not zero as its first backward pass begins", left)
        self.first = False
        self.look_for_zeroed(self.run.micro if self.run.told else self.run.micro + 1)

    def after_pass(self):
        if self.run.mode is not None:
            self.run.mode.end_pass()
        lost = self.recomputed - set(self.yielded)
        if lost:
            self.say("torch.autograd.grad was called for these parameters within a backward pass, which has yielded nothing of them itself", lost)
        self.recomputed = set()
        if self.run.adapter.in_grad:
            self.kept.update((number, one) for number, one in self.yielded.items() if one.held.grad is not None)
            smallest = sorted(self.kept.values(), key=lambda parameter: parameter.held.numel())
            self.witness = next((one for one in smallest if self.stands(one)), None)
            self.seen = self.state()
        self.yielded = {}

    def state(self):
        """What tells that parameters were changed: how often torch did it, and the values of one, which others may change past it."""
        values = None
        if self.witness is not None:
            with torch.no_grad(), self.run.not_followed():
                values = local_of(self.witness.held.detach()).nan_to_num(nan=0.0).clone()
                values = values if type(values) is torch.Tensor else None  # as of FakeTensorMode, which has no values
        return {number: one.held._version for number, one in self.kept.items()}, values

    def look_for_change(self):
        if self.changed or self.seen is None or not self.kept:
            return
        (versions, values), (before, kept) = self.state(), self.seen
        self.changed = any(version != before.get(number, version) for number, version in versions.items())
        if values is not None and kept is not None and not self.changed:
            alike = (values.shape, values.dtype, values.device) == (kept.shape, kept.dtype, kept.device)
            self.changed = not (alike and torch.equal(values, kept))

    def at_end(self):
        """The capture ends; what came since the last step was yielded for an optimizer of which it knows nothing, if somebody has stepped with it."""
        if self.run.adapter.in_grad and self.last >= 0 and not self.run.taken:
            self.look_for_change()
            if self.changed:
                self.say("parameters were changed, and no optimizer that was captured has stepped", self.kept)

    def look_for_zeroed(self, micro):
        """`micro`: the micro-batch that begins."""
        self.look_for_change()
        if self.witness is None:
            return
        gone = [number for number, parameter in self.kept.items() if parameter.held.grad is None]
        if not self.stands(self.witness):  # else the others' elements are not looked at, which takes time
            gone = [number for number, parameter in self.kept.items() if not self.stands(parameter)]
        if not gone:
            return
        if self.changed:
            self.say("parameters were changed and gradients set to zero between micro-batches", self.kept)
        elif len(gone) < len(self.kept) or self.last == micro:
            self.say("gradients were set to zero between micro-batches", gone)
        else:
            self.zeroed.append(micro)
        self.witness = None

    def gets_from_others(self, parameter, what):
        self.say("within the backward pass its gradient gets %s, so that what this rank itself contributes is not known" % what, [parameter.number])

    def look_for_reductions(self, parameter, gradient):
        """What a collective has brought from other data-parallel ranks within the backward pass is not what this rank contributes."""
        for call, members in self.run.mode.brought(gradient) if self.run.mode is not None else ():
            if is_over_data(self.run.mesh, self.run.data_axes, members):
                self.gets_from_others(parameter, "what other ranks have put in at %s" % call)
                return

    def within_pass(self, parameter):
        """Whether what comes is asked for by a function's own backward, as by activation checkpointing: what that makes of it, the pass yields."""
        if self.nested:
            self.recomputed.add(parameter.number)
        return self.nested > 0

    def contributes(self, parameter):
        self.yielded[parameter.number] = parameter
        self.last = self.run.micro
        (self.asked if self.asking and not self.run.depth else self.passed).add(parameter.number)

    def around_grad(self, original):
        def grad(*arguments, **keys):
            if sys._getframe(1).f_globals.get("__name__") == PIPELINING:  # which adds to .grad what it gets of weights
                return original(*arguments, **keys)
            nested = self.run.in_backward()
            self.asking += 1
            self.nested += nested
            try:
                return original(*arguments, **keys)
            finally:
                self.asking -= 1
                self.nested -= nested
        return grad

    # Optimizer steps.

    def before_results(self, optimizer):
        if not self.run.adapter.in_grad:
            return
        known = self.run.adapter.parameters.by_tensor
        others = [tensor for tensor in parameters_of([optimizer]) if id(tensor) not in known and tensor.grad is not None]
        if others:
            self.say_others("an optimizer", others)
        frozen = [known[id(tensor)].number for tensor in parameters_of([optimizer])
                  if id(tensor) in known and known[id(tensor)].frozen and tensor.grad is not None]
        if frozen:
            self.say("an optimizer gets a gradient of what was frozen, and no backward pass was seen that yields it", frozen)
        self.look_for_shares([known[id(tensor)] for tensor in parameters_of([optimizer]) if id(tensor) in known and tensor.grad is not None],
                             (getattr(optimizer.step, "__module__", None) or "").startswith("torch.optim."))

    def look_for_shares(self, parameters, by_torch):
        """Shares of a gradient, as DTensor's Partial says it, are added up within the step: by torch's optimizers according to the placement, by others
        as they like."""
        for parameter in parameters:
            kinds = [getattr(placement, "reduce_op", "sum") for placement in getattr(parameter.held.grad, "placements", ())
                     if "Partial" in type(placement).__name__]
            others = [kind for kind in kinds if kind != "sum"]
            if others:
                self.say('the gradient that its optimizer gets is Partial("%s"): captures know shares of a sum alone' % others[0], [parameter.number])
            elif kinds and not by_torch:
                self.say("its optimizer gets shares of the gradient, and what its own step makes of them is not seen", [parameter.number])

    def say_others(self, who, others, step=None):
        shapes = ["[%s]" % ", ".join(map(str, tensor.shape)) for tensor in others]
        more = " and %d more" % (len(shapes) - MOST_SHAPES) if len(shapes) > MOST_SHAPES else ""
        self.say("%s gets gradients of %d parameter%s that the captured model has not, of the shape%s %s%s"
                 % (who, len(others), *("s" if len(others) > 1 else "",) * 2, ", ".join(shapes[:MOST_SHAPES]), more), [], step)

    def step_of_another(self, optimizer):
        """An optimizer is about to step that may have nothing of the model that was chosen: else nothing would be said of it."""
        if not self.run.adapter.in_grad or self.stepping is not None:
            return
        known = self.run.adapter.parameters.by_tensor
        tensors = parameters_of([optimizer])
        if not any(id(tensor) in known for tensor in tensors):
            others = [tensor for tensor in tensors if tensor.grad is not None]
            if others:  # of a step in which nothing was yielded yet: it is what the one before has left
                self.say_others("an optimizer that was not captured", others, max(0, self.run.step - (self.run.micro < 0)))

    def begin_step(self, optimizer):
        """The gradients are what an optimizer gets, which steps with them now."""
        self.stepping = self.run.step
        if self.run.mode is not None:
            self.run.mode.carried.copies_alone = True  # what the optimizer makes of them are no gradients
        self.run.clipping.before_step(optimizer)
        self.run.scaler.before_step(optimizer)
        self.run.take_results([optimizer])
        self.added = self.partial
        self.run.before_step(optimizer)

    def after_step(self):
        if self.stepping is not None and self.run.mode is not None:
            self.run.mode.carried.copies_alone = False
            if self.run.step != self.stepping:
                self.run.mode.carried.clear()
        self.stepping = None

    def collective(self, found):
        reduced = set(found["parameters"]) - self.added - self.partial if self.stepping is not None and found["op"] in REDUCE else ()
        if reduced:
            self.say("a collective reduces the gradient within the optimizer's own step, after the capture has looked at it", reduced, self.stepping)
        elif self.stepping is not None and self.run.mode is not None and found["op"] in EXCHANGE \
                and is_over_data(self.run.mesh, self.run.data_axes, [found["peer"], self.run.rank] if "peer" in found else found["group"]):
            # Parts are gathered, as of FSDP's for an optimizer that needs the whole, without adding anything up.
            whole = {parameter.number for parameter in self.run.adapter.parameters.all if len(parameter.pieces) == 1}
            reduced = (set(found["parameters"]) & whole) - self.added - self.partial
            if reduced:
                self.say("a collective exchanges the gradient within the optimizer's own step, after the capture has looked at it", reduced, self.stepping)
        if reduced:
            self.run.recorder.flush()  # the step's own line is written already, and the rank may die before the next

    def finish_step(self, idle, taken):
        """`idle`: the optimizers that did not step in it, `taken`: those among all whose gradients were looked at."""
        both = self.asked & self.passed
        if both:
            self.say("torch.autograd.grad was called for these parameters beside backward passes, and may have added to no gradient", both)
        if self.run.adapter.in_grad and not self.run.stepped:
            early = [parameter.number for optimizer in taken for parameter in self.run.adapter.owned_by(optimizer)]
            if early:
                self.say("gradients were clipped, and the next backward pass came before any optimizer stepped with them: clip once, after the last"
                         " micro-batch", early)
        if self.clipped:
            self.say("gradients were clipped, and more was added to them before their optimizer stepped", self.clipped)
        owned_by = self.run.adapter.owned_by
        if self.clipped:
            for optimizer in taken:
                for parameter in owned_by(optimizer) if optimizer not in idle else ():
                    self.clipped.pop(parameter.number, None)
        self.clipped.update((parameter.number, parameter) for optimizer in taken if optimizer in idle for parameter in owned_by(optimizer))
        self.new_step()
