# SPDX-License-Identifier: Apache-2.0
"""test, explain, show, schema and init."""

import json

import pytest


def test_test_honours_expect(run, files):
    done = run("test", "right.json", "wrong.json", "stuck.json")
    assert done.returncode == 0
    assert done.stdout == "ok    right  right.json\nok    wrong  wrong.json\nok    stuck  stuck.json\n3 passed, 0 failed\n"


def test_test_shows_differences_in_full(run, files):
    text = (files / "wrong.json").read_text().replace('"mismatch" }', '"mismatch", "ranks": [0], "ratio": 3 }')
    (files / "wrong.json").write_text(text)
    done = run("test", "-q", "right.json", "wrong.json")
    assert done.returncode == 1
    assert done.stdout == (
        "FAIL  wrong  wrong.json\n"
        "      ranks: expected exactly [0] to be wrong, found [0, 1]\n"
        "      ratio: expected 3 × the right gradient for every wrong element, found 2 on rank 0\n"
        "      weight is wrong on rank 0: step mean leaves 2 × the right gradient, and no later step corrects it\n"
        "      `lockstep check wrong.json` shows it whole\n"
        "1 passed, 1 failed\n"
    )


def test_a_file_without_expect_is_skipped_and_counted(run, files):
    plain = (files / "right.json").read_text().replace(',\n  "expect": { "verdict": "match" }', "")
    (files / "plain.json").write_text(plain)
    done = run("test", "right.json", "plain.json")
    assert done.returncode == 0
    assert done.stdout.endswith("1 passed, 0 failed, 1 skipped\n")
    # A gate that checks nothing must not be green.
    assert run("test", "plain.json").returncode == 4


def test_a_file_may_expect_to_be_refused(run, files):
    (files / "refused.json").write_text((files / "invalid.json").read_text().replace('"match"', '"error"'))
    done = run("test", "refused.json")
    assert (done.returncode, done.stdout) == (0, "ok    refused.json\n1 passed, 0 failed\n")
    (files / "wrongly.json").write_text((files / "right.json").read_text().replace('"verdict": "match"', '"verdict": "error"'))
    done = run("test", "wrongly.json")
    assert done.returncode == 1 and "verdict: expected error, found match" in done.stdout


def test_test_writes_reports_beside_and_says_how_it_went(run, files):
    done = run("test", "right.json", "wrong.json", "--report", "json=report.json")
    assert done.stdout.endswith("2 passed, 0 failed\n") and done.stderr == ""
    assert [entry["verdict"] for entry in json.loads((files / "report.json").read_text())] == ["match", "mismatch"]
    done = run("test", "right.json", "-f", "json", "-o", "other.json")
    assert (done.stdout, done.stderr) == ("", "1 passed, 0 failed\n")


def test_framework_and_model_files_beside_scenarios_are_left_out(run, files):
    folder = files / "mine"
    folder.mkdir()
    (folder / "right.json").write_text((files / "right.json").read_text())
    (folder / "loop.jsonc").write_text('{ "lockstep_framework": 1, "steps": [] } // mine')
    (folder / "net.jsonc").write_text('{ "lockstep_model": 1, "parameters": [] }')
    assert run("test", "mine").stdout == "ok    right  mine/right.json\n1 passed, 0 failed\n"
    done = run("check", "mine/loop.jsonc")
    assert done.returncode == 2
    assert 'found a file that scenarios name: "schedule": { "framework": "./loop.jsonc" }' in done.stdout


def test_a_configuration_is_no_scenario_and_nothing_of_it_is_shown(run, files):
    (files / "ds_config.json").write_text('{ "wandb": { "api_key": "s3cr3t" }, "train_batch_size": 8 }')
    done = run("check", "ds_config.json")
    assert done.returncode == 2
    assert done.stdout == (
        "error  ds_config.json\n"
        'error: ds_config.json: expected a scenario, found an object with none of "lockstep", "layout" and "schedule"; '
        "`lockstep import` reads the configurations of frameworks\n"
    )


def test_small_mistakes_on_the_command_line(run, files):
    done = run("check", "--seed", "x", "right.json")
    assert done.returncode == 2
    assert done.stderr.startswith('lockstep check: --seed takes a whole number of at least 0; found "x"\n')
    assert run("check", "right").stderr == 'error: there is no file or folder right; did you mean "right.json"?\n'
    done = run("list", "--corpus", "right.json")
    assert done.stdout.splitlines()[-1] == "No mistakes; 0 controls that are right."


