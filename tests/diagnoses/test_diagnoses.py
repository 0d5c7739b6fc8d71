# SPDX-License-Identifier: Apache-2.0
"""The measurement of blame and repair, on a sample of the corpus; tools/diagnosis goes through all of it."""

import json
import subprocess

import diagnoses
import fix
import pairs
import pytest
import sizes
from diagnose import Diagnosis, judge_blame
from drawn import Drawn


CHOSEN = list(pairs.pairs())[::12]


@pytest.fixture(scope="module")
def sample():
    return diagnoses.measure(CHOSEN, rounds=1)


def test_nearly_all_mistakes_of_schedules_are_repaired_as_the_projects_did(sample):
    found, apart = sample
    assert len(found) > 25 and len(found) // 2 + len(apart) == len(CHOSEN)
    written = [one for one in found if not one.blind]
    assert sum(one.equal or one.place > 0 for one in written) >= 0.9 * len(written), [one.file for one in written if not one.equal]
    assert sum(one.place > 0 for one in written) > len(written) / 2
    assert sum(one.blame == "exact" for one in found) > len(found) / 2


def test_no_repair_is_wrong_at_a_size_for_which_it_is_said_to_be_right(sample):
    found, _ = sample
    assert [(one.file, one.wrong) for one in found if one.wrong] == []
    assert sum(one.replayed for one in found) > 5 * len(found)


def test_pairs_whose_fix_is_no_step_are_counted_apart_by_name():
    chosen = [pair for pair in pairs.pairs() if "8357-compiled-autotp" in pair[0].name]
    found, apart = diagnoses.measure(chosen)
    assert found == []
    assert apart == {
        "scenarios/deepspeed/8357-compiled-autotp-in-the-model.json": "the fix is in the model",
        "scenarios/deepspeed/8357-compiled-autotp.json": "the fix changes what the parameters are",
    }
    assert diagnoses.counts(found, apart).count("8357-compiled-autotp") == 2


SCENARIO = {
    "lockstep": 1,
    "layout": {"dp": 2},
    "model": {"parameters": [{"name": "w", "shape": [4]}]},
    "batch": {"loss": "local_mean"},
    "schedule": {
        "steps": [
            {"name": "zero", "op": "zero"},
            {"name": "micro_batches", "op": "each", "steps": [{"name": "backward", "op": "backward", "by": "1 / (tokens * micro_batches)"}]},
            {"name": "dp_all_reduce", "op": "all_reduce", "over": "dp"},
            {"name": "dp_scale", "op": "scale", "by": "1 / dp"},
        ]
    },
}  # fmt: skip


def replayed(tmp_path, by, **repair):
    document = json.loads(json.dumps(SCENARIO))
    document["schedule"]["steps"][-1]["by"] = by
    (tmp_path / "repaired.json").write_text(json.dumps(document))
    found = Diagnosis("repaired", False)
    sizes.replay(found, [{"edits": [], "reach": "every size", "proof": "", "sizes": {"tried": 5}, **repair}], [tmp_path / "repaired.json"], tmp_path)
    return found


def test_what_is_said_of_every_size_is_replayed_at_others(tmp_path):
    proof = "right for every size of dp and micro_batches"
    assert replayed(tmp_path, "1 / dp", proof=proof).wrong == []
    found = replayed(tmp_path, "1/2", proof=proof)
    assert found.wrong and all("mismatch at dp " in sentence for sentence in found.wrong)
    # What is said of micro-batches alone is replayed at the file's own ranks.
    found = replayed(tmp_path, "1/2", reach="some sizes", proof="right for every size of micro_batches alone")
    assert found.wrong == [] and found.replayed > 2


def test_what_is_said_of_the_layouts_tried_is_replayed_at_these_and_the_rest_at_its_own_sizes(tmp_path):
    found = replayed(tmp_path, "1/2", reach="the layouts tried")
    assert [sentence.split(" at ")[1] for sentence in found.wrong] == ["dp 1", "dp 3", "dp 4"]
    assert replayed(tmp_path, "1/2", reach="the layouts tried", sizes={"tried": 0}).replayed == 1
    assert replayed(tmp_path, "1/2", reach="some sizes", proof="right only at dp = 2").replayed == 1
    found = replayed(tmp_path, "1/3", reach="some sizes")
    assert found.wrong == ["repair 1 (some sizes; ): mismatch at the file's own sizes"]


