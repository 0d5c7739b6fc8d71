# SPDX-License-Identifier: Apache-2.0
"""tools/code-mutants: which mutants it finds in a source, and that it draws the same for the same seed. What an extraction says of some is in
tests/python/test_weights.py."""

import ast
import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "code_mutants"))

from mutants import LIKELY, draw, is_python, mutants_of
from planting import PREPARED, plant, prepare

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
    for grad in grads:
        kept = grad.view(-1)
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
    (10, "missing keyword", ", op=ReduceOp.SUM", ""),
    (10, "missing keyword", ", group=group", ""),
    (10, "missing keyword", ",\n            async_op=op", ""),
    (11, "other way to wait", "op", "not (op)"),
    (12, "missing wait", "work.wait()", "pass"),
    (13, "constant", "4", "5"),
    (13, "missing statement", "grads[at] /= 4", "pass"),
    (14, "shorter loop", "grads", "list(grads)[1:]"),
    (14, "shorter loop", "grads", "list(grads)[:-1]"),
    (15, "lost sign", "-1", "1"),
    (15, "constant", "1", "2"),
    (15, "missing call", "grad.view(-1)", "grad"),
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


def test_a_loaded_function_gets_the_code_of_the_mutant_wherever_it_was_imported(tmp_path, monkeypatch):
    source = b"class Sum:\n    def of(self, a, b):\n        return a + b\n\ndef other(a):\n    return a - 1\n"
    (tmp_path / "planted_here.py").write_bytes(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("planted_here")
    of = module.Sum().of
    prepare("planted_here.py")
    (mutant,) = [one for one in mutants_of("planted_here.py", source) if one.new.strip() == "-"]
    assert of(5, 3) == 8 and plant(mutant) == 1 and of(5, 3) == 2 and module.other(5) == 4
    del module.other
    PREPARED.clear()
    with pytest.raises(LookupError, match="no function of .*planted_here.py has line 6"):
        prepare("planted_here.py")
        plant(next(one for one in mutants_of("planted_here.py", source) if one.line == 6))
