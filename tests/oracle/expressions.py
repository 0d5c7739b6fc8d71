# SPDX-License-Identifier: Apache-2.0
"""Expressions of the scenario language over exact rationals (docs/scenario-format.md, "Expressions")."""

import math
import re
from fractions import Fraction
from functools import lru_cache

AXES = ("tp", "cp", "sp", "dp", "pp", "ep", "etp", "edp", "dp_shard", "dp_replicate", "edp_shard", "edp_replicate")


class ScenarioError(Exception):
    """The scenario is not valid: the program's verdict is `error`."""


class Context:
    """What names mean: a mesh, a batch, and as far as they are known rank, optimizer step and micro-batch."""

    def __init__(self, mesh, batch, rank=None, step=None, micro_batch=None, names=None):
        self.mesh, self.batch = mesh, batch
        self.rank, self.step, self.micro_batch = rank, step, micro_batch
        self.names = names or {}


TOKEN = re.compile(
    r"\s*(?:(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|([A-Za-z_][A-Za-z_0-9]*(?:\.[A-Za-z_][A-Za-z_0-9]*)*)"
    r"|(==|!=|<=|>=|[-+*/()<>,]))"
)
COMPARISONS = ("==", "!=", "<=", ">=", "<", ">")


def tokenize(text):
    result, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = TOKEN.match(text, at)
        if not match:
            raise ScenarioError(f"no expression: {text!r} at {at}")
        number, name, sign = match.groups()
        result.append(("number", Fraction(number)) if number else ("name", name) if name else ("sign", sign))
        at = match.end()
    return result + [("end", None)]


class Parser:
    """or < and < not < one comparison < + - < * / < unary minus."""

    def __init__(self, text):
        self.tokens, self.at = tokenize(text), 0

    def next_is(self, *values):
        kind, value = self.tokens[self.at]
        return kind in ("sign", "name") and value in values

    def take(self):
        self.at += 1
        return self.tokens[self.at - 1]

    def need(self, sign):
        if not self.next_is(sign):
            raise ScenarioError(f"expected {sign!r}")
        self.take()

    def whole(self):
        tree = self.disjunction()
        if self.tokens[self.at][0] != "end":
            raise ScenarioError("text after the expression")
        return tree

    def disjunction(self):
        tree = self.conjunction()
        while self.next_is("or"):
            self.take()
            tree = ("or", tree, self.conjunction())
        return tree

    def conjunction(self):
        tree = self.negation()
        while self.next_is("and"):
            self.take()
            tree = ("and", tree, self.negation())
        return tree

    def negation(self):
        if self.next_is("not"):
            self.take()
            return ("not", self.negation())
        return self.comparison()

    def comparison(self):
        tree = self.sum()
        if self.next_is(*COMPARISONS):
            sign = self.take()[1]
            tree = ("compare", sign, tree, self.sum())
        return tree

    def sum(self):
        tree = self.product()
        while self.next_is("+", "-"):
            tree = (self.take()[1], tree, self.product())
        return tree

    def product(self):
        tree = self.unary()
        while self.next_is("*", "/"):
            tree = (self.take()[1], tree, self.unary())
        return tree

    def unary(self):
        if self.next_is("-"):
            self.take()
            return ("negative", self.unary())
        return self.atom()

    def atom(self):
        kind, value = self.take()
        if kind == "number":
            return ("number", value)
        if kind == "sign" and value == "(":
            tree = self.disjunction()
            self.need(")")
            return tree
        if kind != "name":
            raise ScenarioError(f"unexpected {value!r}")
        if value in ("true", "false"):
            return ("number", value == "true")
        if not self.next_is("("):
            return ("name", value)
        self.take()
        arguments = []
        while not self.next_is(")"):
            arguments.append(self.disjunction())
            if not self.next_is(")"):
                self.need(",")
        self.take()
        return ("call", value, arguments)


@lru_cache(maxsize=None)
def parse(text):
    return Parser(text).whole()


def evaluate(expression, context):
    """Value of a JSON number, truth value or expression text: a Fraction or a bool."""
    if isinstance(expression, bool):
        return expression
    if isinstance(expression, (int, Fraction)):
        return Fraction(expression)
    return value_of(parse(expression), context)


def number(expression, context):
    value = evaluate(expression, context)
    if isinstance(value, bool):
        raise ScenarioError(f"{expression!r} is no number")
    return value


def truth(expression, context):
    value = evaluate(expression, context)
    if not isinstance(value, bool):
        raise ScenarioError(f"{expression!r} is no truth value")
    return value


def whole_number(expression, context, least):
    value = number(expression, context)
    if value.denominator != 1 or value < least:
        raise ScenarioError(f"{expression!r} must be a whole number of at least {least}")
    return int(value)


