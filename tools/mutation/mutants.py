# SPDX-License-Identifier: Apache-2.0
"""Finds the places at which a C++ source can be broken, with Clang's syntax tree, and writes sources that hold many
mutants at once: `a < b` becomes `(mutant(7) ? a <= b : a < b)`, so that one build serves all of them."""

from dataclasses import dataclass

import clang.cindex as clang
from clang.cindex import CursorKind as Kind

COMPARISONS = {"<": ["<=", ">"], "<=": ["<", ">"], ">": [">=", "<"], ">=": [">", "<"], "==": ["!="], "!=": ["=="]}
LOGIC = {"&&": ["||"], "||": ["&&"]}
ARITHMETIC = {"+": ["-"], "-": ["+"], "*": ["/", "+"], "/": ["*"], "%": ["/"], "&": ["|"], "|": ["&"], "^": ["|"],
              "<<": [">>"], ">>": ["<<"]}
ASSIGNMENTS = {"+=": ["-=", "="], "-=": ["+=", "="], "*=": ["+="], "/=": ["*="], "|=": ["&="], "^=": ["|="]}
# What has to be a constant, or is no code that runs.
OPAQUE = {Kind.STATIC_ASSERT, Kind.ENUM_DECL, Kind.TEMPLATE_TYPE_PARAMETER, Kind.TEMPLATE_NON_TYPE_PARAMETER,
          Kind.PARM_DECL, Kind.FIELD_DECL}
# Left out: without these only time or memory differ, or a broken invariant is not reported as one.
NO_LOSS = ("reserve(", "shrink_to_fit(", "throw InternalError", "pragma", "assert(")
BOUNDS = {"std::min(": "std::max(", "std::max(": "std::min("}
NEWLINE = b"\n"
SHORT = 8  # of what has at most so many characters a description shows the line
# Functions whose arguments mean the same in any order.
SYMMETRIC = ("min", "max", "lcm", "gcd", "unite", "intersect")


@dataclass
class Mutant:
    file: str  # relative to the root
    line: int
    kind: str
    begin: int  # bytes of the source that are replaced; equal for an insertion
    end: int
    old: str
    new: str
    statement: bool = False  # `new` stands before a statement; else it is another expression
    id: int = 0
    function: str = ""  # whose arguments are swapped
    code: str = ""  # the line around a word so short that it may stand elsewhere in the file

    def written(self):
        if self.statement:
            return f"if (!mutant({self.id})) "
        # `x` and `!x` need not have one type, and the other's conversion would change what is right.
        old, new = ((f"static_cast<bool>({side})" for side in (self.old, self.new)) if self.is_truth()
                    else (self.old, self.new))
        return f"(mutant({self.id}) ? {new} : {old})"

    def is_truth(self):
        return self.kind == "negated condition" or (self.kind == "lost sign" and self.old.startswith("!"))


def kind_of(cursor):
    """None for what the binding has no name for, such as a requires-expression of C++20."""
    try:
        return cursor.kind
    except ValueError:
        return None


def is_expression(cursor):
    kind = kind_of(cursor)
    return kind is not None and kind.is_expression()


