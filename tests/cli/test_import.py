# SPDX-License-Identifier: Apache-2.0
"""lockstep import as a user runs it."""

import json

ARGUMENTS = ["--num-layers", "2", "--hidden-size", "64", "--num-attention-heads", "4", "--vocab-size", "1000",
             "--position-embedding-type", "rope", "--micro-batch-size", "1", "--global-batch-size", "8"]
DEEPSPEED = '{ "zero_optimization": { "stage": 1 }, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2 }'


def test_scenario_goes_to_standard_output_and_the_list_to_standard_error(run):
    result = run("import", "megatron", "--world-size", "4", "--", *ARGUMENTS)
    assert result.returncode == 0, result.stderr
    scenario = json.loads(result.stdout)
    assert (scenario["layout"], scenario["batch"]) == ({"dp": 4}, {"micro_batches": 2})
    assert result.stderr.startswith("used\n  --num-layers 2 ")
    quiet = run("import", "megatron", "-q", "--world-size", "4", "--", *ARGUMENTS)
    assert (quiet.stdout, quiet.stderr) == (result.stdout, "")


def test_check_goes_on_to_the_verdict_and_output_keeps_the_scenario(run, tmp_path):
    result = run("import", "megatron", "--world-size", "4", "--check", "-q", "-o", "step.json", "--", *ARGUMENTS)
    assert (result.returncode, result.stdout.split()[0]) == (0, "match")
    again = run("check", "-q", "step.json")
    assert again.returncode == 0 and again.stdout.split()[0] == "match"
    report = json.loads(run("import", "megatron", "--world-size", "4", "--check", "-f", "json", "--", *ARGUMENTS).stdout)
    assert report["verdict"] == "match"


def test_everything_behind_two_dashes_belongs_to_the_framework(run):
    result = run("import", "megatron", "--world-size", "2", "-q", "--", *ARGUMENTS, "--help-me")
    assert result.returncode == 2
    assert 'lockstep does not know the key "--help-me"' in result.stderr
    assert run("import", "megatron", "--world-size", "2", "--ignore-unknown", "--", *ARGUMENTS, "--help-me").returncode == 0


def test_mistakes_of_usage_are_said_in_a_line(run, tmp_path):
    (tmp_path / "ds.json").write_text(DEEPSPEED)
    for arguments, message in [
        (["megatrn"], 'there is no configuration format "megatrn"; did you mean "megatron"?'),
        (["deepspeed", "none.json"], "there is no file none.json"),
        (["deepspeed", "."], ". is a folder; expected a file"),
        (["deepspeed"], "expected one DeepSpeed configuration"),
        (["deepspeed", "ds.json"], "the number of ranks is not known; give --world-size N"),
        (["deepspeed", "ds.json", "--world-size", "4", "--model", "gpt3"], '--model: there is no model "gpt3"'),
        (["deepspeed", "ds.json", "--world-size", "4", "--size", "layers"], "--size takes KEY=VALUE"),
    ]:
        result = run("import", *arguments)
        assert result.returncode == 2 and message in result.stderr, result.stderr
        assert result.stdout == ""


def test_what_the_framework_refuses_is_said_at_once(run, tmp_path):
    (tmp_path / "ds.json").write_text(DEEPSPEED.replace('"stage": 1', '"stage": 2'))
    result = run("import", "deepspeed", "ds.json", "--world-size", "4", "--pp", "2")
    assert result.returncode == 2 and "refuses ZeRO" in result.stderr, result.stderr


def test_version_lists_the_syntaxes(run):
    assert "imports: JSON" in run("version").stdout
    assert json.loads(run("version", "-f", "json").stdout)["imports"]["JSON"] is True
