# SPDX-License-Identifier: Apache-2.0
"""By what a script divides the means that it calls backward on, as far as autograd's graph says it: a step of several micro-batches needs their mean."""

import sys
from math import prod
from typing import NamedTuple

import torch

from lockstep.collectives import CallSites
from lockstep.losses import Told
from lockstep.measuring import unseen

# What yields a mean, with `_saved_reduction` 1 where there are others.
MEANS = {"MeanBackward0", "MeanBackward1", "NllLossBackward0", "NllLoss2DBackward0", "MseLossBackward0", "BinaryCrossEntropyBackward0",
         "BinaryCrossEntropyWithLogitsBackward0", "SmoothL1LossBackward0", "HuberLossBackward0"}
MEAN, SUM = 1, 2  # `_saved_reduction` of these
# What hands a number on.
SAME = {"ToCopyBackward0", "ViewBackward0", "ReshapeAliasBackward0", "SqueezeBackward0", "UnsqueezeBackward0", "CloneBackward0", "AliasBackward0"}
SINK = "_DDPSinkBackward"  # through which DistributedDataParallel hands on all that its model returns
SCALES = ("DivBackward0", "MulBackward0")
MOST_TERMS = 64
# Who divides a loss by the micro-batches before it calls backward: files and functions of frameworks.
DIVIDERS = {("accelerate/accelerator.py", "backward"), ("deepspeed/runtime/engine.py", "backward")}
# Numbers by which losses are divided for other reasons as well: half a square, the mean of two or four losses.
WEIGHTS = (2, 4)


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


def elements_of(node):
    """Of how many elements it is a mean or a sum, those that are ignored left out; None where the graph does not say it."""
    sizes, weight = getattr(node, "_saved_self_sym_sizes", None), getattr(node, "_saved_total_weight", None)
    if sizes is not None:
        return prod(map(int, sizes))
    if "Nll" in type(node).__name__:
        return float(weight) if isinstance(weight, torch.Tensor) and weight.device.type == "cpu" and reduction_of(node) == MEAN else None
    values = getattr(node, "_saved_self", None)
    return values.numel() if isinstance(values, torch.Tensor) else None


def last_divisor(root):
    """By what a loss is divided last of all, but for a scale that it is multiplied with after that; None where it is not."""
    node = root.grad_fn
    while node is not None and type(node).__name__ in (*SCALES, *SAME):
        if type(node).__name__ == "DivBackward0":
            return number_of(node)
        node = only_input_of(node)
    return None


def divides(frame, sites):
    """Whether a framework that divides losses calls backward."""
    while frame is not None:
        if (sites.path(frame.f_code.co_filename), frame.f_code.co_name) in DIVIDERS:
            return True
        frame = frame.f_back
    return False


def term_of(root):
    """Whether this loss is a mean or a sum of elements, what that is multiplied with, and the elements of a sum where they are known; None where the graph
    does not say that it is one."""
    node, place, factor = root.grad_fn, root.output_nr, 1.0
    while node is not None:
        if reduction_of(node) is not None:
            return None if is_scaled_within(node) else (reduction_of(node), factor, elements_of(node))
        edges = node.next_functions
        if type(node).__name__ == SINK:
            node, place = edges[place] if place < len(edges) else (None, 0)
            continue
        scaled = scaled_from(node, factor)
        node, factor = scaled if scaled is not None else (None, 0)
        place = next((place for one, place in edges if one is not None), 0)
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


class Root(NamedTuple):
    """What a backward pass begins with."""

    micro: int
    term: object  # term_of()
    rows: object  # first dimensions of what the model was called with since the pass before, added up; None where they are not known
    site: object  # who called backward
    last: object  # last_divisor()
    framed: bool  # divides()
    exchanged: bool  # between the model's call and this, collectives were called: a loss may be of what other ranks have

    def divisor(self):
        """What the elements' sum is divided by, where that is a whole number."""
        reduction, factor, _ = self.term
        number = 1 / factor if reduction == SUM and factor else 0
        return round(number) if number >= 1 and abs(number - round(number)) < 1e-6 * number else None


ALL, NOT, TWICE = "all", "not", "twice"  # By what losses are divided: by their micro-batches; by nothing, or what is a micro-batch's own; once too often