def test_a_stage_without_parameters_is_noted(run, files):
    text = (files / "right.json").read_text().replace('"dp": 2', '"dp": 2, "pp": 2')
    (files / "stages.json").write_text(text)
    done = run("check", "stages.json")
    assert 'note: No parameter is on pipeline stage 1; "stage" is 0 where a parameter does not say it.' in done.stdout


def test_explain_takes_selectors_and_iterations_and_leaves_out_the_middle(run, files):
    text = (files / "right.json").read_text()
    (files / "many.json").write_text(text.replace('"micro_batches": 1', '"micro_batches": 9'))
    whole = run("explain", "many.json").stdout
    assert "after backward, micro-batch 1\n" in whole and "after backward, micro-batch 8\n" in whole
    assert "micro-batch 2\n" not in whole and "… micro-batches 2 to 7; --all or -v shows them\n" in whole
    assert "after backward, micro-batch 5\n" in run("explain", "many.json", "--all").stdout
    one = run("explain", "many.json", "-s", "backward[last]", "-p", "w*").stdout
    assert one.count("after ") == 1 and "after backward, micro-batch 8\n" in one
    done = run("explain", "many.json", "-s", "backward[9]")
    assert done.returncode == 2
    assert done.stderr == (
        "error: expected STEP or STEP[MICRO_BATCH] with a micro-batch below 9, first or last, "
        'found "backward[9]"\n'
    )


def test_test_finds_invalid_files_and_empty_folders(run, files):
    done = run("test", "invalid.json", "right.json")
    assert done.returncode == 2
    assert "invalid.json:4:3" in done.stdout
    (files / "empty").mkdir()
    assert run("test", "empty").returncode == 4


def test_test_writes_reports_as_json(run, files):
    reports = json.loads(run("test", "-f", "json", "right.json", "wrong.json").stdout)
    assert [report["expected"] for report in reports] == [True, True]


def test_explain_prints_a_table_per_step(run, files):
    done = run("explain", "wrong.json")
    assert done.returncode == 0
    assert "after mean\n       dp 0          dp 1\npp 0   g0 + g1 * ✗   g0 + g1 * ✗\n" in done.stdout
    steps = json.loads(run("explain", "-f", "json", "wrong.json").stdout)["steps"]
    assert [step["after"] for step in steps] == ["backward", "mean"]
    assert steps[-1]["ranks"][1] == {"rank": 1, "formula": "g0 + g1", "stale": False, "owner": True, "wrong": True}


def test_explain_shows_how_far_a_deadlock_came(run, files):
    done = run("explain", "stuck.json")
    assert done.returncode == 0
    assert "after backward\n" in done.stdout
    assert "deadlock" in done.stdout


def test_explain_names_the_nearest_parameter(run, files):
    done = run("explain", "wrong.json", "--parameter", "wieght")
    assert done.returncode == 2
    assert 'did you mean "weight"?' in done.stderr


def test_a_resolved_scenario_has_the_same_verdict(run, files):
    resolved = run("show", "--resolved", "wrong.json").stdout
    (files / "resolved.json").write_text(resolved)
    assert run("check", "resolved.json").returncode == 1


def test_show_prints_built_in_files(run):
    done = run("show", "framework:megatron")
    assert done.returncode == 0
    assert "use_distributed_optimizer" in done.stdout
    assert run("show", "model:gpt2").returncode == 0
    done = run("show", "framework:megatorn")
    assert done.returncode == 2
    assert 'did you mean "megatron"?' in done.stderr


def test_show_as_json_has_groups_and_geometry(run, files):
    shown = json.loads(run("show", "-f", "json", "right.json").stdout)
    assert shown["groups"]["axes"]["dp"] == [[0, 1]]
    assert shown["groups"]["steps"]["mean"] == [[0, 1]]
    assert shown["geometry"] == []


def test_the_starter_passes_and_is_never_overwritten(run, tmp_path):
    assert run("init").returncode == 0
    assert run("check", "scenario.jsonc").returncode == 0
    assert run("test", "scenario.jsonc").returncode == 0
    (tmp_path / "scenario.jsonc").write_text("mine")
    done = run("init")
    assert done.returncode == 2
    assert (tmp_path / "scenario.jsonc").read_text() == "mine"
    assert run("init", "--force").returncode == 0
    assert (tmp_path / "scenario.jsonc").read_text() == run("init", "-").stdout


def test_the_schema_is_json(run):
    assert "2020-12" in json.loads(run("schema").stdout)["$schema"]
    assert run("schema", "--markdown").stdout.startswith("#")


