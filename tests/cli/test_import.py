# SPDX-License-Identifier: Apache-2.0
"""lockstep import as a user runs it."""

import json
import resource

import pytest

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
        (["deepspeed"], "expected a configuration of DeepSpeed, found no file; give one: lockstep import deepspeed FILE"),
        (["deepspeed", "ds.json"], "the number of ranks is not known; give --world-size N"),
        (["deepspeed", "ds.json", "--world-size", "4", "--model", "gpt3"], '--model: there is no model "gpt3"'),
        (["deepspeed", "ds.json", "--world-size", "4", "--size", "layers"], "--size takes KEY=VALUE"),
        (["deepspeed", "ds.json", "--world-size", "0"], '--world-size takes a whole number from 1 to 1048576; found "0"'),
        (["deepspeed", "ds.json", "--world-size", "1048577"], '--world-size takes a whole number from 1 to 1048576; found "1048577"'),
        (["deepspeed", "ds.json", "--world-size", "8x"], '--world-size takes a whole number from 1 to 1048576; found "8x"'),
        (["deepspeed", "ds.json", "--tp", "0"], '--tp takes a whole number from 1 to 1048576; found "0"'),
        (["deepspeed", "ds.json", "--world-size", "4", "-f", "json"],
         "--format: there is a verdict to report only with --check; add --check, or leave --format out"),
        (["deepspeed", "ds.json", "--world-size", "4", "--report", "json=x.json"],
         "--report: there is a verdict to report only with --check; add --check, or leave --report out"),
        (["deepspeed", "ds.json", "--world-size", "4", "--engine", "host"], "--engine: there is a verdict to report only"),
        (["deepspeed", "ds.json", "--world-size", "4", "--set", "TP=2"],
         "--set: a configuration of DeepSpeed has no variables, only launch scripts of Megatron-LM have; leave --set out"),
        (["deepspeed", "ds.json", "--world-size", "4", "--", "--num-layers", "2"],
         "the arguments behind --: only `lockstep import megatron` reads a framework's own arguments; give the file with the "
         "configuration of DeepSpeed in their place"),
    ]:
        result = run("import", *arguments)
        assert result.returncode == 2 and message in result.stderr, result.stderr
        assert result.stdout == ""


def test_standard_input_is_read_and_binary_files_are_told(run, tmp_path):
    (tmp_path / "ds.json").write_text(DEEPSPEED)
    from_file = run("import", "deepspeed", "ds.json", "--world-size", "4")
    from_input = run("import", "deepspeed", "-", "--world-size", "4", input=DEEPSPEED)
    assert from_input.returncode == 0 and from_input.stdout == from_file.stdout, from_input.stderr
    (tmp_path / "ds.json").write_bytes(b"\x00\x01\x02")
    assert run("import", "deepspeed", "ds.json").stderr == "error: ds.json is a binary file; expected a configuration as text\n"


def test_what_the_framework_refuses_is_said_at_once(run, tmp_path):
    (tmp_path / "ds.json").write_text(DEEPSPEED.replace('"stage": 1', '"stage": 2'))
    result = run("import", "deepspeed", "ds.json", "--world-size", "4", "--pp", "2")
    assert result.returncode == 2 and "refuses ZeRO" in result.stderr, result.stderr


def test_version_lists_the_syntaxes(run):
    assert "imports: JSON" in run("version").stdout
    assert json.loads(run("version", "-f", "json").stdout)["imports"]["JSON"] is True


@pytest.mark.parametrize(
    "kind, name, text, words",
    [
        ("megatron", "run.sh", "--spec my.module layer_spec", "may have any parameters"),
        ("megatron", "run.sh", "--hybrid-layer-pattern M*M-", "no model with Mamba layers"),
        ("megatron", "run.sh", "--moe-latent-size 64", "no latent projections around experts"),
        ("megatron", "run.sh", "--linear-attention-freq 4", "no model with linear attention"),
        ("megatron", "run.sh", "--num-virtual-stages-per-pipeline-rank 2 --pipeline-model-parallel-size 2 --no-overlap-p2p-communication",
         "pipeline-model-parallel size should be greater than 2 to avoid having multiple p2p sends and recvs"),
        ("deepspeed", "ds.json", '{ "zero_optimization": true }', "expected an object with a stage"),
        ("deepspeed", "ds.json", '{ "tensor_parallel": { "autotp_size": 2 } }', "does not describe AutoTP"),
        ("deepspeed", "ds.json", '{ "compile": { "deepcompile": true } }', "does not describe DeepCompile"),
        ("deepspeed", "ds.json", '{ "zero_optimization": { "stage": 3, "zero_hpz_partition_size": 8 } }', "ZeRO++ hpZ"),
        ("deepspeed", "ds.json", '{ "elasticity": { "enabled": true } }', "does not describe elasticity"),
        ("gpt-neox", "neox.yml", 'attention_config: [[["mamba"], 24]]', "no model with mamba layers"),
        ("gpt-neox", "neox.yml", 'attention_config: [[["rwkv"], 12]]', "no model with rwkv layers"),
        ("gpt-neox", "neox.yml", 'attention_config: [[["gmlp"], "all"]]', "no model with gmlp layers"),
        ("gpt-neox", "neox.yml", 'attention_config: [[["flash", "mamba"], 6]]', "no model with mamba layers"),
        ("nanotron", "nano.yaml", "parallelism: { tp: 1, pp: 1, dp: 4 }\nmodel: { model_config: { moe_config: { top_k: 2 } } }", "has no experts"),
    ],
    ids=str,
)
def test_what_lockstep_cannot_describe_is_refused_and_not_said_to_change_nothing(run, tmp_path, kind, name, text, words):
    if name == "run.sh":
        text = f"python pretrain_gpt.py {' '.join(ARGUMENTS)} {text}\n"
    if kind == "gpt-neox":
        text += "\nnum_layers: 2\nhidden_size: 64\nnum_attention_heads: 4\ntrain_micro_batch_size_per_gpu: 1\n"
    (tmp_path / name).write_text(text)
    for more in [[], ["--ignore-unknown"]]:
        result = run("import", kind, name, "--world-size", "4", "--check", *more)
        assert result.returncode == 2 and words in result.stderr, result.stderr
        assert result.stdout == ""