class Roots:
    """The losses of the backward passes of one optimizer step of a capture."""

    def __init__(self, run):
        self.run, self.sites = run, CallSites()
        self.rows, self.seen = 0, set()  # since the pass before; of all optimizer steps before, how their losses were divided
        self.elements = 0  # of which the losses of all optimizer steps before were means
        self.forget()

    def forget(self):
        self.all, self.within, self.exchanged = [], False, False

    def meet(self, call):
        """A collective is about to be called: of a model's own, or of a loss, where its wrapper does not gather weights."""
        if self.within and not self.run.in_backward() and not (call or "").startswith(("torch/distributed/", "torch/nn/parallel/", "deepspeed/")):
            self.exchanged = True

    def watch(self, model):
        """Looks at what the model is called with; what undoes that."""
        return model.register_forward_pre_hook(self.called, with_kwargs=True)

    def called(self, model, arguments, keys):
        if torch.is_grad_enabled() and model.training and self.run.active():
            self.within = True
            first = next((one for one in (*arguments, *keys.values()) if isinstance(one, torch.Tensor)), None)
            known = self.rows is not None and first is not None and first.dim() > 0
            self.rows = self.rows + int(first.shape[0]) if known else None

    def add(self, tensors, gradients):
        """A backward pass is about to begin."""
        # An iterator is autograd's to use up, and frameworks' own passes have other arguments.
        roots = [tensors] if isinstance(tensors, torch.Tensor) else tensors if isinstance(tensors, (list, tuple)) else ()
        term = last = None
        if len(roots) == 1 and isinstance(roots[0], torch.Tensor) and roots[0].numel() == 1 and gradients is None and self.run.pipelines.divisor is None:
            with unseen(roots[0]):  # numbers that stand in the graph are no tensors for a dispatch mode
                term = term_of(roots[0])
                last = last_divisor(roots[0])
        if term is not None:
            scale = (self.run.scaler.scale or 1.0) * getattr(self.run.loss, "factor", 1)
            term = (term[0], term[1] / scale, term[2])
        frame = sys._getframe(1)
        self.all.append(Root(self.run.micro, term, self.rows or None, self.sites.innermost(frame), last, divides(frame, self.sites), self.exchanged))
        self.rows, self.within, self.exchanged = 0, False, False

    def are_parts(self):
        """Whether each micro-batch of the step has one backward pass, all of them from one line."""
        count = len(self.run.tokens)
        return (not self.run.gaps.zeroed and len(self.all) == count and len({root.micro for root in self.all}) == count
                and len({root.site for root in self.all}) == 1)

    def counts(self):
        """By words, what each micro-batch has of something, where that is known of all."""
        found = {"elements": [root.term and root.term[2] for root in self.all], "rows": [root.rows for root in self.all], "tokens": self.run.tokens}
        return {words: numbers for words, numbers in found.items() if None not in numbers}

    def division(self):
        """(By what the losses of the step are divided, and of sums what was counted), as far as graphs say it; (None, None) where they do not."""
        if not self.are_parts() or any(root.term is None for root in self.all):
            return None, None
        count, reductions = len(self.all), {root.term[0] for root in self.all}
        if reductions == {MEAN}:
            factors = {root.term[1] for root in self.all}
            factor = factors.pop() if len(factors) == 1 else 0
            if abs(factor * count - 1) < 1e-6:
                return ALL, None
            # Of two, a quarter may be half of what is half a square already.
            return (NOT if factor == 1.0 else TWICE if count > 2 and abs(factor * count * count - 1) < 1e-6 else None), None
        divisors = [root.divisor() for root in self.all]
        if reductions == {SUM} and None not in divisors:
            found = []
            for words, numbers in self.counts().items():
                if len(set(divisors)) == 1 and divisors[0] == sum(numbers):
                    found.append((ALL, words))
                if count > 1 and divisors == numbers and min(numbers) > 1:
                    found.append((NOT, words))
            if len({division for division, _ in found}) == 1:  # what are all rows may be a micro-batch's own elements
                return found[0]
        return None, None

    def is_certain(self):
        """Whether the losses of the step are divided for the micro-batches and by nothing else that it may be, and each is of as much as the others."""
        count, (division, words) = len(self.all), self.division()
        if division != ALL or any(root.exchanged for root in self.all) or not self.run.with_collectives:
            return False
        counts = self.counts()
        if words is None:
            numbers = [counts[words] for words in ("elements", "rows") if words in counts]
            if self.all[0].term[0] != MEAN or "elements" not in counts or any(len(set(one)) > 1 for one in numbers):
                return False
            return count == 1 or all(root.last == count for root in self.all) and (count not in WEIGHTS or all(root.framed for root in self.all))
        # What is as many as the rows of all ranks may be that: such sums are to be added up over ranks.
        ranks = {sum(counts.get("rows", ())) * ranks for ranks in range(2, self.run.world + 1)}
        is_own = words == "rows" and "elements" in counts or "rows" in counts and sum(counts[words]) not in ranks
        return is_own and (count == 1 or len(set(counts[words])) > 1)

    def not_divided(self):
        """Why what the optimizers get is several times a mean over the batch, or a part of it, as it seems; None where nothing says so."""
        count = len(self.run.tokens)
        if self.run.loss != "local_mean" or count < 2:
            return None
        division, words = self.division()
        if self.run.told and words != "tokens":
            return None
        if division == TWICE:
            return ("%s calls backward on %d means that are divided by %d, which is twice by %d: if the parts of one batch are divided once here and once in"
                    " a framework, the gradient is 1/%d of its mean" % (self.all[0].site, count, count * count, count, count))
        if division != NOT:
            return None
        if words is not None:
            return ("%s calls backward on %d sums, each divided by the %s of its own micro-batch, and not by those of all: if they are parts of one batch, the"
                    " gradient is %d times its mean" % (self.all[0].site, count, words, count))
        return ("%s calls backward on %d means that it does not divide by %d: if they are parts of one batch, the gradient is %d times its mean; if they are"
                " to be added up, one run.micro_batch() before the first of them says that they belong together" % (self.all[0].site, count, count, count))

    def end_step(self):
        """An optimizer step ends that nobody skips."""
        if self.all:
            self.elements += sum(self.counts().get("elements", ()))
            self.seen.add((self.division()[0], len(self.run.tokens) > 1 and self.are_parts(), self.is_certain()))
        self.forget()

    def loss(self):
        """What the losses of all steps are, as graphs say it, and who says so; None where they do not."""
        if not self.run.adapter.averages or not self.seen or not all(certain for _, _, certain in self.seen):
            return None
        several = any(several for _, several, _ in self.seen)
        return Told("local_mean", "by autograd's graph each backward is of a mean over a rank's part of the batch%s, and %s averages over ranks, of which each"
                    " has means of %d elements" % (", divided for the micro-batches" if several else "", self.run.adapter.averages, self.elements))

    def unknown_division(self):
        """Whether nobody knows if the losses of the parts of a step's batch were divided by the number of parts, as it is said of them."""
        divides = getattr(self.run.loss, "divides", False)
        return self.run.loss == "local_mean" and not divides and any(division is None and are_parts for division, are_parts, _ in self.seen)
