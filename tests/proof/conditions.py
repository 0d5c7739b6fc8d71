# SPDX-License-Identifier: Apache-2.0
"""Expressions of a Program for all sizes of a case at once: numbers as polynomials, conditions as sets of points.

Along an axis a condition may only ask whether the rank is at a coordinate that the proof has a name for. What is asked
beyond that, or is not the same at all sizes of the case, raises Underivable.
"""

from fractions import Fraction

import ranges
from functions import ONE, ZERO, constant, inverse, plus, times, variable
from program import EXPERT, PARTS, as_list, expressions

AXES = ("tp", "cp", "sp", "dp", "pp", "ep", "etp", "edp", "dp_shard", "dp_replicate", "edp_shard", "edp_replicate")
TOKEN_AXES = ("cp", "sp", "dp_shard", "dp_replicate")  # in the order in which a variable names them
MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}


def are_ones(counts):
    """Whether all that is listed is 1: so many tokens as "even" gives."""
    return all(are_ones(one) if isinstance(one, list) else one == 1 for one in counts) if isinstance(counts, list) else False


class Underivable(Exception):
    pass


class Where:
    """A condition on a point: a way in which the names of each axis are equal."""

    def __init__(self, holds, axes=()):
        self.holds, self.axes = holds, frozenset(axes)

    def __and__(self, other):
        if NOWHERE in (self, other):
            return NOWHERE
        if EVERYWHERE in (self, other):
            return other if self is EVERYWHERE else self
        return Where(lambda point: self.holds(point) and other.holds(point), self.axes | other.axes)

    def __or__(self, other):
        if EVERYWHERE in (self, other):
            return EVERYWHERE
        if NOWHERE in (self, other):
            return other if self is NOWHERE else self
        return Where(lambda point: self.holds(point) or other.holds(point), self.axes | other.axes)

    def __invert__(self):
        if self in (EVERYWHERE, NOWHERE):
            return NOWHERE if self is EVERYWHERE else EVERYWHERE
        return Where(lambda point: not self.holds(point), self.axes)


EVERYWHERE, NOWHERE = Where(lambda point: True), Where(lambda point: False)


def both(conditions):
    result = EVERYWHERE
    for one in conditions:
        result = result & one
    return result


def either(conditions):
    result = NOWHERE
    for one in conditions:
        result = result | one
    return result


class Moment:
    """Where in the schedule an expression stands. micro_batch: a number, "any", or None outside `each`."""

    def __init__(self, step, micro_batch=None):
        self.step, self.micro_batch = step, micro_batch


