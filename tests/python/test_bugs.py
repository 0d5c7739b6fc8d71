# SPDX-License-Identifier: Apache-2.0
"""Real bugs, put into scripts under torch's own wrappers by a line or an option, and what `lockstep verify` says of them: the table of
docs/pytest.md is what comes out, and where the corpus has a scenario for it, `lockstep check` predicts the same formula.
`LOCKSTEP_BINARY=… python3 tests/python/test_bugs.py` writes the table's last columns anew.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from torch_ranks import HERE, PROGRAM, ran, torch_python

sys.path.insert(0, str(HERE.parents[1] / "python"))

from lockstep import verify

pytestmark = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")

DOCUMENT = HERE.parents[1] / "docs" / "pytest.md"
# | case | what is wrong | parameter | what rank 0's optimizer gets | what verify says |
ROW = re.compile(r"^\| `(?P<case>[\w-]+)` \| (?P<bug>.*?) \| `(?P<parameter>[\w.]+)` \| `(?P<formula>.*?)` \| (?P<said>.*?) \|$", re.MULTILINE)
SCENARIO = re.compile(r"\]\(\.\./(scenarios/[^)]*\.json)\)")
ROWS = {row["case"]: row for row in ROW.finditer(DOCUMENT.read_text(encoding="utf-8"))}
WORLDS = {name: int(world) for name, world in re.findall(r'^case\("([\w-]+)", (\d)', (HERE / "bugs_worker.py").read_text(), re.MULTILINE)}


def runs(folder):
    for world in sorted(set(WORLDS.values())):
        ran(folder, world, [name for name in WORLDS if WORLDS[name] == world], "bugs_worker.py")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return runs(tmp_path_factory.mktemp("bugs"))


def measured(folder, case, parameter):
    """The formula of rank 0 in the last step, and the words, of a run."""
    for error in sorted(folder.glob(f"{case}.error-*")):
        pytest.fail(error.read_text())
    verification = verify(folder / case, program=PROGRAM)
    formulas = {place: formula for place, formula in verification.formulas(parameter).items() if place[2] == 0}
    found = [one for one in verification.findings if parameter in one["parameters"] and 0 in one["ranks"]]
    return verification, formulas[max(formulas)], found[0]["what"] if found else "match"


def same(one, other):
    """Formulas are the same; decimals, which depend on torch's random numbers and their rounding, nearly."""
    number = re.compile(r"\d+\.\d+(?=\*)")
    return number.sub("#", one) == number.sub("#", other) and all(
        abs(float(a) / float(b) - 1) < 1e-3 for a, b in zip(number.findall(one), number.findall(other)))


def test_the_table_has_every_case():
    assert ROWS.keys() == WORLDS.keys()
    assert sum(not case.endswith("right") for case in ROWS) >= 10


@pytest.mark.parametrize("case", ROWS)
def test_the_run_is_recognized(folder, case):
    verification, formula, said = measured(folder, case, ROWS[case]["parameter"])
    assert same(formula, ROWS[case]["formula"]) and said == ROWS[case]["said"], (formula, said)
    assert verification.ok == case.endswith("right") and verification.verdict == ("match" if verification.ok else "mismatch")
    assert verification.report["complete"] and verification.report["counts"]["undecided"] == 0


@pytest.mark.parametrize("case", [case for case, row in ROWS.items() if SCENARIO.search(row["bug"])])
def test_check_predicts_what_was_measured(case):
    """The scenario of the corpus has the same layout and micro-batches."""
    scenario = SCENARIO.search(ROWS[case]["bug"])[1]

    done = subprocess.run([PROGRAM, "check", "-f", "json", scenario], cwd=HERE.parents[1], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    report = json.loads(done.stdout)
    pieces = [piece for parameter in report["parameters"] for rank in parameter["ranks"] if rank["rank"] == 0 for piece in rank["pieces"]]
    if case.endswith("right"):
        assert report["verdict"] == "match"
    else:
        assert {piece["formula"] for piece in pieces if piece["verdict"] != "match"} == {ROWS[case]["formula"]}


def main():
    text = DOCUMENT.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        runs(Path(folder))
        for case, row in ROWS.items():
            _, formula, said = measured(Path(folder), case, row["parameter"])
            text = text.replace(row[0], f"| `{case}` | {row['bug']} | `{row['parameter']}` | `{formula}` | {said} |")
    DOCUMENT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