PLAIN = '{ "lockstep": 1, "name": "plain", "layout": LAYOUT, "model": { "parameters": [ { "name": "w", "shape": [8] } ] }, "batch": ' \
        '{ "loss": "sum", "micro_batches": 2 }, "schedule": { "steps": [ { "name": "m", "op": "each", "steps": [ { "name": "backward", ' \
        '"op": "backward" } ] }, { "name": "reduce", "op": "all_reduce", "over": "dp_replicate" } ] } }'


def test_a_resolved_scenario_blames_no_step_that_its_framework_left_out(run, files):
    """`expect` may blame a step that the framework has and this layout does without; among plain steps there is none of that name."""
    part = {"name": "w", "shape": [4, 8], "partial": ["tp"], "tags": ["replicated"]}
    scenario = {"lockstep": 1, "layout": {"tp": 2}, "model": {"parameters": [part]}, "schedule": {"framework": "megatron"},
                "expect": {"verdict": "mismatch", "ranks": [0, 1], "blame": ["norm_all_reduce"]}}
    (files / "missing.json").write_text(json.dumps(scenario))
    assert run("check", "missing.json").returncode == 1
    (files / "resolved.json").write_text(run("show", "--resolved", "missing.json").stdout)
    done = run("test", "resolved.json")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    kept = json.loads((files / "resolved.json").read_text())["expect"]
    assert kept == {"verdict": "mismatch", "ranks": [0, 1]}


@pytest.mark.parametrize("layout", [
    '{ "dp": 4, "dp_shard": 1 }', '{ "dp": 4, "dp_replicate": 2 }', '{ "dp": 4, "dp_shard": 2 }', '{ "dp_shard": 1, "dp_replicate": 4 }', '{ "dp": 4 }',
    '{ "dp": 4, "dp_replicate": 1 }', '{ "dp_shard": 4 }', '{ "dp_replicate": 4 }', '{ "dp": 1, "dp_shard": 1 }', '{ "tp": 1, "dp": 2, "pp": 1 }',
])
def test_a_resolved_scenario_keeps_how_dp_is_parted(run, files, layout):
    (files / "plain.json").write_text(PLAIN.replace("LAYOUT", layout))
    (files / "resolved.json").write_text(run("show", "--resolved", "plain.json").stdout)
    reports = [json.loads(run("check", "-f", "json", name).stdout) for name in ("plain.json", "resolved.json")]
    assert reports[0]["layout"] == reports[1]["layout"] and reports[0]["verdict"] == reports[1]["verdict"] != "error"


@pytest.mark.parametrize("layout, model", [
    ('{ "tp": "any" }', '{ "preset": "mixtral-8x7b", "layers": 1 }'),
    ('{ "ep": "any", "dp": 2 }', '{ "preset": "mixtral-8x7b", "layers": 1 }'),
    ('{ "tp": "any" }', '{ "preset": "gpt2", "layers": 1 }'),
    ('{ "dp": "any" }', '{ "preset": "gpt2", "layers": 1 }'),
    ('{ "dp": "any", "cp": 2 }', '{ "preset": "gpt2", "layers": 1 }'),
])
def test_a_resolved_scenario_of_open_sizes_has_the_same_verdict_or_is_refused_with_a_sentence(run, files, layout, model):
    (files / "open.json").write_text(
        f'{{ "lockstep": 1, "layout": {layout}, "model": {model}, "schedule": {{ "framework": "megatron" }} }}')
    shown = run("show", "--resolved", "open.json")
    if shown.returncode == 2:
        assert shown.stdout == "" and "as plain steps it would not be the same" in shown.stderr and "give numbers" in shown.stderr
        return
    (files / "resolved.json").write_text(shown.stdout)
    first, second = (json.loads(run("check", "-f", "json", "--no-blame", name).stdout) for name in ("open.json", "resolved.json"))
    assert first["verdict"] == second["verdict"] and first.get("notes") == second.get("notes")


def test_with_experts_an_open_tp_is_not_resolved(run, files):
    (files / "open.json").write_text('{ "lockstep": 1, "layout": { "tp": "any" }, "model": { "preset": "mixtral-8x7b", "layers": 1 }, "schedule": '
                                     '{ "framework": "megatron" } }')
    assert run("check", "-q", "open.json").returncode == 0
    shown = run("show", "--resolved", "open.json", "-o", "out.json")
    assert shown.returncode == 2 and "as plain steps it would not be the same: it is match" in shown.stderr
    assert not (files / "out.json").exists()
