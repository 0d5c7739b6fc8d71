# SPDX-License-Identifier: Apache-2.0
"""Exact polynomials, the ways in which named coordinates can be equal, and functions of these, as a printed proof has them."""

import functools
import itertools
import re
from fractions import Fraction

TOKEN = re.compile(r"\s*(sum\([^()]*\)|[A-Za-z_][\w.]*(?:\[\d+\])?|\d+|[-+*/()])")


class WrongProof(Exception):
    pass


def demand(condition, *what):
    if not condition:
        raise WrongProof(" ".join(str(word) for word in what))


# Polynomials: {((variable, exponent), ...): coefficient}.


def constant(value):
    return {(): Fraction(value)} if value else {}


ZERO, ONE = constant(0), constant(1)


def variable(name):
    return {((name, 1),): Fraction(1)}


def plus(a, b, factor=1):
    result = dict(a)
    for powers, coefficient in b.items():
        value = result.get(powers, 0) + factor * coefficient
        if value:
            result[powers] = value
        else:
            result.pop(powers, None)
    return result


def times(a, b):
    if a == ONE or not b:
        return b
    if b == ONE or not a:
        return a
    result = {}
    for (left, x), (right, y) in itertools.product(a.items(), b.items()):
        exponents = dict(left)
        for name, exponent in right:
            exponents[name] = exponents.get(name, 0) + exponent
        powers = tuple(sorted((name, exponent) for name, exponent in exponents.items() if exponent))
        result = plus(result, {powers: x * y})
    return result


def inverse(a):
    demand(len(a) == 1, "cannot divide by", a)
    ((powers, coefficient),) = a.items()
    return {tuple((name, -exponent) for name, exponent in powers): 1 / coefficient}


@functools.cache
def parse(text):
    """A sum of products and quotients, such as "1/dp - 2*tokens/(3*dp*dp)"."""
    tokens = TOKEN.findall(text)
    demand(tokens and "".join(tokens).replace(" ", "") == text.replace(" ", ""), "not a number:", text)

    def factor():
        token = tokens.pop(0)
        if token == "(":
            inner = product()
            demand(tokens.pop(0) == ")", "not a number:", text)
            return inner
        return constant(int(token)) if token.isdigit() else variable(token)

    def product():
        result = factor()
        while tokens and tokens[0] in "*/":
            result = times(result, factor()) if tokens.pop(0) == "*" else times(result, inverse(factor()))
        return result

    result, sign = {}, 1
    if tokens and tokens[0] == "-":
        tokens.pop(0)
        sign = -1
    while True:
        result = plus(result, product(), sign)
        if not tokens:
            return result
        sign = {"+": 1, "-": -1}[tokens.pop(0)]


class Axis:
    """Names of coordinates on an axis, and every way in which they can be equal: a block number for each name."""

    def __init__(self, names, size, most):
        self.names = names
        self.number = {name: i for i, name in enumerate(self.names)}
        self.open = isinstance(size, str)
        self.size = variable(size) if self.open else constant(size)
        self.most = most if self.open else size  # None: there is no end
        # The rank, the contributor and the owners may be anywhere; every other name is a coordinate of its own.
        self.fixed = [i for i, name in enumerate(self.names)
                      if name not in ("rank", "contributor") and not name.startswith("owner ")]
        self.ways = [way for way in self.all_ways(len(self.names)) if self.exists(way)]
        # What is asked for again and again, thousands of times in a proof.
        self.read, self.moved, self.coordinates = map(functools.cache, (self.read, self.moved, self.coordinates))

    def all_ways(self, count):
        if count == 0:
            return [()]
        return [way + (block,) for way in self.all_ways(count - 1) for block in range(max(way, default=-1) + 2)]

    def exists(self, way):
        fixed = [way[i] for i in self.fixed]
        return len(set(fixed)) == len(fixed) and (self.most is None or max(way) < self.most)

    @staticmethod
    @functools.cache
    def numbered(way):
        """The same way, with blocks numbered by their first name."""
        numbers = {}
        return tuple(numbers.setdefault(block, len(numbers)) for block in way)

    def read(self, text):
        way = [None] * len(self.names)
        for block, names in enumerate(text.split(" | ")):
            for name in names.split(" = "):
                way[self.number[name]] = block
        demand(None not in way, "not all names are in", text)
        way = self.numbered(tuple(way))
        demand(way in self.ways, "there is no", text)
        return way

    def moved(self, way, name):
        """The rank where `name` is."""
        return self.numbered((way[self.number[name]], *way[1:]))

    def coordinates(self, way):
        """All coordinates that a rank can have while the others stay: how many of each kind, and the way that is."""
        others = sorted(set(way[1:]))
        result = [(ONE, self.numbered((block, *way[1:]))) for block in others]
        if self.most is None or len(others) < self.most:
            result.append((plus(self.size, constant(len(others)), -1), self.numbered((-1, *way[1:]))))
        return result


@functools.cache
def axis(names, size, most=None):
    """The classes of a proof have the same few."""
    return Axis(names, size, most)


class Function:
    """0 but at the points that rows name. A row speaks of some axes; the others do not matter to it."""

    def __init__(self, axes, rows):
        self.tables = {}
        for row in rows:
            names = tuple(name for name in row if name != "value")
            table = self.tables.setdefault(names, {})
            key = tuple(axes[name].read(row[name]) for name in names)
            demand(key not in table, "two rows for", row)
            table[key] = parse(row["value"])
        self.axes = {name for names in self.tables for name in names}

    def at(self, point):
        found = [table[key] for names, table in self.tables.items()
                 if (key := tuple(point[name] for name in names)) in table]
        demand(len(found) < 2, "two rows for", point)
        return found[0] if found else ZERO