class Finder:
    def __init__(self, file, text):
        self.file = file
        self.text = text  # bytes
        self.found = []

    def slice(self, begin, end):
        return self.text[begin:end].decode()

    def of(self, cursor):
        return self.slice(cursor.extent.start.offset, cursor.extent.end.offset)

    def add(self, kind, begin, end, new, statement=False, function=""):
        old = self.slice(begin, end)
        if "//" in old or "#" in old or any(word in old for word in NO_LOSS):
            return
        line = self.text.count(b"\n", 0, begin) + 1
        old, new = " ".join(old.split("\n")), " ".join(new.split("\n"))
        code = self.around(begin, old) if len(old) <= SHORT else ""
        if statement:
            self.found.append(Mutant(self.file, line, kind, begin, begin, old, "", True, code=code))
        else:
            self.found.append(Mutant(self.file, line, kind, begin, end, old, new, function=function, code=code))

    def around(self, at, old):
        """The line of a place, and the one before where it holds nothing else."""
        line_begin = self.text.rfind(NEWLINE, 0, at) + 1
        line = self.slice(line_begin, self.text.find(NEWLINE, at)).strip()
        if line != old + ";":
            return line
        return f"{self.slice(self.text.rfind(NEWLINE, 0, line_begin - 1) + 1, line_begin).strip()} {line}"

    def replace(self, kind, cursor, new, function=""):
        self.add(kind, cursor.extent.start.offset, cursor.extent.end.offset, new, function=function)

    def operator(self, cursor, left, right):
        """`left OP right` with another operator."""
        begin, end = left.extent.end.offset, right.extent.start.offset
        operator = self.slice(begin, end).strip()
        numbers = all(is_number(side.type) for side in (left, right))
        for kind, table in (("comparison", COMPARISONS), ("logic", LOGIC), ("arithmetic", ARITHMETIC),
                            ("assignment", ASSIGNMENTS)):
            if kind in ("arithmetic", "assignment") and not numbers:
                continue
            if operator in table:
                for other in table[operator]:
                    self.replace(kind, cursor, f"{self.of(left)} {other} {self.of(right)}")

    def is_awaited(self, cursor):
        """GCC 12 makes the temporaries of both sides of a conditional that a `co_await` waits for, and so moves from what is
        moved in the side that is not chosen."""
        begin, end = cursor.extent.start.offset, cursor.extent.end.offset
        statement = max(self.text.rfind(edge, 0, begin) for edge in (b";", b"{", b"}"))
        return b"co_await" in self.text[statement + 1 : self.text.find(b";", end)]

    def call(self, cursor):
        if self.is_awaited(cursor):
            return
        arguments = [a for a in cursor.get_arguments() if a is not None and a.extent.start.offset < a.extent.end.offset]
        for a, b in zip(arguments, arguments[1:]):
            if a.type.get_canonical().spelling != b.type.get_canonical().spelling or self.of(a) == self.of(b):
                continue
            begin, end = cursor.extent.start.offset, cursor.extent.end.offset
            first, second = a.extent, b.extent
            swapped = (self.slice(begin, first.start.offset) + self.of(b)
                       + self.slice(first.end.offset, second.start.offset) + self.of(a)
                       + self.slice(second.end.offset, end))
            self.replace("swapped arguments", cursor, swapped, cursor.spelling)
        text = self.of(cursor)
        for name, other in BOUNDS.items():
            if text.startswith(name):
                self.replace("other bound", cursor, other + text[len(name):])

    def visit(self, cursor):
        kind = kind_of(cursor)
        if kind is None:
            return
        children = list(cursor.get_children())
        if kind in OPAQUE or (kind == Kind.VAR_DECL and "constexpr" in self.of(cursor)):
            return
        if kind in (Kind.FUNCTION_DECL, Kind.CXX_METHOD) and "constexpr" in self.of(cursor).split("(")[0]:
            return
        if kind in (Kind.BINARY_OPERATOR, Kind.COMPOUND_ASSIGNMENT_OPERATOR) and len(children) == 2:
            self.operator(cursor, *children)
        elif kind == Kind.CALL_EXPR and cursor.spelling.startswith("operator") and len(children) == 3:
            self.operator(cursor, children[0], children[2])
        elif kind == Kind.CALL_EXPR and children and self.of(cursor).endswith(")"):
            self.call(cursor)
        elif kind in (Kind.IF_STMT, Kind.CONDITIONAL_OPERATOR) and children and is_expression(children[0]):
            self.replace("negated condition", children[0], f"!({self.of(children[0])})")
        elif kind == Kind.UNARY_OPERATOR and self.of(cursor)[:1] in "!-" and self.of(cursor)[1:2] != "=":  # `a != b` may be `!(a == b)`
            self.replace("lost sign", cursor, self.of(cursor)[1:])
        elif kind == Kind.INTEGER_LITERAL and self.of(cursor).isdigit():
            self.replace("constant", cursor, f"{self.of(cursor)} + 1")
            if self.of(cursor) != "0":
                self.replace("constant", cursor, f"{self.of(cursor)} - 1")
        elif kind == Kind.CXX_BOOL_LITERAL_EXPR:
            self.replace("constant", cursor, {"true": "false"}.get(self.of(cursor), "true"))
        if kind == Kind.CASE_STMT:
            children = children[1:]  # the label is a constant
        if kind == Kind.COMPOUND_STMT:
            for child in children:
                simple = is_expression(child) or kind_of(child) in (Kind.CONTINUE_STMT, Kind.BREAK_STMT)
                if simple or (kind_of(child) == Kind.RETURN_STMT and not list(child.get_children())):
                    self.add("missing statement", child.extent.start.offset, child.extent.end.offset, "", True)
        for child in children:
            self.visit(child)


def is_number(kind):
    spelling = kind.get_canonical().spelling.replace("const ", "").replace(" &", "")
    return spelling in ("int", "long", "unsigned long", "unsigned int", "unsigned char", "unsigned short", "float",
                        "double", "<dependent type>", "lockstep::Rational") or "Value" in spelling


def find(root, unit, files, arguments):
    """All mutants of `files`, sources and headers relative to the root, that stand in a source or are included by it."""
    unit = clang.Index.create().parse(str(unit), args=arguments)
    errors = [d for d in unit.diagnostics if d.severity >= clang.Diagnostic.Error]
    if errors:
        raise RuntimeError(f"{errors[0].location}: clang says {errors[0].spelling}")
    finders = {str(root / name): Finder(name, (root / name).read_bytes()) for name in files}
    visit_declarations(unit.cursor, finders)
    return [mutant for finder in finders.values() for mutant in finder.found]


def visit_declarations(cursor, finders):
    for child in cursor.get_children():
        finder = child.location.file and finders.get(child.location.file.name)
        if not finder:
            continue
        if kind_of(child) in (Kind.NAMESPACE, Kind.CLASS_DECL, Kind.STRUCT_DECL, Kind.CLASS_TEMPLATE, Kind.LINKAGE_SPEC):
            visit_declarations(child, finders)
        else:
            finder.visit(child)


def identity(mutant):
    return (mutant.file, mutant.kind, mutant.begin, mutant.end, mutant.new)


def apart(mutant, chosen):
    """Neither of two mutants stands in the text that the other replaces, and no place is taken twice."""
    return all(mutant.end < other.begin or other.end < mutant.begin for other in chosen)


def write(text, mutants):
    """A source with all of the mutants, and for each its lines there: {id: (first, last)}."""
    pieces, lines, at = [], {}, 0
    line = 1
    for mutant in sorted(mutants, key=lambda m: m.begin):
        before = text[at : mutant.begin].decode()
        pieces += [before, mutant.written()]
        line += before.count("\n")
        lines[mutant.id] = (line, line)
        at = mutant.end
    pieces.append(text[at:].decode())
    return "".join(pieces), lines