def test_sequence_parallel_size_alone_is_no_sequence_parallelism(run, tmp_path):
    (tmp_path / "ds.json").write_text(DEEPSPEED.replace("{", '{ "sequence_parallel_size": 2,', 1))
    result = run("import", "deepspeed", "ds.json", "--world-size", "4", "--check", "-o", "step.json")
    assert result.returncode == 0 and "where data_parallel_size is not beside it" in result.stderr, result.stderr
    assert json.loads((tmp_path / "step.json").read_text())["layout"] == {"dp": 4}


def test_the_report_says_which_release_it_was_judged_as(run):
    for more, release in [([], "Megatron-LM d98e8a64 (22 August 2026)"), (["--option", "core=0.16"], "megatron-core 0.16.1")]:
        result = run("import", "megatron", "--world-size", "4", "--check", *more, "--", *ARGUMENTS)
        assert result.returncode == 0, result.stderr
        assert result.stderr.endswith(f"judged as\n  {release}\n")
        assert f"judged as {release}\n" in result.stdout


def test_small_files_that_stand_for_much_take_little_memory(run, tmp_path):
    launch = f"torchrun --nproc_per_node 4 pretrain_gpt.py {' '.join(ARGUMENTS)} --save "
    doubled = 'A="${B:-}"\n' + 'A="$A$A"\n' * 60 + launch + '"$A"\n'
    split = 'A="${B:-x }"\n' + 'A="${B:-$A$A}"\n' * 18 + launch + "$A\n"
    limit = 600 << 20
    for kind, name, text, place in [
        ("megatron", "doubled.sh", doubled, None),
        ("megatron", "split.sh", split, "split.sh:20:1: error: expected at most 100000 words"),
        ("torchtitan", "deep.toml", ".".join(["a"] * 40_000) + " = 1\n", "deep.toml:1:402: error: expected at most 200 tables in each other"),
    ]:
        (tmp_path / name).write_text(text)
        result = run("import", kind, name, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
        assert result.returncode == (2 if place else 0), result.stderr
        assert place is None or result.stderr.startswith(place)


SECRETS = ["hunter2pw", "hf_tOkEn", "node042", "alice@corp.example", "/lustre/home/alice"]


def planted():
    """Configurations with secrets at every kind of place: values, comments, keys that nobody knows, and broken lines."""
    token, word, host, mail, path = SECRETS
    yaml = f"# {token} {mail}\nkey: {token}\n{mail}: 1\n{path}: 2\nhost: {host}  # {mail}\nlist: [{path}, {token}]\n"
    json_text = f'{{ // {token} {mail}\n "token": "{word}", "host": "{host}", "paths": ["{path}"],\n "x": {{ "y": "{mail}", "{mail}": 1 }}, "{path}": {{ "{mail}": [] }} }}'
    toml = f'# {mail}\n[job]\ntoken = "{token}"\n[nobody]\nhost = "{host}"\npath = "{path}"\nmail = "{mail}"\n'
    script = (f"#!/bin/bash\n# {mail} {path}\nexport WANDB_API_KEY={token}\nHOST={host}\ncd {path}\n"
              f"python {path}/pretrain_gpt.py {' '.join(ARGUMENTS)} --save {path} --hf-token {word} --master {host} "
              f"--tensor-model-parallel-size {token} --mail {mail} --pass ${token} --clip-grad ${token}\n")
    log = ("------------------------ arguments ------------------------\n"
           + "".join(f"  {key} ................................ {value}\n" for key, value in [
               ("num_layers", "two" + token), ("hidden_size", 64), ("wandb_key", word), ("save", path), ("nobody", host)])
           + "-------------------- end of arguments ---------------------\n")
    return [("megatron", "run.sh", script), ("megatron", "run.log", log), ("megatron", "run.yaml", yaml),
            ("deepspeed", "ds.json", json_text), ("gpt-neox", "neox.yml", yaml), ("torchtitan", "titan.json", json_text),
            ("torchtitan", "titan.toml", toml), ("nanotron", "nano.yaml", yaml), ("accelerate", "acc.yaml", yaml)]


def test_secrets_at_any_place_never_reach_the_output(run, tmp_path):
    for kind, name, text in planted():
        # As it is, cut anywhere, so that the syntax breaks beside a secret, and with every unknown key left out.
        for cut in [len(text), *range(0, len(text), 37)]:
            (tmp_path / name).write_text(text[:cut])
            for more in [[], ["--ignore-unknown"]] if cut == len(text) else [[]]:
                result = run("import", kind, name, "--world-size", "4", *more, "-o", "out.json")
                assert result.returncode in (0, 2), (name, cut, result.stderr)
                written = (tmp_path / "out.json").read_text() if (tmp_path / "out.json").exists() else ""
                for secret in SECRETS:
                    assert secret not in result.stdout + result.stderr + written, (name, cut, secret, result.stderr)
