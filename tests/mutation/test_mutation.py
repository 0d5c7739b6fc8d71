# SPDX-License-Identifier: Apache-2.0
"""tools/mutate on a source of a few lines: it finds the mutants, and one program behaves as the chosen one."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "mutation"

SOURCE = """\
#include <algorithm>
#include <cstdio>
int limit(int value, int most) {
  if (value < most) return std::max(value, value);  // and not more
  return most;
}
int main() {
  int sum = 2;
  sum += 3;
  std::printf("%d %d", limit(1, 5), sum);
  while (sum < 20) {
    ++sum;
    break;
  }
}
"""

AWAITING = """\
#include <coroutine>
struct Done {
  struct promise_type {
    Done get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() {}
  };
};
std::suspend_never wait(int a, int b) { return {}; }
Done waits(int x, int y) {
  co_await wait(x, y);
  wait(y, x);
}
"""

FIND = """
import dataclasses, json, pathlib, sys
sys.path.insert(0, sys.argv[1])
import mutants
folder = pathlib.Path(sys.argv[2])
found = mutants.find(folder, folder / "small.cpp", ["small.cpp"], ["-std=c++20"])
chosen = []
for mutant in found:
    if mutants.apart(mutant, chosen):
        mutant.id = len(chosen) + 1
        chosen.append(mutant)
text, lines = mutants.write((folder / "small.cpp").read_bytes(), chosen)
(folder / "mutated.cpp").write_text(text)
print(json.dumps([[dataclasses.asdict(m) for m in some] for some in (found, chosen)]))
"""

CHOOSE = """
import importlib.util, json, sys
sys.path.insert(0, sys.argv[1])
spec = importlib.util.spec_from_file_location("tool", sys.argv[1] + "/__main__.py")
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)
from mutants import Mutant
def mutants(folder, of_a=90):
    return [Mutant(f"src/{folder}/{file}", 1, "constant", 10 * i, 10 * i + 1, "1", "2")
            for file, count in (("a", of_a), ("b", 9), ("c", 2)) for i in range(count)]
draws = [({"mesh": mutants("mesh")}, 1), ({"mesh": mutants("mesh")}, 2),
         ({"symbolic/parametric": mutants("symbolic/parametric"), "mesh": mutants("mesh")}, 1),
         ({"mesh": mutants("mesh", 12)}, 1)]
drawn = [tool.choose_each(found, 14, seed) for found, seed in draws]
some = drawn[0]["mesh"]
print(json.dumps({"draws": [[(m.file, m.begin, m.id) for of_folder in draw.values() for m in of_folder] for draw in drawn],
                  "first": [[[m.id for m in kept], dropped] for kept, dropped in (
                      tool.first_of_each({"mesh": some}, of, 5) for of in (some, some[:1] + some[2:], some[:4]))],
                  "ids": [m.id for m in some]}))
"""

DROP = """
import json, pathlib, sys
sys.path.insert(0, sys.argv[1])
from build import Build
from mutants import Mutant
build = Build.__new__(Build)
build.root, build.jobs, build.units = pathlib.Path(sys.argv[2]), 1, ["one", "two"]
build.out = build.root / "out"
header = build.out / "source" / "src" / "mesh" / "a.h"
def compile_one(unit, mutated, digest):
    return f"{header}:2:9: error: no constant" if "mutant(2)" in header.read_text() else None
