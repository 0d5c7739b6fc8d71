# SPDX-License-Identifier: Apache-2.0
"""Expressions on sizes over all sizes of a case: between which numbers a number is, and whether a condition has one answer.

A range is (least, most) with None for no bound on a side. Where nothing is seen, the answer is None.
"""

import math
from fractions import Fraction

MIRRORED = {">": "<", ">=": "<="}


def plus(a, b):
    return tuple(None if x is None or y is None else x + y for x, y in zip(a, b))


def negated(a):
    return tuple(None if bound is None else -bound for bound in reversed(a))


def product(a, b):
    """Of any signs: the corners, where no bound times 0 is 0."""
    corners = []
    for x, low in ((a[0], True), (a[1], False)):
        for y, below in ((b[0], True), (b[1], False)):
            if x is not None and y is not None:
                corners.append(x * y)
            elif x == 0 or y == 0:
                corners.append(Fraction(0))
            else:
                sign = (-1 if low else 1) if x is None else (x > 0) - (x < 0)
                corners.append(sign * ((-1 if below else 1) if y is None else (y > 0) - (y < 0)) * math.inf)
    least, most = min(corners), max(corners)
    return (None if least == -math.inf else least, None if most == math.inf else most)


def quotient(a, b):
    if b[0] is not None and b[0] > 0:
        return product(a, (Fraction(0) if b[1] is None else 1 / b[1], 1 / b[0]))
    if b[1] is not None and b[1] < 0:
        return negated(quotient(a, negated(b)))
    return None


def smallest(a, b):
    least = None if None in (a[0], b[0]) else min(a[0], b[0])
    return (least, min((bound for bound in (a[1], b[1]) if bound is not None), default=None))


def call(function, values):
    if function in ("floor", "ceil"):
        whole = math.floor if function == "floor" else math.ceil
        return tuple(None if bound is None else Fraction(whole(bound)) for bound in values[0])
    if function in ("min", "max"):
        found = values[0]
        for one in values[1:]:
            found = smallest(found, one) if function == "min" else negated(smallest(negated(found), negated(one)))
        return found
    if function != "lcm" or any(least is None or least <= 0 for least, _ in values):
        return None
    if all(least == most and least.denominator == 1 for least, most in values):
        exact = Fraction(math.lcm(*(int(least) for least, _ in values)))
        return (exact, exact)
    return (max(least for least, _ in values), None)


def number(tree, range_of):
    kind = tree[0]
    if kind == "number":
        return None if isinstance(tree[1], (bool, str)) else (Fraction(tree[1]), Fraction(tree[1]))
    if kind == "name":
        return range_of(tree[1])
    if kind == "negative":
        inner = number(tree[1], range_of)
        return None if inner is None else negated(inner)
    if kind == "call":
        values = [number(argument, range_of) for argument in tree[2]]
        return None if None in values else call(tree[1], values)
    if kind not in ("+", "-", "*", "/"):
        return None
    left, right = number(tree[1], range_of), number(tree[2], range_of)
    if left is None or right is None:
        return None
    if kind in ("+", "-"):
        return plus(left, right if kind == "+" else negated(right))
    return product(left, right) if kind == "*" else quotient(left, right)


def below(a, b, or_equal):
    """Whether all of a are below all of b (True), or none is."""
    if a[1] is not None and b[0] is not None and (a[1] < b[0] or (or_equal and a[1] == b[0])):
        return True
    if a[0] is not None and b[1] is not None and (a[0] > b[1] or (not or_equal and a[0] == b[1])):
        return False
    return None


def truth(tree, range_of):
    kind = tree[0]
    if kind == "not":
        inner = truth(tree[1], range_of)
        return None if inner is None else not inner
    if kind in ("and", "or"):
        sides = [truth(side, range_of) for side in tree[1:3]]
        decides = kind == "or"
        return decides if decides in sides else None if None in sides else not decides
    if kind == "name":
        value = range_of(tree[1])
        return bool(value[0]) if value is not None and value[0] is not None and value[0] == value[1] else None
    if kind != "compare":
        return tree[1] if kind == "number" and isinstance(tree[1], bool) else None
    sign, left, right = tree[1:]
    a, b = number(left, range_of), number(right, range_of)
    if a is None or b is None:
        return None
    if sign in ("==", "!="):
        if below(a, b, False) or below(b, a, False):
            return sign == "!="
        return sign == "==" if a[0] is not None and a[0] == a[1] == b[0] == b[1] else None
    if sign in MIRRORED:
        sign, a, b = MIRRORED[sign], b, a
    return below(a, b, sign == "<=")