class Reader:
    """Reads the expressions of a Program for a case: `exactly`, `least` and `most` by size, `axes` of a class in the proof.

    let: what names in its conditions stand for, which hold at no moment in particular.
    """

    def __init__(self, program, axes, exactly, least, most, let=None):
        self.let = {name: expressions.parse(text) for name, text in (let or {}).items()}
        self.known, self.ranges = {}, {}  # of these names
        self.program, self.exactly, self.least, self.most = program, exactly, least, most
        self.names = list(axes)  # of the levels, in the same order
        self.axes = axes

    # Sizes.

    def level_size(self, number):
        return self.axes[self.names[number]].size

    def size(self, axis):
        program = self.program
        if axis in EXPERT + ("ep",) and not program.expert:
            return self.unused_expert_size(axis)
        result = ONE
        for number in program.levels_of(axis):
            result = times(result, self.level_size(number))
        return result

    def unused_expert_size(self, axis):
        sizes = self.program.sizes
        if axis == "ep" or (axis == "etp" and sizes["etp"] != sizes["tp"]):
            return constant(sizes[axis])
        if axis == "etp":
            return self.size("tp")
        if axis != "edp":
            raise Underivable(f"the size {axis}")
        result = self.world()
        for other in ("etp", "ep", "pp"):
            result = times(result, inverse(self.size(other)))
        return result

    def world(self):
        result = ONE
        for number in range(len(self.names)):
            result = times(result, self.level_size(number))
        return result

    def micro_batches(self, step):
        return variable("micro_batches") if "micro_batches" in self.least else constant(self.program.counts[step])

    # Tokens.

    def token_entry(self, use):
        tokens = self.program.batch.get("tokens", "uneven")
        if not isinstance(tokens, dict):
            return "main", tokens
        return (use, tokens[use]) if use in tokens else ("main", tokens.get("main", "uneven"))

    def tokens(self, use, summed, moment):
        """Of the contributor's piece, or summed over axes and "micro_batch"."""
        program = self.program
        entry, kind = self.token_entry(use)
        axes = [axis for axis in TOKEN_AXES if program.sizes[axis] > 1 and (
            axis in summed or (axis in PARTS["dp"] and "dp" in summed))]
        single = "micro_batches" not in self.least and program.counts[moment.step] == 1
        all_of_them = "micro_batch" in summed
        if kind == "even" or are_ones(kind):
            pieces = self.micro_batches(moment.step) if all_of_them else ONE
            for axis in axes:
                pieces = times(pieces, self.size(axis))
            return pieces
        left = [axis for axis in TOKEN_AXES if program.sizes[axis] > 1 and axis not in axes]
        known = single or all_of_them or isinstance(moment.micro_batch, int)
        if isinstance(kind, list) and not left and known:
            return constant(self.listed(kind, all_of_them, moment))
        name = "tokens" if entry == "main" else f"tokens.{entry}"
        first = sum(program.counts[: moment.step])
        if single and len(program.counts) > 1:
            name += f"[{first}]"
        elif not all_of_them and not single and isinstance(moment.micro_batch, int):
            name += f"[{first + moment.micro_batch}]"
        elif all_of_them and moment.step > 0:  # another number in each optimizer step
            name += f"[step {moment.step}]"
        summed_over = [*axes, *(["micro_batch"] if all_of_them and not single else [])]
        return variable(f"sum({', '.join([name, *summed_over])})" if summed_over else name)

    def listed(self, counts, all_of_them, moment):
        first = sum(self.program.counts[: moment.step])
        if len(counts) != sum(self.program.counts):
            first = 0
        mine = range(self.program.counts[moment.step]) if all_of_them else [moment.micro_batch if isinstance(moment.micro_batch, int) else 0]

        def total(value):
            return sum(map(total, value)) if isinstance(value, list) else value

        return sum(total(counts[first + one]) for one in mine)

    def pieces_differ_on(self, name):
        """Axes along which a variable is another one for each piece."""
        if not name.startswith(("tokens", "sum(tokens")):
            return []
        summed = {word.strip(" )") for word in name.split(",")[1:]}
        left = [axis for axis in TOKEN_AXES if self.program.sizes[axis] > 1 and axis not in summed]
        return sorted({self.names[number] for axis in left for number in self.program.levels_of(axis)})

    # Coordinates.

    def named(self, level, coordinate):
        """What the proof calls a coordinate of a level; None where there is none."""
        axis, size = self.axes[self.names[level]], self.program.levels[level].size
        if not 0 <= coordinate < size:
            return None
        if coordinate == 0:
            return "first"
        if coordinate == size - 1 and not axis.open:
            return "last"
        return str(coordinate)

    def at_name(self, level, name, who="rank"):
        axis_name = self.names[level]
        axis = self.axes[axis_name]
        if name not in axis.number:
            raise Underivable(f"the proof has no name for {name} of {axis_name}")
        one, other = axis.number[who], axis.number[name]
        return Where(lambda point: point[axis_name][one] == point[axis_name][other], {axis_name})

    def at(self, axis, written, who="rank"):
        """Where the rank, or the contributor, is at a coordinate as written."""
        program, levels = self.program, self.program.levels_of(axis)
        coordinate = program.coordinate(axis, written)
        if not levels:
            return EVERYWHERE if coordinate == 0 else NOWHERE
        if written in ("last", -1):
            return both(self.at_name(level, "last", who) for level in levels)
        if not 0 <= coordinate < program.sizes[axis]:
            return NOWHERE
        digits = []
        for level in reversed(levels):
            digits.append((level, coordinate % program.levels[level].size))
            coordinate //= program.levels[level].size
        if any(digit and self.axes[self.names[level]].open for level, digit in digits) and not self.is_fixed(digits, written):
            raise Underivable(f"the coordinate {written} of {axis}")
        return both(self.at_name(level, self.named(level, digit), who) for level, digit in digits)

    def is_fixed(self, digits, written):
        """Whether it is the same coordinate at all sizes of the case, and never the last one."""
        if not isinstance(written, (int, Fraction)) or written < 0:
            return False
        return all(not self.axes[self.names[level]].open or digit < self.least_of(level) - 1 for level, digit in digits)

    def least_of(self, level):
        axis = self.axes[self.names[level]]
        ((powers, _),) = axis.size.items()
        return self.least[powers[0][0]]

    def at_stage(self, stage, or_unnamed=False):
        """Where the rank is on a stage of the layout at which the class was read: one in the middle stands for all like it.
        or_unnamed: of a stage without a name, where it is on none that has one."""
        level = self.program.levels_of("pp")
        if not level:
            return EVERYWHERE
        last = self.program.levels[level[0]].size - 1
        name, axis = {0: "first", last: "last"}.get(stage, str(stage)), self.axes[self.names[level[0]]]
        if or_unnamed and name not in axis.number:
            return ~either(self.at_name(level[0], axis.names[fixed]) for fixed in axis.fixed)
        return self.at_name(level[0], name)

    def among(self, only, who="rank"):
        return both(either(self.at(axis, one, who) for one in as_list(values)) for axis, values in (only or {}).items())

    def rank_is_contributor(self, levels):
        axes = [(self.names[level], self.axes[self.names[level]].number["contributor"]) for level in levels]
        if not axes:
            return EVERYWHERE
        return Where(lambda point: all(point[axis][0] == point[axis][other] for axis, other in axes), {axis for axis, _ in axes})

    # Expressions.

    def number(self, expression, moment):
        value = self.value(expression, moment)
        if isinstance(value, Where):
            raise Underivable(f"{expression} as a number")
        return value

    def condition(self, expression, moment):
        value = self.value(expression, moment)
        if not isinstance(value, Where):
            raise Underivable(f"{expression} as a condition")
        return value

    def value(self, expression, moment):
        if isinstance(expression, bool):
            return EVERYWHERE if expression else NOWHERE
        if isinstance(expression, (int, Fraction)):
            return constant(expression)
        return self.of(expressions.parse(expression), moment)

    def of(self, tree, moment):
        kind = tree[0]
        if kind == "number":
            return self.value(tree[1], moment)
        if kind == "name":
            return self.of_name(tree[1], moment)
        if kind == "call":
            return self.call(tree[1], tree[2], moment)
        if kind in ("and", "or"):
            return self.logical(tree, moment)
        if kind == "not":
            return ~self.of(tree[1], moment)
        if kind == "negative":
            return times(constant(-1), self.of(tree[1], moment))
        if kind == "compare":
            return self.compare(*tree[1:], moment)
        left, right = self.of(tree[1], moment), self.of(tree[2], moment)
        if kind == "*":
            return times(left, right)
        if kind == "/":
            if len(right) != 1:
                raise Underivable(f"a quotient by {right}")
            return times(left, inverse(right))
        return plus(left, right, 1 if kind == "+" else -1)

    def logical(self, tree, moment):
        kind = tree[0]
        try:
            left = self.of(tree[1], moment)
            if left is (NOWHERE if kind == "and" else EVERYWHERE):
                return left
            right = self.of(tree[2], moment)
            return left & right if kind == "and" else left | right
        except Underivable:  # each side for itself may depend on what both together do not
            answer = ranges.truth(tree, lambda name: self.range_of(name, moment))
            if answer is None:
                raise
            return EVERYWHERE if answer else NOWHERE

    def of_let(self, name, moment):
        """The value of a name of the proof's own, which is found once: others stand for it several times."""
        if name not in self.known:
            try:
                self.known[name] = self.of(self.let[name], moment)
            except Underivable as why:
                self.known[name] = why
        if isinstance(self.known[name], Underivable):
            raise self.known[name]
        return self.known[name]

    def range_of_let(self, name, moment):
        """Between which numbers it is; from 1 to 1 or from 0 to 0 where it is a condition with one answer."""
        if name not in self.ranges:
            answer = ranges.truth(self.let[name], lambda inner: self.range_of(inner, moment))
            known = self.known.get(name)
            if known in (EVERYWHERE, NOWHERE):
                answer = known is EVERYWHERE
            self.ranges[name] = (ranges.number(self.let[name], lambda inner: self.range_of(inner, moment)) if answer is None
                                 else (Fraction(answer), Fraction(answer)))  # fmt: skip
        return self.ranges[name]

    def of_name(self, name, moment):
        if name in self.let:
            return self.of_let(name, moment)
        if name in AXES:
            return self.size(name)
        if name == "world":
            return self.world()
        if name == "micro_batches":
            return self.micro_batches(moment.step)
        if name == "steps":
            return constant(len(self.program.counts))
        if name == "step":
            return constant(moment.step)
        if name == "virtual_stages":
            return constant(self.program.layout.get("virtual_stages", 1))
        if name == "sequence_parallel":
            return self.value(bool(self.program.layout.get("sequence_parallel", False)), moment)
        if name == "micro_batch" and isinstance(moment.micro_batch, int):
            return constant(moment.micro_batch)
        if name == "tokens" or name.startswith("tokens."):
            return self.tokens(name[7:] or "main", (), moment)
        if name.startswith("rank.") and not self.program.levels_of(name[5:]):
            return ZERO
        raise Underivable(name)

    def call(self, function, arguments, moment):
        if function == "sum":
            names = [argument[1] for argument in arguments]
            return self.tokens(names[0][7:] or "main", set(names[1:]), moment)
        values = [self.of(argument, moment) for argument in arguments]
        if function in ("min", "max"):
            best = values[0]
            for one in values[1:]:
                signs = self.signs(plus(one, best, -1))
                if len(signs - {0}) > 1:
                    raise Underivable(f"which is the {function}")
                if (1 if function == "max" else -1) in signs:
                    best = one
            return best
        if all(set(value) <= {()} for value in values):
            plain = [("number", value.get((), Fraction(0))) for value in values]
            return constant(expressions.value_of(("call", function, plain), None))
        whole = ranges.number(("call", function, arguments), lambda name: self.range_of(name, moment))
        if whole is not None and whole[0] is not None and whole[0] == whole[1]:
            return constant(whole[0])
        raise Underivable(function)

    def compare(self, sign, left, right, moment):
        try:
            return self.compare_values(sign, left, right, moment)
        except Underivable:  # what is no polynomial, as floor(dp / 8), may still be above a number
            answer = ranges.truth(("compare", sign, left, right), lambda name: self.range_of(name, moment))
            if answer is None:
                raise
            return EVERYWHERE if answer else NOWHERE

    def range_of(self, name, moment):
        """Between which numbers a size is; None where the name is none."""
        try:
            value = self.of_name(name, moment)
        except Underivable:
            return self.range_of_let(name, moment) if name in self.let else None
        if isinstance(value, Where) and name in self.let:
            return self.range_of_let(name, moment)
        return None if isinstance(value, Where) else self.bounds(value)

    def compare_values(self, sign, left, right, moment):
        def axis_of(tree):
            is_rank = tree[0] == "name" and tree[1].startswith("rank.")
            return tree[1][5:] if is_rank and self.program.levels_of(tree[1][5:]) else None

        if axis_of(left):
            return self.compare_rank(axis_of(left), sign, right, moment)
        if axis_of(right):
            return self.compare_rank(axis_of(right), MIRRORED[sign], left, moment)
        a, b = self.side(left, right, moment), self.side(right, left, moment)
        if isinstance(a, Where) and isinstance(b, Where):
            same = (a & b) | (~a & ~b)
            return same if sign == "==" else ~same
        signs = self.signs(plus(a, b, -1))
        holds = {expressions_hold(sign, one) for one in signs}
        if len(holds) > 1:
            raise Underivable(f"a comparison with {sign} that depends on the sizes")
        return EVERYWHERE if holds == {True} else NOWHERE

    def side(self, tree, other, moment):
        if tree[0] != "name" or tree[1] not in ("first", "last"):
            return self.of(tree, moment)
        if tree[1] == "first" or (other[0] == "name" and other[1].startswith("rank.")):
            return ZERO
        count = {"micro_batch": self.micro_batches(moment.step), "step": constant(len(self.program.counts))}
        if other[0] != "name" or other[1] not in count:
            raise Underivable("last")
        return plus(count[other[1]], ONE, -1)

    def compare_rank(self, axis, sign, other, moment):
        if other[0] == "name" and other[1] in ("first", "last"):
            end = other[1]
            here = self.at(axis, end)
            if sign in ("==", "!="):
                return here if sign == "==" else ~here
            if (sign, end) in (("<", "last"), (">", "first")):
                return ~here
            if (sign, end) in (("<=", "first"), (">=", "last")):
                return here
            return EVERYWHERE if sign in ("<=", ">=") else NOWHERE
        value = self.of(other, moment)
        if isinstance(value, Where) or not set(value) <= {()}:
            raise Underivable(f"rank.{axis} compared with a size")
        value = value.get((), Fraction(0))
        whole = value.numerator // value.denominator
        if sign in ("==", "!="):
            here = self.at(axis, whole) if value == whole and whole >= 0 else NOWHERE
            return here if sign == "==" else ~here
        below = whole if sign in ("<", ">=") and value == whole else whole + 1  # rank.AXIS < below, or its opposite
        if below > 64:
            raise Underivable(f"rank.{axis} compared with {whole}")
        less = either(self.at(axis, coordinate) for coordinate in range(below))
        return less if sign in ("<", "<=") else ~less

    def signs(self, number):
        """Which of -1, 0 and 1 the number's sign can be at sizes of the case; every token count is at least 1."""
        if not number:
            return {0}
        inside = self.signs_inside(number)
        for name in {name for powers in number for name, exponent in powers if exponent < 0}:
            most = max(-dict(powers).get(name, 0) for powers in number)
            number = times(number, {((name, most),): Fraction(1)})
        total = ZERO
        for powers, coefficient in number.items():  # each variable is its least value and something from 0 on
            term = constant(coefficient)
            for name, exponent in powers:
                for _ in range(exponent):
                    term = times(term, plus(variable(name), constant(self.least.get(name, 1))))
            total = plus(total, term)
        start = total.get((), Fraction(0))
        rest = {1 if coefficient > 0 else -1 for powers, coefficient in total.items() if powers}
        found = {(start > 0) - (start < 0)} | rest
        return (found | {0} if len(found - {0}) > 1 else found) & inside

    def signs_inside(self, number):
        """The signs between the bounds, of the number over the powers that all of its terms have."""
        names = {name for powers in number for name, _ in powers if self.least.get(name, 1) > 0}
        for name in names:
            common = min(dict(powers).get(name, 0) for powers in number)
            number = times(number, {((name, -common),): Fraction(1)} if common else ONE)
        low, high = self.bounds(number)
        possible = set()
        if low is None or low < 0:
            possible.add(-1)
        if (low is None or low <= 0) and (high is None or high >= 0):
            possible.add(0)
        if high is None or high > 0:
            possible.add(1)
        return possible

    def bounds(self, number):
        """The least and the largest value over all sizes of the case, as far as each term for itself shows; None: no bound."""
        found = (Fraction(0), Fraction(0))
        for powers, coefficient in number.items():
            term = (Fraction(coefficient), Fraction(coefficient))
            for name, exponent in powers:
                least, most = self.least.get(name, 1), self.most.get(name)
                factor = (Fraction(least), None if most is None else Fraction(most))
                for _ in range(abs(exponent)):
                    term = ranges.product(term, factor) if exponent > 0 else ranges.quotient(term, factor)
            found = ranges.plus(found, term)
        return found


def expressions_hold(sign, difference):
    return {"==": difference == 0, "!=": difference != 0, "<": difference < 0, "<=": difference <= 0,
            ">": difference > 0, ">=": difference >= 0}[sign]  # fmt: skip
