# SPDX-License-Identifier: Apache-2.0
"""Finds the places at which a Python source can be broken, with its syntax tree, and writes sources with one break each. Lines stay where they are, so that
what is said of a line of a mutant is said of that line of the framework."""

import ast
import random
from dataclasses import dataclass

COMPARISONS = {ast.Lt: ("<", ["<=", ">="]), ast.LtE: ("<=", ["<", ">"]), ast.Gt: (">", [">=", "<="]), ast.GtE: (">=", [">", "<"]), ast.Eq: ("==", ["!="]),
               ast.NotEq: ("!=", ["=="]), ast.Is: ("is", ["is not"]), ast.IsNot: ("is not", ["is"]), ast.In: ("in", ["not in"]), ast.NotIn: ("not in", ["in"])}
ARITHMETIC = {ast.Add: ("+", ["-"]), ast.Sub: ("-", ["+"]), ast.Mult: ("*", ["/"]), ast.Div: ("/", ["*"]), ast.FloorDiv: ("//", ["*"]), ast.Mod: ("%", ["//"])}
LOGIC = {ast.And: ("and", "or"), ast.Or: ("or", "and")}
BOUNDS = {"min": "max", "max": "min", "any": "all", "all": "any"}
REDUCTIONS = {"SUM": ["AVG", "MAX"], "AVG": ["SUM", "MAX"], "MAX": ["SUM"], "MIN": ["SUM"]}
COLLECTIVES = ("all_reduce", "allreduce", "reduce", "reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_base", "all_gather", "all_gather_into_tensor",
               "allgather_fn", "reduce_scatter_fn", "broadcast", "all_to_all", "all_to_all_single", "send", "recv", "barrier", "reduce_scatter_comm", "all_gather_comm",
               "reduce_scatter_coalesced", "all_to_all_quant_reduce", "dist_reduce_scatter_func", "dist_all_gather_func")
# Methods whose result takes the place of the tensor.
OF_TENSORS = ("to", "type", "float", "clone", "detach", "view", "view_as", "reshape", "flatten", "contiguous", "narrow", "chunk", "t", "sum", "mul", "div", "div_", "mul_", "add_")
# Of these a third change gradients, of all others a tenth: most raise an error or change nothing.
LIKELY = ("reduction", "missing collective", "missing wait", "other way to wait", "other group", "range", "arithmetic", "missing statement", "comparison",
          "shorter loop", "missing call", "missing keyword")
# Left out: without these only time, memory, words or a refusal of what nobody does differ.
NO_LOSS = ("logger", "logging", "log_dist", "log_rank", "print", "warn", "record_function", "nvtx", "timers", "see_memory_usage", "raise ", "assert ",
           "empty_cache", "range_push", "range_pop", "print_rank_0", "instrument", "_raise_assert")


@dataclass(frozen=True)
class Mutant:
    file: str  # of the framework, below the folder of its packages
    line: int
    kind: str
    begin: int  # bytes of the source that are replaced
    end: int
    old: str
    new: str

    def written(self, text):
        """The source with it. Lines that go are left empty behind it."""
        new = self.new.encode()
        return text[:self.begin] + new + b"\n" * (text.count(b"\n", self.begin, self.end) - new.count(b"\n")) + text[self.end:]

    def said(self):
        old, new = (" ".join(side.split()) for side in (self.old, self.new))
        return "without `%s`" % old.lstrip(", ") if new in ("pass", "") and self.kind.startswith("missing") else "`%s` becomes `%s`" % (old, new)


def called(node):
    """The name of what is called."""
    if isinstance(node, ast.Call):
        return getattr(node.func, "attr", getattr(node.func, "id", ""))
    return ""


