# SPDX-License-Identifier: Apache-2.0
"""The events of a rank's program about the norms by which gradients are clipped (squares.py)."""

import bisect
import sys

from lockstep.adapters.plain import Plain
from lockstep.carrying import memory_of
from lockstep.extracting.contents import KNOWN
from lockstep.extracting.squares import content_of
from lockstep.parameters import local_of

CLIPPING = "torch/nn/utils/clip_grad.py"


def key_of(tensor):
    memory = memory_of(tensor)
    return None if memory is None else (memory[0]._cdata, *memory[1:], tensor.numel())


class Norms:
    """Of `run`, a program.ProgramRun."""

    def __init__(self, run):
        self.run, self.following, self.squares = run, run.following, run.following.rules.squares
        self.known = {}  # parameters by the memory of what their optimizer reads
        self.squared = {}  # by source: the tensor, and what was in it
        self.clips = False
        self.told = []  # norms, and the numbers of parameters that their events have

    def start(self):
        self.squares.source_of, self.squares.clipped = self.source_of, self.clipped
        clipping = self.run.clipping
        clipping.before, clipping.after = self.around_before(clipping.before), self.around_after(clipping.after)

    # torch's clipping begins and ends: what a script multiplies gradients by itself, by whatever it makes of a norm, is not judged.

    def around_before(self, original):
        def before(parameters, value=None):
            self.clips = True
            self.look_for_scale(parameters, value)
            return original(parameters, value)
        return before

    def around_after(self, original):
        def after(parameters):
            self.clips = False
            return original(parameters)
        return after

    def look_for_scale(self, parameters, value):
        """A loss scaler takes its scale out of gradients at unscale_, or as its optimizer steps: the limit is none of what is scaled."""
        run = self.run
        scales = {parameter.number: run.scaler.of_results(one) for one in run.adapter.optimizers for parameter in run.adapter.owned_by(one)}
        own = sorted(parameter.number for parameter in parameters if scales.get(parameter.number) not in (None, 1.0))
        if not own or run.steps >= run.most:
            return
        if value is not None:
            run.gaps.say("its elements are limited to a value while a loss scaler's scale, %g, is in them: unscale_ comes before that"
                         % scales[own[0]], own)
            return
        run.pending.append(("norm", {"step": run.step, "parameters": own, "content": [[0, 1, "gradients are times a loss scaler's scale in it"]],
                                     "loss_scale": scales[own[0]], "call": self.call()}, None, None, None))

    def is_looked_at(self):
        run = self.run
        return run.active() and run.steps < run.most and type(run.adapter) is Plain \
            and all(run.scaler.of_results(one) is None for one in run.adapter.optimizers)

    def look(self):
        self.known = {}
        for parameter in self.run.adapter.parameters.all:
            _, pieces, partial = self.run.adapter.result(parameter)
            if pieces and not partial:
                local = local_of(parameter.held.grad)
                if sum(flat.numel() for _, flat, _ in pieces) == local.numel():
                    self.known[key_of(local)] = parameter

    def is_gradient(self, key):
        parameter = self.known.get(key)
        return parameter is not None and parameter.held.grad is not None and key_of(local_of(parameter.held.grad)) == key

    def number_of(self, tensor):
        """Of the parameter whose gradient the tensor is, as the optimizer reads it; None of any other tensor."""
        local = local_of(tensor)
        if local.numel() == 0:  # most of 1,024 ranks have nothing of a small parameter
            return None
        key = key_of(local)
        if not self.is_gradient(key):
            self.look()
        return self.known[key].number if self.is_gradient(key) else None

    def source_of(self, tensor):
        """The source of the squares of a gradient that an optimizer reads, if it is known what that is; None of any other tensor."""
        number = self.number_of(tensor) if self.is_looked_at() else None
        if number is None or not bool((self.following.memory.of(tensor).marks <= KNOWN).all()):
            return None
        source, _ = self.following.memory.source(tensor.detach().double().square().sum().reshape(1))
        self.squared[source] = tensor.detach(), self.segments(tensor)
        self.run.pending.append(("square", {"step": self.run.step, "parameter": number, "source": source, "elements": 1}, None, None, None))
        return source

    def segments(self, tensor):
        content = self.following.memory.of(tensor)
        return None if content is None else self.following.memory.segments(content)

    def call(self):
        """Who calls torch's clipping."""
        sites, frame, last = self.run.session.sites, sys._getframe(1), None
        while frame is not None:
            if sites.path(frame.f_code.co_filename) == CLIPPING:
                last = frame.f_back
            frame = frame.f_back
        return sites.innermost(last)

    def clipped(self, tensors, norm):
        """Gradients are multiplied by what is made of a norm."""
        if not self.clips or not self.is_looked_at():
            return
        numbers = set(map(self.number_of, tensors)) - {None}
        own = next((own for one, own in self.told if one is norm), None)
        if own is None and numbers:
            own = []
            self.told.append((norm, own))
            content = content_of([norm])
            of_this_rank = self.squares.sources_under(norm) & self.squared.keys()
            if any(self.segments(tensor) != before or not self.is_gradient(key_of(local_of(tensor))) for tensor, before in map(self.squared.get, of_this_rank)):
                content = [[0, 1, "a gradient was changed between its norm and the clipping, or is another tensor now"]]
            self.run.pending.append(("norm", {"step": self.run.step, "parameters": own, "content": content, "call": self.call()},
                                     None, None, None))
        for number in numbers - set(own or ()):
            bisect.insort(own, number)