@pytest.mark.parametrize("steps, verdict", [(["dp_scale"], "exact"), (["dp_scale", "zero"], "some"), (["zero"], "others"), ([], "nothing")])
def test_blame_is_exact_where_it_names_what_the_fix_changes_and_nothing_else(steps, verdict):
    fixed = json.loads(json.dumps(SCENARIO))
    fixed["schedule"]["steps"][-1]["by"] = "1"
    found = Diagnosis("", False)
    judge_blame(found, {"blame": [{"step": step, "why": ""} for step in steps]}, fix.Fix(SCENARIO, fixed))
    assert found.blame == verdict


def test_a_goal_that_is_missed_is_seen():
    right = [Diagnosis("a", blind, blame="exact", place=1, check_s=0.01, plain_check_s=0.01, repair_s=0.1) for blind in (False, True)]
    assert all(figure.met() for figure in diagnoses.figures(right))
    for change, missed in ({"blame": "some"}, 1), ({"place": 2}, 1), ({"place": 0}, 2), ({"wrong": ["1"]}, 1), ({"repair_s": 2.1}, 1), ({"check_s": 0.04}, 1):
        worse = [Diagnosis(**{**one.as_json(), **change}) for one in right]
        assert sum(not figure.met() for figure in diagnoses.figures(worse)) == missed, change
    assert "| the fix itself is the first repair | 100.0 % | ≥ 80 % | 100.0 % | ≥ 65 % |" in diagnoses.table(right)


def test_the_tool_prints_rows_and_counts_and_writes_all_it_found(tmp_path):
    def tool(*arguments):
        return subprocess.run([pairs.ROOT / "tools" / "diagnosis", *arguments], capture_output=True, text=True, check=False)

    written = tmp_path / "found.json"
    done = tool("--only", "ms-swift/10117", "--rows", "--json", written)
    assert done.returncode == (1 if "missed: " in done.stdout else 0), done.stderr
    assert "scenarios/ms-swift/10117-divided-by-accumulation-again.json\n| |" in done.stdout
    assert "as written: 1 pairs; " in done.stdout and "blind: 1 pairs; " in done.stdout
    found = json.loads(written.read_text())
    assert [one["blind"] for one in found["diagnoses"]] == [False, True] and found["apart"] == {}
    assert found["diagnoses"][0]["fix"].startswith("changes backward: by ")
    assert len(found["diagnoses"][0]["why"]) == len(found["diagnoses"][0]["blamed"]) > 0
    assert tool("--only", "no such pair").returncode == 2
    assert tool("--help").returncode == 0


def test_repairs_of_schedules_that_are_drawn_are_as_they_are_said_to_be():
    found = Drawn()
    found.run(1, 6)
    assert found.wrong == [] and found.counts["wrong"] == 6 and found.counts["replays"] > 10


def test_a_repair_of_a_schedule_that_is_drawn_that_is_not_as_it_is_said_to_be_is_told(tmp_path):
    wrong = json.loads(json.dumps(SCENARIO))
    wrong["schedule"]["steps"].pop()
    for name, document in (("right.json", SCENARIO), ("wrong.json", wrong)):
        (tmp_path / name).write_text(json.dumps(document))
    repair = {"edits": [], "reach": "every size", "proof": "right for every size of dp", "sizes": {"tried": 0, "wrong_at": "dp 3, micro-batches 1"}}
    found = Drawn()
    found.repairs("right.json", [repair], [tmp_path / "right.json"], tmp_path)
    assert found.wrong == ["right.json: [] is said to be wrong at dp 3, micro-batches 1, and matches"]
    found = Drawn()
    found.repairs("wrong.json", [repair], [tmp_path / "wrong.json"], tmp_path)
    assert found.wrong[0].startswith("wrong.json: repair 1 (every size; right for every size of dp): mismatch at the file's own sizes")
    found = Drawn()
    (tmp_path / "drawn.json").write_text(json.dumps({**wrong, "schedule": {"framework": "ddp", "options": {"comm_hook": "noop_hook"}}}))
    found.options("drawn.json", [{"option": "comm_hook", "right": ["none", "noop_hook"]}], tmp_path)
    assert len(found.wrong) == 1 and found.wrong[0].startswith('drawn.json: comm_hook="noop_hook" is said to be right: ')
