# SPDX-License-Identifier: Apache-2.0
"""By what a script divides the means that it calls backward on, as far as autograd's graph says it: a step of several micro-batches needs their mean."""

import linecache
import math
import re
import sys
from typing import NamedTuple

import torch

from lockstep.collectives import CallSites
from lockstep.frames import passes_on
from lockstep.graphs import is_plain, last_divisor, mean_of, MEAN, numbers_of, SUM, term_of
from lockstep.losses import Told
from lockstep.measuring import unseen

# Who divides a loss by the micro-batches before it calls backward: files and functions of frameworks.
DIVIDERS = {("accelerate/accelerator.py", "backward"), ("deepspeed/runtime/engine.py", "backward")}
# Numbers by which losses are divided for other reasons as well: half a square, the mean of two or four losses.
WEIGHTS = (2, 4)
MOST_SCALES = 64
# How a script calls the number of micro-batches where it divides by it.
BY_MICRO_BATCHES = re.compile(r"/=?\s*[\w.\[\]'\"(]*(accum|micro)", re.IGNORECASE)


def divides(frame, sites):
    """Whether a framework that divides losses calls backward."""
    while frame is not None:
        if (sites.path(frame.f_code.co_filename), frame.f_code.co_name) in DIVIDERS:
            return True
        frame = frame.f_back
    return False


def counted(number, what):
    return "%d %s%s" % (number, what, "" if number == 1 else "s")


class Scale(NamedTuple):
    """Of a number of one element, such as a loss, by a number."""

    kind: str  # the name that autograd's graph has for it
    number: float
    site: object  # who does
    framed: bool  # divides()
    named: bool  # the line divides by what it calls micro-batches or accumulation


