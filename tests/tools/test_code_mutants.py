# SPDX-License-Identifier: Apache-2.0
"""tools/code-mutants: which mutants it finds in a source, and that it draws the same for the same seed. What an extraction says of some is in
tests/python/test_weights.py."""

import ast
import gc
import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "code_mutants"))

from mutants import LIKELY, draw, mutants_of
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
    assert text != SOURCE and text.count(b"\n") == SOURCE.count(b"\n")
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


STEP = b"def reduce(a, b):\n    return a + b\n\ndef scale(a):\n    return a - 1\n"


class Framework:
    name, files, losses, in_parts = "played", ("stepped_here.py",), {}, ()
    cases = {"one": 2, "other": 2}

    def load(self):
        importlib.import_module("stepped_here")


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """tools/code-mutants with a framework of two functions: with the script `other` ranks get what they make, with `one` what `reduce` makes alone."""
    specification = importlib.util.spec_from_file_location("code_mutants_tool", ROOT / "tools" / "code_mutants" / "__main__.py")
    main = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(main)
    (tmp_path / "stepped_here.py").write_bytes(STEP)
    monkeypatch.syspath_prepend(str(tmp_path))
    framework, cases = Framework(), importlib.import_module("cases")
    monkeypatch.setattr(cases, "SCRIPTS", tmp_path)
    (tmp_path / "played_step.py").write_text("")

    def load(frameworks):
        framework.load()
        prepare("stepped_here.py")

    def run(case, folder, noise=False, files=(), limit=60):
        module = sys.modules["stepped_here"]
        got = [module.reduce(5, 3), module.scale(5) if case.name == "other" else 4]
        lines = {("stepped_here.py", 2), ("stepped_here.py", 5)}
        return "same", "", [[[[float(one) for one in got]]]], (set(), lines) if files else None

    def extract(case, mutant, folder, ranks=None, jobs=1, limit=60):
        with open(tmp_path / "extracted", "a", encoding="utf-8") as file:
            file.write(case.name + "\n")
        return ("match", "") if mutant is None else ("mismatch", "wrong")

    for owner, name, value in ((main, "load", load), (main.running, "run", run), (main.extracting, "extract", extract), (main, "FRAMEWORKS", {"played": framework}),
                               (main.document, "FIGURES", tmp_path / "none.jsonl")):
        monkeypatch.setattr(owner, name, value)
    settings = {"framework": None, "file": None, "case": None, "each": 30, "most": 100, "minutes": 1, "seed": 1, "jobs": 2, "output": str(tmp_path / "out.jsonl"),
                "new": True, "changing": True, "run": True, "scripts": 1}
    yield lambda step, **more: getattr(main, step)(SimpleNamespace(**{**settings, **more}))
    del sys.modules["stepped_here"]
    PREPARED.clear()


def test_a_mutant_that_changes_nothing_meets_further_scripts_and_those_that_change_a_gradient_are_extracted(tool, tmp_path):
    rows = tool("measure", case=["one"])
    assert sorted((row["mutant"]["line"], row["runs"]) for row in rows) == [(2, "other"), (5, "same"), (5, "same")]
    assert not (tmp_path / "extracted").exists()
    # What has changed a gradient is not run again, and what changed nothing with the scripts that it has met, with another.
    assert tool("measure") == []
    again = tool("measure", scripts=2)
    assert sorted((row["mutant"]["line"], row["runs"], row["case"], row["tried"]) for row in again) == [(5, "other", "other", ["other"])] * 2
    assert tool("measure", scripts=2) == []
    # The extraction is of these three, after one of each script without a mutant, and is not made twice.
    rows = tool("extract_rest")
    assert sorted(row.get("extracted", "") for row in rows) == ["", "", "mismatch", "mismatch", "mismatch"]
    assert sorted((tmp_path / "extracted").read_text().split()) == ["one"] * 2 + ["other"] * 3
    assert tool("extract_rest") == rows and len((tmp_path / "extracted").read_text().split()) == 5
    assert all("extracted" in row for row in tool("extract_rest", changing=False))
    assert {json.loads(line)["ranks"] for line in (tmp_path / "out.jsonl").read_text().splitlines()} == {2}


def test_a_script_that_did_not_run_once_is_tried_the_next_time(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("code_mutants_main", ROOT / "tools" / "code_mutants" / "__main__.py")
    main = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(main)
    script = tmp_path / "script.py"
    script.write_text("pass\n", encoding="utf-8")
    case = SimpleNamespace(name="a", script=script, arguments=(), ranks=2, calls=None, framework=SimpleNamespace(name="f", files=[]))
    runs = iter([None, {"plain": 1}, {"plain": 2}])
    monkeypatch.setattr(main, "baseline", lambda case, folder: next(runs))
    assert main.baselines([case], tmp_path / "kept") == []
    assert main.baselines([case], tmp_path / "kept") == main.baselines([case], tmp_path / "kept") == [(case, {"plain": 1})]
    # With another version of what is installed it is run anew.
    monkeypatch.setattr(main, "installed", lambda: [("torch", "0")])
    assert main.baselines([case], tmp_path / "kept") == [(case, {"plain": 2})]


def loaded_tool(monkeypatch, **modules):
    """tools/code-mutants itself, with these in the place of modules of lockstep.extracting."""
    spec = importlib.util.spec_from_file_location("code_mutants_loaded", ROOT / "tools" / "code_mutants" / "__main__.py")
    main = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(main)
    monkeypatch.setitem(sys.modules, "lockstep.extracting", SimpleNamespace(**modules))
    return main


@pytest.fixture
def stepped(tmp_path, monkeypatch):
    (tmp_path / "stepped_here.py").write_bytes(STEP)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield mutants_of("stepped_here.py", STEP)
    del sys.modules["stepped_here"]
    PREPARED.clear()
    gc.unfreeze()


def test_what_is_loaded_twice_can_be_broken_still(stepped, monkeypatch):
    """As where ranks are run, and those that change a gradient are extracted by the same process: nothing that the first has frozen is found by a second search."""
    main = loaded_tool(monkeypatch, ranks=SimpleNamespace(load=lambda: None))
    for _ in range(2):
        main.load([Framework()])
        assert [plant(one) for one in stepped] == [1] * len(stepped)


def test_an_extraction_that_was_not_made_is_no_error_of_the_mutant(stepped, tmp_path, monkeypatch):
    ended = {"refused": lambda *_: os.write(2, b"a.py:1: UserWarning: old\nlockstep extract: rank 1: no gradient\nmore\n") and 2,
             "died": lambda *_: 1 // 0, "half": lambda *_: 1}
    main = loaded_tool(monkeypatch, ranks=SimpleNamespace(), __main__=SimpleNamespace(main=lambda *_: ended[outcome]()))
    case = SimpleNamespace(ranks=2, script="none.py", arguments=(), name="one", framework=Framework())
    Framework().load()
    outcome = "refused"
    assert main.extracting.extract(case, stepped[0], tmp_path) == ("error", "rank 1: no gradient\nmore")
    nowhere = SimpleNamespace(file="stepped_here.py", line=1, written=lambda text: text)
    for outcome, mutant, why in (("died", stepped[0], "status 1: ZeroDivisionError"), ("half", None, "status 1"), ("refused", nowhere, "status 1: LookupError: no function")):
        with pytest.raises(main.extracting.Unmade, match=why):
            main.extracting.extract(case, mutant, tmp_path)