build.compile_one = compile_one
chosen = [Mutant("src/mesh/a.h", line, "constant", begin, begin + 1, "1", "2", id=line) for line, begin in ((1, 8), (2, 19))]
print(json.dumps([mutant.id for mutant in build.compile(chosen)]))
"""

PAGE = """
import json, sys
sys.path.insert(0, sys.argv[1])
import document
from tests import INNER, LONGEST, OUTER
figures, reasons = document.read_figures(), document.read_reasons()
one = {"mutants": 40, "caught": 36, "survivors": [{"mutant": "a"}, {"mutant": "b"}, {"mutant": "c"}, {"mutant": "d"}]}
two = {**one, "caught": 35, "survivors": [*one["survivors"], {"mutant": "e"}]}
beside = {"seed": 2, "mutants": 40, "caught": 35, "survivors": [{"mutant": "a"}, {"mutant": "b"}]}
print(json.dumps({
    "beside": document.beside_text({"mesh": {**one, "beside": beside}, "model": one, "cli": {**one, "beside": beside}},
                                   {"a": "Equivalent: for all that is known.", "b": "A test is missing."}),
    "page": document.page(figures, reasons, INNER, OUTER, LONGEST),
    "without a reason": [s["mutant"] for f in figures.values() for s in f["survivors"] if not reasons.get(s["mutant"])],
    "misses": [document.misses("mesh", one, {}), document.misses("mesh", two, {}),
               document.misses("mesh", two, {"e": "Equivalent: for all that is known.", "d": "A test is missing."}),
               document.misses("mesh", two, {"e": "Equivalent: for all that is known.", "d": "Equivalent: likewise."}),
               document.misses("cli", two, {})],
}))
"""


def python_with_clang():
    for python in (sys.executable, "/usr/bin/python3"):
        if shutil.which(python) and not subprocess.run([python, "-c", "import clang.cindex"], capture_output=True).returncode:
            return python
    pytest.skip("no Python has libclang (Debian's python3-clang-16)")


def run(script, *arguments):
    command = [python_with_clang(), "-B", "-c", script, str(TOOL), *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.fixture(scope="module")
def mutated(tmp_path_factory):
    """(all mutants, those in the program, a function that runs the program as one of them)."""
    folder = tmp_path_factory.mktemp("mutation")
    (folder / "small.cpp").write_text(SOURCE)
    found, chosen = run(FIND, folder)
    program = folder / "small"
    subprocess.run(["c++", "-std=c++20", f"-I{ROOT}", "-include", TOOL / "mutant.h", folder / "mutated.cpp",
                    TOOL / "mutant.cpp", "-o", program], check=True)

    def behave(id, **environment):
        environment = {**os.environ, "LOCKSTEP_MUTANT": str(id), **environment}
        return subprocess.run([program], env=environment, capture_output=True, text=True, check=True).stdout

    return found, chosen, behave


def test_each_kind_of_break_is_found_where_it_stands(mutated):
    found, _, _ = mutated
    breaks = {(m["line"], m["kind"], m["old"], m["new"]) for m in found}
    assert {
        (4, "comparison", "value < most", "value <= most"),
        (4, "comparison", "value < most", "value > most"),
        (4, "negated condition", "value < most", "!(value < most)"),
        (8, "constant", "2", "2 + 1"),
        (4, "other bound", "std::max(value, value)", "std::min(value, value)"),
        (9, "assignment", "sum += 3", "sum -= 3"),
        (9, "missing statement", "sum += 3", ""),
        (10, "swapped arguments", "limit(1, 5)", "limit(5, 1)"),
    } <= breaks
    assert not any(m["line"] in (1, 2, 3) for m in found)


def test_both_ways_of_a_call_do_not_stand_where_one_is_awaited(tmp_path):
    (tmp_path / "small.cpp").write_text(AWAITING)
    found, _ = run(FIND, tmp_path)
    assert [m["old"] for m in found if m["kind"] == "swapped arguments"] == ["wait(y, x)"]


def test_a_word_that_may_stand_elsewhere_is_described_with_its_line(mutated):
    found, _, _ = mutated
    assert {m["code"] for m in found if m["old"] == "2"} == {"int sum = 2;"}
    assert {m["code"] for m in found if m["old"] == "break"} == {"++sum; break;"}
    assert {m["code"] for m in found if m["old"] == "value < most"} == {""}


def test_the_program_behaves_as_the_chosen_mutant_and_without_one_as_written(mutated):
    _, chosen, behave = mutated
    assert behave(0) == "1 5"
    expected = {"value <= most": "1 5", "value > most": "5 5", "2 + 1": "1 6", "sum -= 3": "1 -1", "3 + 1": "1 6"}
    seen = {m["new"]: behave(m["id"]) for m in chosen}
    compared = {new: output for new, output in seen.items() if new in expected}
    assert len(compared) >= 2
    assert compared == {new: expected[new] for new in compared}


def test_a_run_notes_which_mutants_it_reached(mutated, tmp_path):
    _, chosen, behave = mutated
    behave(0, LOCKSTEP_MUTANT_REACHED=str(tmp_path / "reached"))
    assert set(map(int, (tmp_path / "reached").read_text().split())) == {m["id"] for m in chosen}


def test_a_seed_chooses_the_same_mutants_of_a_folder_again_and_as_many_of_each_file_whatever_else_is_measured():
    alone, other, beside, _ = run(CHOOSE)["draws"]
    assert alone != other
    assert alone == [m for m in beside if m[0].startswith("src/mesh/")]
    assert [sum(m[0] == f"src/mesh/{file}" for m in alone) for file in "abc"] == [6, 6, 2]
    assert [sum(m[0] == f"src/symbolic/parametric/{file}" for m in beside) for file in "abc"] == [6, 6, 2]
    assert len({m[2] for m in beside}) == 28


def test_a_file_that_changes_does_not_change_the_draw_of_others():
    alone, _, _, changed = run(CHOOSE)["draws"]
    assert alone != changed
    assert [m[:2] for m in alone if m[0] != "src/mesh/a"] == [m[:2] for m in changed if m[0] != "src/mesh/a"]


def test_a_mutant_that_does_not_compile_is_replaced_by_the_next_that_was_drawn():
    drawn = run(CHOOSE)
    ids = drawn["ids"]
    assert drawn["first"] == [[sorted(ids[:5]), {"mesh": 0}], [sorted([ids[0], *ids[2:6]]), {"mesh": 1}], [sorted(ids[:4]), {"mesh": 10}]]


def test_a_mutant_of_a_header_that_does_not_compile_is_dropped_for_all_that_include_it(tmp_path):
    (tmp_path / "src" / "mesh").mkdir(parents=True)
    (tmp_path / "src" / "mesh" / "a.h").write_text("int a = 1;\nint b = 1;\n")
    assert run(DROP, tmp_path) == [1]


def test_the_page_is_what_the_figures_and_the_reasons_say():
    assert run(PAGE)["page"] == (ROOT / "docs" / "mutation.md").read_text(encoding="utf-8")


def test_what_another_seed_gave_is_told_without_what_is_equivalent_by_now():
    expected = " With seed 2, for whose mutants no test was written, it is 89 % of `mesh` (35 of 39) and 89 % of `cli` (35 of 39)."
    assert run(PAGE)["beside"] == expected


def test_every_survivor_on_the_page_has_a_reason():
    assert run(PAGE)["without a reason"] == []


def test_a_folder_that_decides_misses_its_goal_where_less_than_90_percent_of_what_a_test_could_tell_are_caught():
    assert run(PAGE)["misses"] == [False, True, True, False, False]