class Finder(ast.NodeVisitor):
    """Within functions alone."""

    def __init__(self, file, text):
        self.file, self.text = file, text
        self.found, self.depth = [], 0
        self.starts = [0]
        for line in text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def place(self, line, column):
        return self.starts[line - 1] + column

    def span(self, node):
        return self.place(node.lineno, node.col_offset), self.place(node.end_lineno, node.end_col_offset)

    def of(self, node):
        begin, end = self.span(node)
        return self.text[begin:end].decode()

    def add(self, kind, node, new, begin=None, end=None):
        first, last = self.span(node)
        begin, end = first if begin is None else begin, last if end is None else end
        old = self.text[begin:end].decode()
        if old != new:
            self.found.append(Mutant(self.file, self.text.count(b"\n", 0, begin) + 1, kind, begin, end, old, new))

    def between(self, kind, left, right, old, others):
        """Other operators between two expressions."""
        begin, end = self.span(left)[1], self.span(right)[0]
        gap = self.text[begin:end].decode()
        if gap.count(old) == 1 and "\n" not in gap:
            for other in others:
                self.found.append(Mutant(self.file, self.text.count(b"\n", 0, begin) + 1, kind, begin, end, gap, gap.replace(old, other)))

    def visit(self, node):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            self.depth += 1  # not what it is decorated with, its defaults and annotations
            for child in node.body if isinstance(node.body, list) else [node.body]:
                self.visit(child)
            self.depth -= 1
            return
        if isinstance(node, (ast.Assert, ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)):
            return
        if isinstance(node, ast.stmt) and self.depth and not isinstance(node, (ast.If, ast.For, ast.While, ast.With, ast.Try)) \
                and any(word in self.of(node) for word in NO_LOSS):
            return
        if self.depth:
            getattr(self, "on_" + type(node).__name__, lambda node: None)(node)
        if isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self.visit(node.value)
            return
        self.generic_visit(node)

    def on_Compare(self, node):
        if len(node.ops) == 1:
            word, others = COMPARISONS[type(node.ops[0])]
            self.between("comparison", node.left, node.comparators[0], word, others)

    def on_BoolOp(self, node):
        for left, right in zip(node.values, node.values[1:]):
            word, other = LOGIC[type(node.op)]
            self.between("logic", left, right, word, [other])

    def on_BinOp(self, node):
        if type(node.op) in ARITHMETIC and not isinstance(node.left, ast.JoinedStr):
            word, others = ARITHMETIC[type(node.op)]
            self.between("arithmetic", node.left, node.right, word, others)

    def on_Constant(self, node):
        if isinstance(node.value, bool):
            self.add("constant", node, str(not node.value))
        elif isinstance(node.value, int):
            self.add("constant", node, str(node.value + 1))
        elif isinstance(node.value, float):
            self.add("constant", node, repr(node.value * 2 or 1.0))

    def condition(self, test):
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self.add("negated condition", test, "(%s)" % self.of(test.operand))
        elif not isinstance(test, ast.Constant):
            self.add("negated condition", test, "(not (%s))" % self.of(test))

    def on_If(self, node):
        self.condition(node.test)

    on_While = on_IfExp = on_If

    def on_comprehension(self, node):
        for test in node.ifs:
            self.condition(test)

    def on_Expr(self, node):
        if isinstance(node.value, ast.Call):
            self.add("missing collective" if called(node.value) in COLLECTIVES else "missing wait" if called(node.value) == "wait" else "missing statement", node, "pass")

    def on_Assign(self, node):
        if called(node.value) in COLLECTIVES:
            self.add("missing collective", node.value, "None")
        if any(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets):
            self.add("missing statement", node, "pass")

    def on_AugAssign(self, node):
        self.add("missing statement", node, "pass")

    def on_Delete(self, node):
        if any(isinstance(target, ast.Subscript) for target in node.targets):
            self.add("missing statement", node, "pass")

    def on_Continue(self, node):
        self.add("loop", node, "break")

    def on_Break(self, node):
        self.add("loop", node, "continue")

    def on_Attribute(self, node):
        if node.attr in REDUCTIONS and "ReduceOp" in self.of(node.value):
            for other in REDUCTIONS[node.attr]:
                self.add("reduction", node, "%s.%s" % (self.of(node.value), other))

    def on_For(self, node):
        """One that is off by one: without the first, without the last."""
        if called(node.iter) != "range" and not self.of(node.iter).startswith("("):
            for part in ("[1:]", "[:-1]"):
                self.add("shorter loop", node.iter, "list(%s)%s" % (self.of(node.iter), part))

    def on_UnaryOp(self, node):
        if isinstance(node.op, ast.USub):
            self.add("lost sign", node, self.of(node.operand))

    def on_Slice(self, node):
        for bound in (node.lower, node.upper):
            if bound is not None:
                self.add("range", bound, "(%s) + 1" % self.of(bound))
                self.add("range", bound, "")

    def on_Call(self, node):
        name = called(node)
        if name in BOUNDS and isinstance(node.func, ast.Name):
            self.add("other bound", node.func, BOUNDS[name])
        if name == "range" and isinstance(node.func, ast.Name):
            self.add("range", node.args[-1 if len(node.args) < 3 else 1], "(%s) - 1" % self.of(node.args[-1 if len(node.args) < 3 else 1]))
        for one, other in zip(node.args, node.args[1:]):
            if self.of(one) != self.of(other) and not isinstance(one, ast.Starred) and not isinstance(other, ast.Starred) \
                    and name not in ("isinstance", "hasattr", "getattr", "cast", "zip", "setattr", "max", "min"):
                begin, end = self.span(one)[0], self.span(other)[1]
                between = self.text[self.span(one)[1]:self.span(other)[0]].decode()
                self.add("swapped arguments", node, self.of(other) + between + self.of(one), begin, end)
        if name in OF_TENSORS and isinstance(node.func, ast.Attribute):
            self.add("missing call", node, self.of(node.func.value))
        if len(node.args) + len(node.keywords) > 1:
            for keyword in node.keywords:
                self.without_keyword(node, keyword)
        for keyword in node.keywords:
            if keyword.arg in ("group", "process_group", "pg") and self.of(keyword.value) != "None":
                self.add("other group", keyword.value, "None")
            elif keyword.arg == "async_op" and not isinstance(keyword.value, ast.Constant):
                self.add("other way to wait", keyword.value, "not (%s)" % self.of(keyword.value))

    def without_keyword(self, node, keyword):
        """The call with what the parameter is by default."""
        before = [self.span(one)[1] for one in (*node.args, *node.keywords) if self.span(one)[1] <= self.span(keyword)[0]]
        begin, end = max(before, default=self.span(keyword)[0]), self.span(keyword)[1]
        if before and keyword.arg and not isinstance(node.args[-1] if node.args else None, ast.GeneratorExp):
            self.add("missing keyword", keyword, "", begin, end)


