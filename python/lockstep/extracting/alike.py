# SPDX-License-Identifier: Apache-2.0
"""Whether ranks along an axis such as tp yield one gradient of a parameter that each of them holds whole, or shares of one: nothing but what they yield
tells, as of ranks that really run (docs/verify.md), and no flag that a framework's own reduction goes by.

While a model computes, collectives along such an axis bring what they would bring but for its values: the same numbers to all members of an all-reduce, an
all-gather or a broadcast, others to each where parts are handed out. So what is one value on all ranks along the axis is one here, and what is not is not.
Parameters get numbers as well, the same on ranks that hold the same part. Of each gradient a print is left, which is compared with that of the neighbours
(placements.py). What a pipeline's stages send to each other is taken to be the same along the axis, or all of it other, as the adapter guesses; whether
that is so the prints of what is sent tell.
"""

import hashlib

import torch
from torch.utils import _pytree

from lockstep.extracting.merging import Mesh
from lockstep.extracting.placements import TOLD
from lockstep.optimizers import Replaced
from lockstep.parameters import held_by, local_of

TO_EACH_ITS_OWN = ("reduce_scatter", "scatter", "all_to_all")
SAMPLES = 16  # elements in a print
MOST_PRINTS = 64  # of a parameter


def numbers(key, shape):
    """Numbers from 0.5 to 1.5, the same for the same key."""
    seed = int.from_bytes(hashlib.sha1(key.encode()).digest()[:4], "little")
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.5


def print_of(tensor):
    """[hash of its bits, some elements], by which two can be told apart; the elements are null where these are all one, or some are no finite numbers:
    then equal bits tell nothing."""
    flat = tensor.detach().reshape(-1).contiguous()
    bits = hashlib.sha1(flat.view(torch.uint8).numpy().tobytes()).hexdigest()[:16] if flat.numel() else ""
    if not tensor.is_floating_point() or flat.numel() < 2 or bool((flat == flat[0]).all()) or not bool(flat.isfinite().all()):
        return [bits, None]
    return [bits, flat[::max(1, flat.numel() // SAMPLES)][:SAMPLES].to(torch.float64).tolist()]


class Alike:
    """`axes`: along which some parameter is placed, and others are not."""

    def __init__(self, run, model):
        self.run, self.mesh = run, Mesh(run.mesh)
        self.parameters = [one for one in run.adapter.parameters.all if isinstance(one.held, torch.Tensor)]
        placed = {axis for one in self.parameters for axis in one.placed}
        self.axes = [axis for axis, size in zip(self.mesh.axes, self.mesh.sizes)
                     if size > 1 and axis not in TOLD and axis not in run.data_axes and axis in placed
                     and any(axis not in one.placed for one in self.parameters)]
        self.other = [axis for axis in self.axes if axis in getattr(run.adapter, "stages_send_parts_along", ())]
        self.sent, self.inputs, self.yields, self.covered = [], [], {}, {}
        self.depth = 0
        self.called = False  # the model, ever: a script that calls its layers one by one computes past what is seen here
        self.open = False  # it was, and its backward pass has yielded nothing yet: what the script makes of its outputs, as a loss, belongs to it
        if self.axes:
            self.fill_parameters()
            for one in model if isinstance(model, (list, tuple)) else [model]:
                Replaced(one, "forward", self.around_forward)

    def fill_parameters(self):
        with torch.no_grad():
            for parameter in self.parameters:
                local = local_of(parameter.held)
                part = str(self.part(parameter))
                values = numbers(parameter.name + part, local.shape)
                local.copy_(values if local.dim() < 2 else (values - 1) * 0.1)  # what follows stays finite

    def part(self, parameter):
        if hasattr(self.run.adapter, "cut_of"):
            cut = self.run.adapter.cut_of(parameter.held)
            return [cut.pieces[number].described() for number, _, _ in cut.own]
        return held_by(parameter.held)[0]

    def begins(self, given):
        """The model is called."""
        self.called = self.open = True
        with self.run.following.pause():
            self.inputs += [print_of(local_of(one))[0] for one in _pytree.tree_leaves(given) if isinstance(one, torch.Tensor)]

    def around_forward(self, original):
        def forward(*arguments, **keys):
            self.begins((arguments, keys))
            self.depth += 1
            try:
                return original(*arguments, **keys)
            finally:
                self.depth -= 1
        return forward

    def computes(self):
        return self.depth > 0 or torch._C._current_graph_task_id() != -1 or self.open

    def covers(self, members):
        """Whether ranks of a group stand along an axis that is asked for."""
        key = tuple(members)
        if key not in self.covered:
            chosen = [self.mesh.axes.index(axis) for axis in self.axes]
            self.covered[key] = len({self.mesh.number(rank, chosen) for rank in members}) > 1
        return self.covered[key]

    def way(self, call, sender, receiver):
        """What sends have in common that bring the same."""
        chosen = [number for number, axis in enumerate(self.mesh.axes) if axis not in self.axes or axis in self.other]
        return "%s>%s%s" % (self.mesh.number(sender, chosen), self.mesh.number(receiver, chosen), call[call.index("#"):])

    def passes(self, call, op, members, inputs, outputs, peer=None):
        """A collective into which this rank puts no gradient of a parameter: `outputs` get what is said above."""
        rank = self.run.rank
        if not self.axes:
            return
        if op == "send":
            self.sent += [print_of(tensor) for tensor in inputs if tensor.is_floating_point()]
            return
        if op == "recv":
            key = self.way(call, peer, rank)
        elif not self.computes() or not self.covers(members):
            return
        else:
            key = "%s %d" % (call, members.index(rank)) if op in TO_EACH_ITS_OWN else call
        for number, tensor in enumerate(outputs):
            if tensor.is_floating_point():
                tensor.copy_(numbers("%s/%d" % (key, number), tensor.shape))

    def yielded(self, parameter, gradient):
        """By a backward pass, before anything else was put in its place."""
        self.open = False
        if self.called and any(axis not in parameter.placed for axis in self.axes):
            prints = self.yields.setdefault(parameter.name, [])
            if len(prints) < MOST_PRINTS:
                prints.append(print_of(gradient))

    def left(self):
        """For placements.Placements."""
        return {"axes": self.axes, "other": self.other, "sent": self.sent, "inputs": self.inputs, "yields": self.yields}
