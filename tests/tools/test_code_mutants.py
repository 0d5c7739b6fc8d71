# SPDX-License-Identifier: Apache-2.0
"""tools/code-mutants: which mutants it finds in a source, and that it draws the same for the same seed. What an extraction says of some is in
tests/python/test_weights.py."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "code_mutants"))

from mutants import LIKELY, draw, is_python, mutants_of

SOURCE = b'''"""Nothing here is broken: 1 + 1."""
LIMIT = 1 + 1

def reduce(grads, group, op=1 + 1):
    assert grads, "without any"
    for at in range(len(grads)):
        if grads[at] is None:
            continue
        work = dist.all_reduce(
            grads[at], op=ReduceOp.SUM, group=group,
            async_op=op)
        work.wait()
        grads[at] /= 4
    logger.info("done %d" % (2 + 2))
'''
FOUND = [
    (6, "range", "len(grads)", "(len(grads)) - 1"),
    (7, "comparison", " is ", " is not "),
    (7, "negated condition", "grads[at] is None", "(not (grads[at] is None))"),
    (8, "loop", "continue", "break"),
    (10, "other group", "group", "None"),
    (10, "reduction", "ReduceOp.SUM", "ReduceOp.AVG"),
    (10, "reduction", "ReduceOp.SUM", "ReduceOp.MAX"),
    (11, "other way to wait", "op", "not (op)"),
    (12, "missing wait", "work.wait()", "pass"),
    (13, "constant", "4", "5"),
    (13, "missing statement", "grads[at] /= 4", "pass"),
]


def test_breaks_are_found_where_code_runs_that_may_matter():
    found = [(one.line, one.kind, one.old, one.new) for one in mutants_of("a.py", SOURCE) if one.kind != "missing collective"]
    assert sorted(found) == sorted(FOUND)
    (call,) = [one for one in mutants_of("a.py", SOURCE) if one.kind == "missing collective"]
    assert call.line == 9 and call.new == "None" and call.old.startswith("dist.all_reduce(")


@pytest.mark.parametrize("mutant", mutants_of("a.py", SOURCE), ids=lambda one: "%d %s" % (one.line, one.kind))
def test_lines_stay_where_they_are(mutant):
    text = mutant.written(SOURCE)
    assert is_python(mutant, SOURCE) and text != SOURCE and text.count(b"\n") == SOURCE.count(b"\n")
    assert ast.unparse(ast.parse(text)) != ast.unparse(ast.parse(SOURCE))


def test_the_same_seed_draws_the_same_and_as_many_of_one_line_as_of_another():
    found = mutants_of("a.py", SOURCE)
    drawn = draw(found, {7, 10, 12}, set(), 1)
    assert drawn == draw(found[::-1], {7, 10, 12}, set(), 1) != draw(found, {7, 10, 12}, set(), 2)
    assert sorted(one.line for one in drawn[:3]) == [7, 10, 12] and {one.line for one in drawn} == {7, 10, 12}
    # Kinds of which more change gradients come first.
    likely = [one.kind in LIKELY for one in draw(found, set(range(30)), set(), 1)]
    assert likely == sorted(likely, reverse=True) and True in likely and False in likely
    # And what training runs before what only makes what it needs.
    lines = [one.line for one in draw(found, {10, 12}, {7}, 1)]
    assert 7 in lines and 7 not in lines[:lines.index(7)] and set(lines[lines.index(7):]) == {7}
