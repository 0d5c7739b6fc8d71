# SPDX-License-Identifier: Apache-2.0
"""The norms of gradients, by which they are clipped. A norm is no sum of gradients, and what is made of it is not known; but what it counts is: a sum of
squares is a sum of numbers times the squares of what this rank's optimizer reads of each parameter, and of what collectives bring of such sums, which are
sources of one element. Elements that hold such a sum or its root are marked by a reason (contents.py) that is a Norm; what is made of a root by adding,
multiplying or limiting, as a clipping factor is, by a Factor. Where gradients are multiplied by one, `clipped` is told.
"""

from fractions import Fraction

import torch

from lockstep.extracting.contents import FOREIGN, KNOWN, Content, Meaning, fraction_of

MOST = 1 << 16  # elements of a tensor of norms
NORMS = {"linalg_vector_norm", "norm", "_foreach_norm"}
LIMITS = {"add", "sub", "mul", "div", "true_divide", "reciprocal", "clamp", "clamp_max", "clamp_min", "minimum", "maximum"}
SCALES = {"mul", "_foreach_mul"}


class Norm(Meaning):
    """`power` 2: a sum of squares, `terms` by source and its element; 1: its root."""

    def __new__(cls, reason, power, terms):
        made = super().__new__(cls, reason)
        made.power, made.terms = power, terms
        return made


class Factor(Meaning):
    """Made of one norm, its root, and of numbers. `is_endless`: it is infinite, whatever the norm is."""

    def __new__(cls, reason, norm, is_endless=False):
        made = super().__new__(cls, reason)
        made.norm, made.is_endless = norm, is_endless
        return made


def is_infinite(value):
    """Whether it is a number, or a tensor of one, that is infinite."""
    if isinstance(value, torch.Tensor):
        return value.numel() == 1 and bool(value == torch.inf)
    return isinstance(value, (int, float)) and value == float("inf")


def summed(norms):
    terms = {}
    for norm in norms:
        for element, factor in norm.terms.items():
            terms[element] = terms.get(element, 0) + factor
    return terms


def scaled(reason, norm, factor):
    return Norm(reason, norm.power, {element: own * factor for element, own in norm.terms.items()})


