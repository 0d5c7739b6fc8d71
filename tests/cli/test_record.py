# SPDX-License-Identifier: Apache-2.0
"""`lockstep record` as a user meets it: the file, what is said beside it, and what is refused."""

import json
import os
import re
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
    assert "schedules were tried; " in run("repair", str(scenario)).stdout


def test_what_it_does_not_predict_is_said_and_the_exit_status_is_1(run, tmp_path):
    captured = tmp_path / "run"
    captured.mkdir()
    for file in (ROOT / "tests" / "live" / "runs" / "left-out").iterdir():
        content = file.read_bytes()
        # As if the call had carried another gradient.
        content = content.replace(b'"parameters":[0]}', b'"parameters":[1]}')
        (captured / file.name).write_bytes(content)
    scenario = tmp_path / "scenario.json"
    for output in ([], ["-o", str(scenario)]):
        finished = run("record", str(captured), *output)
        assert finished.returncode == 1 and finished.stdout == "" and not scenario.exists()
        assert "it is not what the run did, and is not written (--keep writes it)" in finished.stderr
    assert not list(tmp_path.glob("*.tmp"))
    scenario.write_text("as it was")
    run("record", str(captured), "-o", str(scenario))
    assert scenario.read_text() == "as it was"
    assert run("record", str(captured), "--keep", "-o", str(scenario)).returncode == 1
    kept = run("record", str(captured), "--keep")
    assert kept.returncode == 1 and json.loads(kept.stdout) == json.loads(scenario.read_text())
    assert "it is not what the run did\n" in kept.stderr
    assert "✗ 0.weight on ranks 0 and 1: the schedule predicts g0, and (g0+g1)/2 was measured." in finished.stderr
    verified = run("verify", str(captured))
    assert verified.returncode == 1 and "no step is named: 0.weight on ranks 0 and 1: " in verified.stdout
    assert "at fault" not in verified.stdout


def test_what_a_run_says_cannot_drive_the_terminal(run, tmp_path):
    for file in (ROOT / "tests" / "live" / "runs" / "left-out").iterdir():
        # A call that carries less than the gradient is left out of the schedule, with a note that names its place.
        content = re.sub(rb'"elements":\d+', b'"elements":1', file.read_bytes()).replace(b'"call":"train.py', b'"call":"\\u001b[2J\\ntrain.py')
        (tmp_path / file.name).write_bytes(content)
    finished = run("record", str(tmp_path))
    assert finished.returncode == 1 and "train.py:13" in finished.stderr
    assert "\x1b" not in finished.stderr and "\ntrain" not in finished.stderr


def test_more_elements_than_can_be_counted_are_refused(run, tmp_path):
    for file in (ROOT / "tests" / "live" / "runs" / "left-out").iterdir():
        content = file.read_bytes()
        if file.suffix == ".jsonl":
            content = re.sub(rb'"shape":\[[0-9,]*\]', b'"shape":[1000000000,1000000000]', content)
        (tmp_path / file.name).write_bytes(content)
    finished = run("record", str(tmp_path))
    assert finished.returncode == 2 and "its parameters have 3e+18 elements; up to 1e+15 are recorded." in finished.stderr


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


def changed(folder, change):
    """The run with other lines: change(event, line) gives those that stand for one."""
    folder.mkdir()
    for file in Path(RUN).iterdir():
        content = file.read_bytes()
        if file.suffix == ".jsonl":
            content = b"".join(new + b"\n" for line in content.splitlines() for new in change(json.loads(line), line))
        (folder / file.name).write_bytes(content)
    return str(folder)


def test_what_no_backward_yields_is_frozen_and_to_blame_for_nothing(run, tmp_path):
    silent = changed(tmp_path / "run", lambda event, line: [] if event["event"] in ("contribution", "result") and event["parameter"] in (1, 2) else [line])
    scenario = tmp_path / "scenario.json"
    finished = run("record", silent, "-o", str(scenario))
    assert finished.returncode == 0 and "in its one result" in finished.stderr
    assert "note: no backward yields a gradient of 1.weight and 1.bias: recorded as frozen." in finished.stderr
    assert run("check", "-q", str(scenario)).stdout.startswith("match ") and run("verify", "-q", silent).stdout.startswith("match ")


def test_where_nothing_was_measured_no_schedule_is_said_to_meet_it(run, tmp_path):
    empty = changed(tmp_path / "run", lambda event, line: [] if event["event"] in ("contribution", "result") else [line])
    finished = run("record", empty)
    assert finished.returncode == 2 and "no optimizer got a gradient" in finished.stderr and finished.stdout == ""


def test_many_steps_and_micro_batches_are_not_searched_for_ever(run, tmp_path):
    def called_from_everywhere(event, line):
        return [line.replace(b"train.py:13", b"train.py:%d" % number) for number in range(13, 113)] if event["event"] == "collective" else [line]
    verified = run("verify", changed(tmp_path / "calls", called_from_everywhere)).stdout
    assert "no step is named: the recorded schedule has 202 steps" in verified and "the search takes up to 64" in verified
    many = changed(tmp_path / "many", lambda event, line: [line.replace(b'"micro_batches":2,"tokens":[null,null]', b'"micro_batches":1000000')])
    finished = run("record", many)
    assert finished.returncode == 2 and "are more than are recorded at once" in finished.stderr


def test_the_run_is_never_replaced(run, tmp_path):
    copy = changed(tmp_path / "run", lambda event, line: [line])
    before = {file.name: file.read_bytes() for file in Path(copy).iterdir()}
    for name in before:
        for arguments in (["record", copy], ["verify", copy, "-f", "json"], ["verify", RUN, "--reference", copy, "-f", "json"]):
            finished = run(*arguments, "-o", str(Path(copy) / name))
            assert finished.returncode == 2, arguments
    assert {file.name: file.read_bytes() for file in Path(copy).iterdir()} == before