def value_of(tree, context):
    kind = tree[0]
    if kind == "number":
        return tree[1]
    if kind == "name":
        return value_of_name(tree[1], context)
    if kind == "call":
        return value_of_call(tree[1], tree[2], context)
    if kind == "or":
        return value_of(tree[1], context) or value_of(tree[2], context)
    if kind == "and":
        return value_of(tree[1], context) and value_of(tree[2], context)
    if kind == "not":
        return not value_of(tree[1], context)
    if kind == "negative":
        return -value_of(tree[1], context)
    if kind == "compare":
        return compare(tree, context)
    left, right = value_of(tree[1], context), value_of(tree[2], context)
    if kind == "+":
        return left + right
    if kind == "-":
        return left - right
    if kind == "*":
        return left * right
    if right == 0:
        raise ScenarioError("division by 0")
    return left / right


def value_of_name(name, context):
    if name in context.names:
        return context.names[name]
    if name in AXES:
        return Fraction(context.mesh.size[name])
    if name == "world":
        return Fraction(context.mesh.world)
    if name in ("pipeline_groups_agree", "instance_groups_agree"):
        return getattr(context.mesh, name)
    if name in ("sequence_parallel", "virtual_stages"):
        value = context.mesh.layout.get(name, False if name == "sequence_parallel" else 1)
        return value if isinstance(value, bool) else Fraction(value)
    if name == "steps":
        return Fraction(context.batch.steps)
    if name.startswith("rank."):
        if context.rank is None:
            raise ScenarioError(f"no rank here: {name}")
        return Fraction(context.mesh.coordinates[context.rank][name[5:]])
    if context.step is None:
        raise ScenarioError(f"unknown name {name}")
    if name == "step":
        return Fraction(context.step)
    if name == "micro_batches":
        return Fraction(context.batch.micro_batches(context.step))
    if context.micro_batch is None:
        raise ScenarioError(f"{name} has no meaning outside `each`")
    if name == "micro_batch":
        return Fraction(context.micro_batch)
    if name == "tokens" or name.startswith("tokens."):
        use = name[7:] or "main"
        here = context.mesh.coordinates[context.rank]
        return Fraction(context.batch.tokens_at(use, context.step, context.micro_batch, here))
    raise ScenarioError(f"unknown name {name}")


def value_of_call(function, arguments, context):
    if function == "sum":
        return sum_of_tokens(arguments, context)
    values = [value_of(argument, context) for argument in arguments]
    if function == "min":
        return min(values)
    if function == "max":
        return max(values)
    if function == "lcm":
        return Fraction(math.lcm(*(int(value) for value in values)))
    if function == "floor":
        return Fraction(math.floor(values[0]))
    if function == "ceil":
        return Fraction(math.ceil(values[0]))
    raise ScenarioError(f"unknown function {function}")


def sum_of_tokens(arguments, context):
    """sum(tokens, AXES…, micro_batch): over the pieces along these axes, all else as on this rank."""
    names = [argument[1] for argument in arguments]
    use, axes = names[0][7:] or "main", set(names[1:])
    if "micro_batch" in axes:
        micro_batches = range(context.batch.micro_batches(context.step))
    elif context.micro_batch is None:
        raise ScenarioError("a sum of tokens outside `each` needs micro_batch")
    else:
        micro_batches = [context.micro_batch]
    here, size = context.mesh.coordinates[context.rank], context.mesh.size
    choices = {axis: range(size[axis]) if axis in axes else [here[axis]] for axis in ("dp", "cp", "sp")}
    return Fraction(
        sum(
            context.batch.tokens_at(use, context.step, m, {"dp": d, "cp": c, "sp": s})
            for m in micro_batches
            for d in choices["dp"]
            for c in choices["cp"]
            for s in choices["sp"]
        )
    )


def compare(tree, context):
    _, sign, left, right = tree
    ends = ("first", "last")
    if right[0] == "name" and right[1] in ends:
        a, b = value_of(left, context), end_of(left, right[1], context)
    elif left[0] == "name" and left[1] in ends:
        a, b = end_of(right, left[1], context), value_of(right, context)
    else:
        a, b = value_of(left, context), value_of(right, context)
    if isinstance(a, bool) != isinstance(b, bool):
        raise ScenarioError("a number is compared with a truth value")
    return {"==": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[sign]


def end_of(tree, end, context):
    """`first` and `last` are the ends of what they are compared with."""
    name = tree[1] if tree[0] == "name" else ""
    if name.startswith("rank."):
        count = context.mesh.size[name[5:]]
    elif name == "micro_batch":
        count = context.batch.micro_batches(context.step)
    elif name == "step":
        count = context.batch.steps
    else:
        raise ScenarioError(f"{end} needs something with ends to be compared with")
    return Fraction(0 if end == "first" else count - 1)