class Squares:
    """`rules`: rules.Rules. `source_of(tensor)`: the source of the squares of a gradient that the optimizer reads, or None, as of any other tensor;
    `clipped(tensors, norm)` is told of gradients that are multiplied by what is made of a norm."""

    def __init__(self, rules):
        self.rules, self.memory = rules, rules.memory
        self.are_there = False  # any such norm
        self.under = {}  # by source that a collective has brought: those that this rank has put in
        self.source_of, self.clipped = lambda tensor: None, lambda tensors, norm: None

    def of(self, tensor, kind=Norm, power=None):
        """What each element of a tensor is, if all are such; None for zeros. None where one is something else."""
        if not isinstance(tensor, torch.Tensor) or not 0 < tensor.numel() <= MOST or not tensor.is_floating_point():
            return None
        content, found = self.rules.content(tensor), []
        if content.terms and bool(torch.stack([factors for _, factors in content.terms]).any()):
            return None  # gradients
        for mark in content.marks.reshape(-1).tolist():
            one = self.memory.reasons[mark] if mark > KNOWN else None
            if one is not None and not (isinstance(one, kind) and (power is None or one.power == power)):
                return None
            found.append(one)
        return found if any(one is not None for one in found) else None

    def one(self, tensor, kind=Norm, power=None):
        found = self.of(tensor, kind, power)
        return found[0] if found is not None and len(found) == 1 else None

    def put(self, name, shape, made):
        """A content of this shape of these, one after another; nothing of ours, which is zero there, where there is None."""
        self.are_there = True
        marks = [self.memory.reasons.number(one) if one is not None else FOREIGN for one in made]
        return Content(torch.tensor(marks, dtype=torch.int64).reshape(shape), [])

    def holds_any(self, tensors):
        """Whether any of these has something of a norm in it."""
        if not self.are_there:
            return False
        for tensor in tensors:
            if self.memory.of(tensor) is None:
                continue
            marks = self.memory.of(tensor).marks
            for mark in torch.unique(marks[marks > KNOWN]).tolist():
                if mark > KNOWN and isinstance(self.memory.reasons[mark], (Norm, Factor)):
                    return True
        return False

    def rule(self, name, base, arguments, keys, changed, own):
        """Of an operation that reads a gradient or something of a norm: a function of its result as Rules.before() has it. None: nothing is known of it
        here, and it may be known elsewhere."""
        reads_norms = self.holds_any(own)
        if base in NORMS:
            return self.norms(name, base, arguments, keys)
        if not reads_norms:
            return None
        if base in SCALES and self.scales(base, arguments):
            return None if base in ("mul",) and not changed else self.plain(name, changed, own)
        made = self.made(name, base, arguments, keys)
        if made is None:
            return self.plain(name, changed, own)
        reason = self.rules.reason("aten::" + name)
        return lambda result: [(tensor, self.put(name, tensor.shape, made) if tensor.numel() == len(made) else self.memory.unknown(tensor, reason))
                               for tensor in changed or [result]]

    def plain(self, name, changed, own):
        return self.rules.not_known_of(name, changed, own)

    def made(self, name, base, arguments, keys):
        """By element of the result; None where that is not known."""
        reason, first = self.rules.reason("aten::" + name), arguments[0]
        second = arguments[1] if len(arguments) > 1 else None
        powers = {2: ("pow", 2), 0.5: ("pow", 0.5)}
        if base in ("square", "sqrt") or (base == "pow" and isinstance(second, (int, float)) and second in powers):
            to = 2 if base == "square" or second == 2 else 1
            found = self.of(first, Norm, 3 - to)
            return [one and Norm(reason, to, one.terms) for one in found] if found is not None else None
        if base == "mul" and isinstance(second, torch.Tensor) and first is second:
            found = self.of(first, Norm, 1)
            return [one and Norm(reason, 2, one.terms) for one in found] if found is not None else None
        if base == "sum" and (second is None or first.dim() <= 1):
            found = self.of(first, Norm, 2)
            return [Norm(reason, 2, summed(filter(None, found)))] if found is not None else None
        if base == "add" and not keys and len(arguments) == 2:
            if not isinstance(second, torch.Tensor) and second == 0:
                return self.of(first)
            pairs = [self.of(one, Norm, 2) for one in (first, second)]
            if None not in pairs and len(pairs[0]) == len(pairs[1]):
                return [Norm(reason, 2, summed(filter(None, pair))) for pair in zip(*pairs)]
        if base in ("mul", "div", "true_divide") and isinstance(second, (int, float)) and second > 0 and not keys:
            found = self.of(first)
            if found is not None:  # DTensor divides the norm of replicas by the root of their number before it sums squares
                factors = [fraction_of(float(second) ** (2 if one is None or one.power == 1 else 1), 22) for one in found]
                return [one and scaled(reason, one, factor if base == "mul" else 1 / factor) for one, factor in zip(found, factors)]
        if base in LIMITS:
            own = [one for one in arguments if isinstance(one, torch.Tensor) and self.memory.of(one) is not None]
            if len(own) == 1:
                root, factor = self.one(own[0], Norm, 1), self.one(own[0], Factor)
                if root or factor:
                    return [self.limited(reason, base, arguments, keys, root or factor.norm, factor is not None and factor.is_endless)]
        return None

    @staticmethod
    def limited(reason, base, arguments, keys, norm, is_endless):
        """What is made of a norm and numbers; None where it is a number, whatever the norm is: a limit of infinity over the norm, but at most 1."""
        others = [one for one in arguments if one is not None]
        if base in ("mul", "div", "true_divide") and any(map(is_infinite, others[:1] if base != "mul" else others)):
            return Factor(reason, norm, is_endless=True)
        if is_endless and base in ("clamp", "clamp_max", "minimum"):
            most = keys.get("max", arguments[-1] if base != "clamp" or len(arguments) > 2 else None)
            if most is not None and not is_infinite(most):
                return None
        return Factor(reason, norm, is_endless)

    def norms(self, name, base, arguments, keys):
        """Of gradients, or of norms of these."""
        order = arguments[1] if len(arguments) > 1 else keys.get("ord", keys.get("p", 2))
        whole = not [one for one in arguments[2:] if one not in (None, False, [])] and not any(keys.get(key) for key in ("dim", "keepdim"))
        tensors = list(arguments[0]) if base == "_foreach_norm" else [arguments[0]]
        if order != 2 or not whole or any(not isinstance(tensor, torch.Tensor) for tensor in tensors):
            return None
        made = []
        for tensor in tensors:
            found = self.of(tensor, Norm, 1) if self.are_there else None
            if found is not None:
                made.append(Norm(self.rules.reason("aten::" + name), 1, summed(filter(None, found))))
                continue
            if tensor.numel() == 0:  # which adds nothing to a sum with those of other ranks
                made.append(Norm(self.rules.reason("aten::" + name), 1, {}))
                continue
            source = self.source_of(tensor) if self.memory.of(tensor) is not None else None
            made.append(Norm(self.rules.reason("aten::" + name), 1, {(source, 0): Fraction(1)}) if source is not None else self.rules.reason("aten::" + name)
                        if self.memory.of(tensor) is not None else None)

        def after(result):
            results = list(result) if isinstance(result, (list, tuple)) else [result]
            return [(tensor, self.memory.unknown(tensor, one) if type(one) is str else self.put(name, tensor.shape, [one]) if one is not None else None)
                    for tensor, one in zip(results, made) if tensor.numel() == 1]
        return after if any(one is not None for one in made) else None

    def scales(self, base, arguments):
        """Whether gradients are multiplied by what is made of a norm, which is told."""
        first, second = arguments[0], arguments[1] if len(arguments) > 1 else None
        gradients = list(first) if isinstance(first, (list, tuple)) else [first]
        factors = list(second) if isinstance(second, (list, tuple)) else [second] * len(gradients)
        by_norm = {}
        for gradient, factor in zip(gradients, factors):
            found = self.one(factor, Factor)
            if found is not None and isinstance(gradient, torch.Tensor) and not self.holds_any([gradient]):
                by_norm.setdefault(found.norm, []).append(gradient)
        for norm, tensors in by_norm.items():
            self.clipped(tensors, norm)
        return bool(by_norm)

    # Collectives.

    def sum_of(self, op, reduce, inputs):
        """The content of sums of squares that are put into a collective which adds such sums; None of anything else."""
        if not self.are_there or op != "all_reduce" or reduce != "sum" or len(inputs) != 1:
            return None
        found = self.of(inputs[0], Norm, 2)
        return content_of(found) if found is not None else None

    def brought(self, tensor, op, put_in):
        """What a collective has brought of such sums: a new source, whose number this returns."""
        number, _ = self.memory.source(tensor.detach().reshape(-1).to(torch.float64))
        reason = "a sum of squares, by %s" % self.rules.reason(op)
        self.memory.put(tensor, self.put(op, tensor.shape, [Norm(reason, 2, {(number, place): Fraction(1)}) for place in range(tensor.numel())]))
        self.under[number] = [source for _, _, terms in put_in for _, source, _ in terms]
        return number

    def sources_under(self, norm):
        """Of what this rank has put into it, by collectives as well."""
        found, left = set(), [source for source, _ in norm.terms]
        while left:
            source = left.pop()
            if source not in found:
                found.add(source)
                left += self.under.get(source, ())
        return found


def content_of(norms):
    """As docs/extract.md writes it, of sums of squares or of their roots, one after another."""
    terms = [[[str(factor), *element] for element, factor in sorted(norm.terms.items()) if factor] if norm is not None else [] for norm in norms]
    return [[place, 1, own] for place, own in enumerate(terms)]