class Root(NamedTuple):
    """What a backward pass begins with."""

    micro: int
    term: object  # term_of()
    rows: object  # first dimensions of what the model was called with since the pass before, added up; None where they are not known
    site: object  # who called backward
    last: object  # last_divisor()
    framed: bool  # divides()
    exchanged: bool  # between the model's call and this, collectives were called: a loss may be of what other ranks have
    plain: bool  # nothing multiplies what the mean is made of, and no hook its gradient
    numbers: tuple  # numbers_of(), without the loss scale
    scales: tuple  # Scale, since the pass before
    owners: set  # parameters that the pass yields something of, by number

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
        self.scales = []  # since the pass before
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
        plain, numbers = False, ()
        if len(roots) == 1 and isinstance(roots[0], torch.Tensor) and roots[0].numel() == 1 and gradients is None and self.run.pipelines.divisor is None:
            with unseen(roots[0]):  # numbers that stand in the graph are no tensors for a dispatch mode
                term = term_of(roots[0])
                last = last_divisor(roots[0])
                if term is not None and term[0] == MEAN:
                    mean = mean_of(roots[0])
                    plain = not roots[0]._backward_hooks and is_plain(mean)
                    numbers = tuple(one for one in numbers_of(roots[0]) if one[1] != 1)
        if term is not None:
            scale = (self.run.scaler.scale or 1.0) * getattr(self.run.loss, "factor", 1)
            term = (term[0], term[1] / scale, term[2])
            if self.run.scaler.scale is not None and numbers[:1] == (("MulBackward0", self.run.scaler.scale),):
                numbers = numbers[1:]
        frame = sys._getframe(1)
        self.all.append(Root(self.run.micro, term, self.rows or None, self.sites.innermost(frame), last, divides(frame, self.sites), self.exchanged, plain,
                             numbers, tuple(self.scales), set()))
        self.rows, self.within, self.exchanged, self.scales = 0, False, False, []

    def end_pass(self, yielded):
        """A backward pass has ended that yielded gradients of these parameters."""
        if self.all:
            self.all[-1].owners.update(yielded)
        self.scales = []  # autograd's own

    def scaled(self, kind, by, frame):
        """A number of one element is about to be multiplied with `by`, or divided by it."""
        number = float(by) if isinstance(by, (int, float)) or (type(by) is torch.Tensor and by.numel() == 1 and by.device.type == "cpu") else None
        while frame is not None and passes_on(self.sites.path(frame.f_code.co_filename), frame.f_code.co_name):
            frame = frame.f_back
        if number is not None and frame is not None and len(self.scales) < MOST_SCALES:
            line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
            self.scales.append(Scale(kind, number, self.sites.innermost(frame), divides(frame, self.sites), BY_MICRO_BATCHES.search(line) is not None))

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
        if self.run.loss != "local_mean" or count < 2 or self.times() is not None:
            return None
        division, words = self.division()
        if self.run.told and words != "tokens":
            return None
        if division == TWICE:
            return ("%s calls backward on %d means that are divided by %d, which is twice by %d: if the parts of one batch are divided once here and once in"
                    " a framework, the gradient is 1/%d of its mean" % (self.all[0].site, count, count * count, count, count))
        if division != NOT:
            return None
        if words is None and any(root.last not in (None, 1) for root in self.all):
            return ("%s calls backward on %d means that are multiplied and divided by one number: whether they are divided by their number of %d is not known"
                    % (self.all[0].site, count, count))
        if words is not None:
            return ("%s calls backward on %d sums, each divided by the %s of its own micro-batch, and not by those of all: if they are parts of one batch, the"
                    " gradient is %d times its mean" % (self.all[0].site, count, words, count))
        return ("%s calls backward on %d means that it does not divide by %d: if they are parts of one batch, the gradient is %d times its mean; if they are"
                " to be added up, one run.micro_batch() before the first of them says that they belong together" % (self.all[0].site, count, count, count))

    def are_equal_means(self):
        """Whether the losses of the step are means of as many elements and rows each, times one number, of whose gradients nothing else is a part."""
        if not self.are_parts() or any(root.term is None or root.term[0] != MEAN or not root.plain for root in self.all):
            return False
        alike = [{root.term[1] for root in self.all}, {root.term[2] for root in self.all}, {root.rows for root in self.all},
                 {frozenset(root.owners) for root in self.all}, {root.numbers for root in self.all}]
        hooked = any(parameter.hooked_before for parameter in self.run.adapter.parameters.all)
        return all(len(one) == 1 for one in alike) and None not in alike[1] | alike[2] and not hooked

    def twice(self):
        """(The place where the script divides the losses by the micro-batches, that of the framework which does it again), where that is certain."""
        count = len(self.all)
        if not all(root.framed and root.numbers == (("DivBackward0", float(count)),) * 2 for root in self.all):
            return None
        found = self.places(("DivBackward0", count))
        return tuple(one.site for one in found) if [one.framed for one in found] == [False, True] and found[0].named else None

    def places(self, scale):
        """The Scale of (operation, number), the same in all micro-batches, in their order; none where these differ."""
        found = [tuple(one for one in root.scales if one[:2] == scale) for root in self.all]
        return found[0] if len(set(found)) == 1 else ()

    def times(self):
        """What the losses of the step are times a mean over a rank's part of the batch, as far as graphs say it for certain: what a "step" line says of
        them; None where they do not."""
        count = len(self.run.tokens)
        if self.run.loss != "local_mean" or count < 2 or self.run.told or not self.are_equal_means():
            return None
        first, is_said = self.all[0], not isinstance(self.run.loss, Told)
        factor = first.term[1] * count
        found = {"call": first.site, "elements": max(1, round(sum(self.counts()["elements"])))}
        if abs(factor - 1) < 1e-6:
            return dict(found, times=1, why="")
        if is_said and not first.numbers:
            return dict(found, times=count, why="calls backward on %d means, each of %s, and nothing divides them by %d"
                        % (count, counted(first.term[2], "element"), count))
        if is_said and (twice := self.twice()):
            return dict(found, call=twice[0], times=1 / count,
                        why="divides the losses of %d micro-batches by %d, and %s does it again" % (count, count, twice[1]))
        if 0 < factor < math.inf and first.last == count and self.is_divided() and abs(factor * count - 1) > 1e-6:  # else it may be divided twice
            return self.weighted(dict(found, times=factor, weight=True), count)
        return None

    def is_divided(self):
        """Whether the last division of the losses is for the micro-batches: by a framework, or by a number that is called so, or is no usual weight."""
        count = len(self.all)
        found = self.places(("DivBackward0", count))
        return (getattr(self.run.loss, "divides", False) or count not in WEIGHTS or all(root.framed for root in self.all)
                or len(found) == 1 and found[0].named)

    def weighted(self, found, count):
        """With the words, and the place where it is known, of what scales losses that are divided by the micro-batches as well."""
        others = [one for one in self.all[0].numbers if one != ("DivBackward0", count)]
        places = self.places(others[0]) if len(others) == 1 else ()
        if len(places) == 1:
            return dict(found, call=places[0].site, why="%s by %g the losses of %d micro-batches, which are divided by %d as well"
                        % ("divides" if others[0][0] == "DivBackward0" else "multiplies", others[0][1], count, count))
        return dict(found, why="calls backward on %d means that are divided by %d, and multiplied by %g as well" % (count, count, found["times"]))

    def end_step(self):
        """An optimizer step ends that nobody skips."""
        if self.all:
            self.elements += sum(self.counts().get("elements", ()))
            division = self.division()[0] or (ALL if self.times() is not None else None)
            self.seen.add((division, len(self.run.tokens) > 1 and self.are_parts(), self.is_certain()))
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
