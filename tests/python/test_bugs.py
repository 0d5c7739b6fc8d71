# SPDX-License-Identifier: Apache-2.0
"""Real bugs, put into scripts under torch's own wrappers, DeepSpeed and accelerate by a line or an option, and what `lockstep verify` says of them: the table of
docs/pytest.md is what comes out, and where the corpus has a scenario for it, `lockstep check` predicts the same formula, as it
does for the schedule that `lockstep record` makes of the run.
`LOCKSTEP_BINARY=… python3 tests/python/test_bugs.py` writes the table's last columns anew.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from recorded_runs import predicts_what_was_measured, program
from test_frameworks import python_with, run_on
from torch_ranks import HERE, PROGRAM, nightly_but, torch_python

sys.path.insert(0, str(HERE.parents[1] / "python"))

from lockstep import verify

pytestmark = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")

DOCUMENT = HERE.parents[1] / "docs" / "pytest.md"
# | case | what is wrong | parameter | what rank 0's optimizer gets | what verify says |
ROW = re.compile(r"^\| `(?P<case>[\w-]+)` \| (?P<bug>.*?) \| `(?P<parameter>[\w.]+)` \| `(?P<formula>.*?)` \| (?P<said>.*?) \|$", re.MULTILINE)
SCENARIO = re.compile(r"\]\(\.\./(scenarios/[^)]*\.json)\)")
ROWS = {row["case"]: row for row in ROW.finditer(DOCUMENT.read_text(encoding="utf-8"))}
# case("NAME", WORLD, …, reference="NAME", …) in each worker; those of one rank are references.
CASE = re.compile(r'^case\("([\w-]+)", (\d)(?:.*?reference="([\w-]+)")?', re.MULTILINE)
WORKERS = {"torch": "bugs_worker.py", "deepspeed": "deepspeed_bugs_worker.py", "accelerate": "accelerate_bugs_worker.py"}
CASES = {name: (package, int(world), reference or None) for package, worker in WORKERS.items()
         for name, world, reference in CASE.findall((HERE / worker).read_text(encoding="utf-8"))}

# What each rank multiplies its gradient with is no fraction, and another one on each rank: no step of a schedule.
# What is reduced lacks a micro-batch that had come before: no collective shows that.
# Gradients of two parameters meet. What nobody zeroed is reduced where no backward pass yields anything.
# FSDP2 keeps what its shards were reduced to until replicas are, which `record` takes for two gradients.
# A parameter that not every rank has used is recorded as if they had: g0 + g1 for g0.
NOT_A_SCHEDULE = {"plain-clipped", "bf16-late", "plain-branches", "plain-kept", "hsdp-last-right", "hsdp-boundary", "plain-users"}
# What runs with every change: torch's own wrappers. tests/python/test_frameworks.py has right runs of the others.
SHORT = [case for case in ROWS if CASES[case][0] == "torch"]
RECORDED = [case for case in ROWS if not CASES[case][2] and case not in NOT_A_SCHEDULE]
# What no collective shows and the coefficients do, beside DDP's division.
UNSEEN = {"ddp-hook": ["multiplied with 1/2"], "ddp-last": ["cleared between the micro-batches"],
          "ddp-not-zeroed": ["not cleared after an optimizer step"],
          "hsdp-divided-twice": ["multiplied with 1/4"],
          "zero-predivided": ["multiplied with 1/4"], "zero-last": ["cleared between the micro-batches"],
          "zero-not-zeroed": ["not cleared after an optimizer step"], "ulysses-local-mean": ["multiplied with 1/2"],
          "fsdp-tp-words-kept": ["not cleared after an optimizer step"],
          "zero-groups-right": ["it takes a part of the gradients to its owner"]}
# What the capture saw the script multiply gradients by: steps of the schedule.
SCALED = {"plain-divisor": "1/4", "fsdp-tp-words-halved": "1/2"}


def runs(folder, package):
    """What the cases of a package left in a folder of theirs."""
    folder = folder / package
    folder.mkdir()
    for world in sorted({world for of, world, _ in CASES.values() if of == package}):
        run_on(package, folder, [name for name, case in CASES.items() if case[:2] == (package, world)], WORKERS[package], world)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """By package, made where a case asks for it."""
    made, folder = {}, tmp_path_factory.mktemp("bugs")

    def of(package):
        if python_with(package) is None:
            pytest.skip("no Python with torch and %s (LOCKSTEP_%s_PYTHON names one)" % (package, package.upper()))
        if package not in made:
            made[package] = folder / package
            runs(folder, package)
        return made[package]
    return of


def measured(folder, case, parameter):
    """The formula of rank 0 in the last step, and the words, of a run."""
    reference = CASES[case][2]
    for error in sorted(error for name in (case, reference) for error in folder.glob(f"{name}.error-*")):
        pytest.fail(error.read_text())
    verification = verify(folder / case, program=PROGRAM, reference=reference and folder / reference)
    formulas = {place: formula for place, formula in verification.formulas(parameter).items() if place[2] == 0}
    found = [one for one in verification.findings if parameter in one["parameters"] and (0 in one["ranks"] or not one["results"])]
    return verification, formulas[max(formulas)], found[0]["what"] if found else "match"


def same(one, other):
    """Formulas are the same; decimals, which depend on torch's random numbers and their rounding, nearly."""
    number = re.compile(r"\d+\.\d+(?=\*)")
    return number.sub("#", one) == number.sub("#", other) and all(
        abs(float(a) / float(b) - 1) < 1e-3 for a, b in zip(number.findall(one), number.findall(other)))