def mutants_of(file, text):
    """All; some are no Python, such as an expression that goes on in the next line."""
    finder = Finder(file, text)
    finder.visit(ast.parse(text))
    return finder.found


def draw(found, training, before, seed):
    """Those on these lines, in an order drawn with the seed: first those on lines that training runs, then those that were run `before` alone, which make what
    training needs, and where most breaks end in an error; of each first those of kinds of which more change gradients (LIKELY); of these and of the others as many
    of one line as of another."""
    found = sorted(found, key=lambda one: (one.begin, one.end, one.kind, one.new))
    generator = random.Random("%s %d" % (found[0].file if found else "", seed))
    chosen = []
    for lines in (training, before):
        for likely in (True, False):
            chosen += by_lines([one for one in found if one.line in lines and (one.kind in LIKELY) == likely], generator)
    return chosen


def by_lines(found, generator):
    of_line = {}
    for one in found:
        of_line.setdefault(one.line, []).append(one)
    for those in of_line.values():
        generator.shuffle(those)
        those.sort(key=lambda one: one.kind != "swapped arguments")  # last of all: most of them are of two types, and end at once
    chosen = []
    while of_line:
        round_ = sorted(of_line)
        generator.shuffle(round_)
        for line in round_:
            chosen.append(of_line[line].pop())
            if not of_line[line]:
                del of_line[line]
    return chosen
