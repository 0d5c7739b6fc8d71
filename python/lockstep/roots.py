# SPDX-License-Identifier: Apache-2.0
"""By what a script divides the means that it calls backward on, as far as autograd's graph says it: a step of several micro-batches needs their mean."""

import sys

import torch

from lockstep.collectives import CallSites
from lockstep.measuring import unseen

# What yields a mean, with `_saved_reduction` 1 where there are others.
MEANS = {"MeanBackward0", "MeanBackward1", "NllLossBackward0", "NllLoss2DBackward0", "MseLossBackward0", "BinaryCrossEntropyBackward0",
         "BinaryCrossEntropyWithLogitsBackward0", "SmoothL1LossBackward0", "HuberLossBackward0"}
MEAN, SUM = 1, 2  # `_saved_reduction` of these
# What hands a number on.
SAME = {"ToCopyBackward0", "ViewBackward0", "ReshapeAliasBackward0", "SqueezeBackward0", "UnsqueezeBackward0", "CloneBackward0", "AliasBackward0"}
SCALES = ("DivBackward0", "MulBackward0")
MOST_TERMS = 64


def only_input_of(node):
    following = [one for one, _ in node.next_functions if one is not None]
    return following[0] if len(following) == 1 else None


def number_of(node):
    """What a tensor is multiplied with or divided by; None where that is no single number on the CPU."""
    other = getattr(node, "_saved_other", None)
    return float(other) if isinstance(other, torch.Tensor) and other.numel() == 1 and other.device.type == "cpu" else None


def scaled_from(node, factor):
    """Of a node that scales a number or hands it on: the node before, and the factor with what this one makes of it. None where it does something else."""
    name = type(node).__name__
    other = number_of(node) if name in SCALES else 1.0 if name in SAME else None
    return (only_input_of(node), factor / other if name == "DivBackward0" else factor * other) if other else None


def is_scaled_within(mean):
    """Whether each element that a mean is made of was multiplied by a number before: a script may divide there as well."""
    node = only_input_of(mean)
    while node is not None and type(node).__name__ in (*SCALES, *SAME):
        if type(node).__name__ in SCALES and number_of(node) not in (None, 1.0):
            return True
        node = only_input_of(node)
    return False


def reduction_of(node):
    """Whether it yields a mean or a sum of elements; None where it is not known to be either."""
    name = type(node).__name__
    return getattr(node, "_saved_reduction", MEAN) if name in MEANS else SUM if name in ("SumBackward0", "SumBackward1") else None


def factor_of(root):
    """What a mean is multiplied with to be this loss; None where the graph does not say that it is one."""
    at = root.grad_fn, 1.0
    while at is not None and at[0] is not None:
        node, factor = at
        if reduction_of(node) is not None:
            return None if reduction_of(node) != MEAN or is_scaled_within(node) else factor
        at = scaled_from(node, factor)
    return None


def terms_of(root):
    """What this loss adds up: of each whether it is a mean or a sum of elements, and what that is multiplied with; None where the graph does not say it."""
    found, left = [], [(root.grad_fn, 1.0)]
    while left:
        node, factor = left.pop()
        if len(found) + len(left) > MOST_TERMS:
            return [None]
        if reduction_of(node) is not None:
            found.append(None if is_scaled_within(node) else (reduction_of(node), factor))
        elif (one := scaled_from(node, factor)) is not None:
            left.append(one)
        elif type(node).__name__ == "AddBackward0" and getattr(node, "_saved_alpha", None) == 1:
            left += [(one, factor) for one, _ in node.next_functions if one is not None]
        else:
            found.append(None)
    return found


class Roots:
    """The losses of the backward passes of one optimizer step of a capture."""

    def __init__(self, run):
        self.run, self.sites = run, CallSites()
        self.forget()

    def forget(self):
        self.all = []  # micro-batch, factor and who called backward

    def add(self, tensors, gradients):
        """A backward pass is about to begin."""
        # An iterator is autograd's to use up, and frameworks' own passes have other arguments.
        roots = [tensors] if isinstance(tensors, torch.Tensor) else tensors if isinstance(tensors, (list, tuple)) else ()
        factor = None
        if len(roots) == 1 and isinstance(roots[0], torch.Tensor) and roots[0].numel() == 1 and gradients is None and self.run.pipelines.divisor is None:
            with unseen(roots[0]):  # numbers that stand in the graph are no tensors for a dispatch mode
                factor = factor_of(roots[0])
        if factor is not None and self.run.scaler.scale is not None:
            factor /= self.run.scaler.scale
        self.all.append((self.run.micro, factor, self.sites.innermost(sys._getframe(1))))

    def not_divided(self):
        """Why what the optimizers get is several times a mean over the batch, or a part of it, as it seems; None where nothing says so."""
        count = len(self.run.tokens)
        passes = {micro for micro, _, _ in self.all}
        if self.run.loss != "local_mean" or self.run.told or self.run.gaps.zeroed or count < 2 or len(self.all) != count or len(passes) != count:
            return None
        factors = {factor for _, factor, _ in self.all}
        if len(factors) > 1 or None in factors or len({site for _, _, site in self.all}) > 1:
            return None
        factor = factors.pop()
        # Of two, a quarter may be half of what is half a square already.
        if count > 2 and abs(factor * count * count - 1) < 1e-6:
            return ("%s calls backward on %d means that are divided by %d, which is twice by %d: if the parts of one batch are divided once here and once in"
                    " a framework, the gradient is 1/%d of its mean" % (self.all[0][2], count, count * count, count, count))
        if factor != 1.0:
            return None
        return ("%s calls backward on %d means that it does not divide by %d: if they are parts of one batch, the gradient is %d times its mean; if they are"
                " to be added up, one run.micro_batch() before the first of them says that they belong together" % (self.all[0][2], count, count, count))