def test_the_table_has_every_case():
    assert ROWS.keys() == {case for case, (_, world, _) in CASES.items() if world > 1}
    assert {case for _, _, case in CASES.values() if case} == {case for case, (_, world, _) in CASES.items() if world == 1}
    assert sum(not case.endswith("right") for case in ROWS) >= 10


@pytest.mark.parametrize("case", nightly_but(ROWS, SHORT))
def test_the_run_is_recognized(folders, case):
    verification, formula, said = measured(folders(CASES[case][0]), case, ROWS[case]["parameter"])
    assert same(formula, ROWS[case]["formula"]) and said == ROWS[case]["said"], (formula, said)
    assert verification.ok == case.endswith("right") and verification.verdict == ("match" if verification.ok else "mismatch")
    assert verification.report["complete"] and verification.report["counts"]["undecided"] == 0


@pytest.mark.parametrize("case", [case for case, row in ROWS.items() if SCENARIO.search(row["bug"])])
def test_check_predicts_what_was_measured(case):
    """The scenario of the corpus has the same layout and micro-batches."""
    scenario = SCENARIO.search(ROWS[case]["bug"])[1]

    done = subprocess.run([PROGRAM, "check", "-f", "json", scenario], cwd=HERE.parents[1], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    report = json.loads(done.stdout)
    pieces = [piece for parameter in report["parameters"] for rank in parameter["ranks"]
              if 0 in rank.get("ranks", [rank.get("rank")]) for piece in rank["pieces"]]
    if case.endswith("right"):
        assert report["verdict"] == "match"
    else:
        assert {piece["formula"] for piece in pieces if piece["verdict"] != "match"} == {ROWS[case]["formula"]}


@pytest.mark.parametrize("case", nightly_but(RECORDED, SHORT))
def test_check_predicts_the_same_for_the_recorded_schedule(folders, tmp_path, case):
    recorded = predicts_what_was_measured(folders(CASES[case][0]) / case, tmp_path, right=case.endswith("right"))
    for sentence in UNSEEN.get(case, []):
        assert sentence in recorded.stderr
    if case in SCALED:
        steps = json.loads((tmp_path / "scenario.json").read_text())["schedule"]["steps"]
        assert SCALED[case] in {step.get("by") for step in steps if step["op"] == "scale"} and "multiplied with" not in recorded.stderr


def test_parts_of_another_parameter_are_said_to_be_no_contribution_on_every_rank(folders):
    """The ranks take different branches: each gets half of its own gradient and half of the other rank's other branch."""
    report = verify(folders("torch") / "plain-branches", program=PROGRAM).report
    results = {(one["parameter"], *one["ranks"]): one for one in report["results"]}
    for rank, branch in enumerate(("left", "right")):
        own, left_out = results[branch + ".weight", rank], results[branch + ".weight", 1 - rank]
        assert own["formula"] == f"g{rank}/2" and own["unexplained"] > 0.1 > own["noise"]
        assert left_out["formula"] == "0" and left_out["verdict"] == "wrong"
    assert all(one["verdict"] == "right" for (name, *_), one in results.items() if name.startswith(("norm", "base")))
    crossed, = [note for note in report["notes"] if "mixed" in note]
    assert "rank 0 puts left.weight and rank 1 puts right.weight: gradients are mixed." in crossed and "bugs_worker.py" in crossed
    for right in ("plain-branches-right", "ddp-unused-right"):
        assert not any("mixed" in note for note in verify(folders("torch") / right, program=PROGRAM).report["notes"])


def test_a_rank_that_clips_by_itself_is_no_schedule(folders, tmp_path):
    recorded = program("record", folders("torch") / "plain-clipped", "-o", tmp_path / "scenario.json")
    assert recorded.returncode == 1
    assert "the schedule predicts (g0+g1)/2, and " in recorded.stderr and "does not predict what was measured" in recorded.stderr


def test_the_steps_have_the_names_of_their_axes_and_places(folders):
    def steps(case):
        inner = []
        for step in json.loads(program("record", folders("torch") / case).stdout)["schedule"]["steps"]:
            inner += [step] + step.get("steps", [])
        return inner

    line = next(number for number, text in enumerate((HERE / "bugs_worker.py").read_text().splitlines(), 1) if "all_reduce(parameter.grad, op=op)" in text)
    assert [step["name"] for step in steps("plain-right")] == ["zero", "micro_batches", "backward", "dp_all_reduce/bugs_worker.py:%d" % line]
    sharded = {step["op"]: step for step in steps("hsdp-right")}
    assert sharded["reduce_scatter"]["over"] == "dp_shard" and sharded["reduce_scatter"]["geometry"] == {"kind": "rows"}
    assert sharded["all_reduce"]["over"] == "dp_replicate" and sharded["all_reduce"]["on"] == "owned"
    left_out = [step for step in steps("plain-left-out") if step["op"] == "all_reduce"]
    assert left_out[0]["params"] == ["!norm.weight", "!norm.bias"]


@pytest.mark.parametrize("case, step", [("plain-left-out", "dp_all_reduce/"), ("plain-late", "dp_all_reduce/"), ("ddp-last", "zero_between"),
                                        ("ddp-ignored", "dp_all_reduce/"), ("tp-norm-average", "tp_all_reduce/"),
                                        ("ddp-unused", "dp_all_reduce"), ("plain-users", "scale/"), ("hsdp-replicas-alone", "dp_shard_all_reduce"),
                                        ("tp-norm-again", "tp_all_reduce/optimizer"), ("tp-group", "dp_all_reduce/bugs_worker.py"),
                                        ("fsdp-tp-norm", "tp_all_reduce"), ("fsdp-tp-words-kept", "zero"),
                                        ("fsdp-tp-words-halved", "scale")])
def test_verify_names_the_step_at_fault_and_a_repair(folders, case, step):
    report = verify(folders("torch") / case, program=PROGRAM).report
    assert report["not_blamed"] is None and any(step in blame["step"] for blame in report["blame"]), report["blame"]
    assert report["repair"]
    text = program("verify", folders("torch") / case).stdout
    assert "at fault: " + report["blame"][0]["step"] in text and "right with " in text


def main():
    text = DOCUMENT.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for package in filter(python_with, WORKERS):
            of_package = runs(Path(folder), package)
            for case, row in ROWS.items():
                if CASES[case][0] != package:
                    continue
                _, formula, said = measured(of_package, case, row["parameter"])
                text = text.replace(row[0], f"| `{case}` | {row['bug']} | `{row['parameter']}` | `{formula}` | {said} |")
    DOCUMENT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
