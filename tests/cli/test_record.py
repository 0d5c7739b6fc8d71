# SPDX-License-Identifier: Apache-2.0
"""`lockstep record` as a user meets it: the file, what is said beside it, and what is refused."""

import json
import os
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("LOCKSTEP_SOURCE_DIR") or Path(__file__).resolve().parents[2])
RUN = str(ROOT / "tests" / "live" / "runs" / "left-out")


def test_the_scenario_goes_to_standard_output_and_the_account_to_standard_error(run):
    finished = run("record", RUN)
    assert finished.returncode == 0
    steps = json.loads(finished.stdout)["schedule"]["steps"]
    assert [step["op"] for step in steps] == ["zero", "each", "scale", "all_reduce"]
    assert steps[3]["name"] == "dp_all_reduce/train.py:13" and steps[3]["params"] == ["0.weight"]
    assert "the recorded schedule predicts what was measured in all 5 results" in finished.stderr
    assert run("record", RUN).stdout == finished.stdout


def test_check_and_repair_work_on_it(run, tmp_path):
    scenario = tmp_path / "scenario.json"
    assert run("record", RUN, "-o", str(scenario)).stdout == ""
    assert [file.name for file in tmp_path.iterdir()] == ["scenario.json"]
    checked = run("check", str(scenario))
    assert checked.returncode == 1 and "at fault: dp_all_reduce/train.py:13" in checked.stdout
    assert "schedules that were tried match" in run("repair", str(scenario)).stdout


def test_what_it_does_not_predict_is_said_and_the_exit_status_is_1(run, tmp_path):
    for file in (ROOT / "tests" / "live" / "runs" / "left-out").iterdir():
        content = file.read_bytes()
        # As if the call had carried another gradient.
        content = content.replace(b'"parameters":[0]}', b'"parameters":[1]}')
        (tmp_path / file.name).write_bytes(content)
    finished = run("record", str(tmp_path))
    assert finished.returncode == 1 and json.loads(finished.stdout)["lockstep"] == 1
    assert "✗ 0.weight on ranks 0 and 1: the schedule predicts g0, and (g0+g1)/2 was measured." in finished.stderr
    verified = run("verify", str(tmp_path))
    assert verified.returncode == 1 and "no step is named: 0.weight on ranks 0 and 1: " in verified.stdout
    assert "at fault" not in verified.stdout


@pytest.mark.parametrize("arguments, sentence", [
    (["nowhere"], "nowhere: there is no such folder"),
    ([str(ROOT / "tests" / "live" / "runs" / "norm")], "whose gradients the collectives carried"),
    ([RUN, "--loss", "token_men"], 'did you mean "token_mean"?'),
    ([RUN, "--loss", "token_mean"], "tokens"),
    ([RUN, "--step", "7"], "optimizer step"),
    ([RUN, "-o", "missing/folder/scenario.json"], "missing/folder"),
])
def test_what_cannot_be_recorded_is_refused_in_a_sentence(run, arguments, sentence):
    finished = run("record", *arguments)
    assert finished.returncode == 2 and sentence in finished.stderr and "Traceback" not in finished.stderr
    assert finished.stdout == ""
