# SPDX-License-Identifier: Apache-2.0
"""Real runs as scenarios: what `lockstep check` predicts for what `lockstep record` wrote is what `lockstep verify` measured, for every
parameter and rank. The runs are those of bugs_worker.py: DDP, loops of a script's own, FSDP2, HSDP and tensor parallelism."""

import json
import subprocess
import sys

import pytest

from test_bugs import ROWS, runs
from torch_ranks import HERE, PROGRAM, torch_python

sys.path.insert(0, str(HERE.parents[1] / "python"))

from lockstep import verify

pytestmark = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")

# What each rank multiplies its gradient with is no fraction, and another one on each rank: no step of a schedule.
NOT_A_SCHEDULE = {"plain-clipped"}
# What no collective shows and the coefficients do, beside DDP's division.
UNSEEN = {"ddp-hook": ["multiplied with 1/2"], "ddp-last": ["cleared between the micro-batches"],
          "ddp-not-zeroed": ["not cleared after an optimizer step"], "plain-divisor": ["multiplied with 1/4"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return runs(tmp_path_factory.mktemp("record"))


def program(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True)


def predicted(report):
    """{(optimizer step, name, rank): the different formulas of its wrong pieces} as `check` has them."""
    found = {}
    for parameter in report["parameters"]:
        for entry in parameter["ranks"]:
            for rank in entry.get("ranks") or [entry["rank"]]:
                wrong = {piece["formula"] for piece in entry["pieces"] if piece["verdict"] != "match"}
                found.update({(report["step"], parameter["name"], rank): wrong} if wrong else {})
    return found


@pytest.mark.parametrize("case", sorted(set(ROWS) - NOT_A_SCHEDULE))
def test_check_predicts_what_verify_measured(folder, tmp_path, case):
    scenario = tmp_path / "scenario.json"
    recorded = program("record", folder / case, "-o", scenario)
    assert recorded.returncode == 0, recorded.stderr
    for sentence in UNSEEN.get(case, []):
        assert sentence in recorded.stderr
    checked = program("check", "-f", "json", scenario)
    report = json.loads(checked.stdout)
    verification = verify(folder / case, program=PROGRAM)
    assert report["verdict"] == verification.verdict, checked.stdout
    measured = {}
    for result in verification.report["results"]:
        # What cannot be told apart has several formulas.
        if result["verdict"] == "wrong" and all(one["exact"] for one in result["coefficients"]) and "told apart" not in (result["why"] or ""):
            for rank in result["ranks"]:
                measured.setdefault((result["step"], result["parameter"], rank), set()).add(result["formula"])
    # check ends at the first optimizer step that is wrong.
    expected = {place: formulas for place, formulas in measured.items() if place[0] == report["step"]}
    found = predicted(report)
    assert {place: found.get(place) for place in expected} == expected
    assert bool(expected) == (not case.endswith("right"))


def test_a_rank_that_clips_by_itself_is_no_schedule(folder, tmp_path):
    recorded = program("record", folder / "plain-clipped", "-o", tmp_path / "scenario.json")
    assert recorded.returncode == 1
    assert "the schedule predicts (g0+g1)/2, and " in recorded.stderr and "does not predict what was measured" in recorded.stderr


def test_the_steps_have_the_names_of_their_axes_and_places(folder):
    def steps(case):
        inner = []
        for step in json.loads(program("record", folder / case).stdout)["schedule"]["steps"]:
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
                                        ("ddp-ignored", "dp_all_reduce/"), ("tp-norm-average", "tp_all_reduce/")])
def test_verify_names_the_step_at_fault_and_a_repair(folder, case, step):
    report = verify(folder / case, program=PROGRAM).report
    assert report["not_blamed"] is None and any(step in blame["step"] for blame in report["blame"]), report["blame"]
    assert report["repair"]
    text = program("verify", folder / case).stdout
    assert "at fault: " + report["blame"][0]["step"] in text and "right with " in text
