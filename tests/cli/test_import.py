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
         "the arguments after --: only `lockstep import megatron` reads a framework's own arguments; give the file with the "
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
        ("megatron", "run.sh", "--softmax-type learnable", "an offset for each attention head"),
        ("megatron", "run.sh", "--softmax-type off-by-one", "an offset for each attention head"),
        ("megatron", "run.sh", "--sft", "packs sequences"),
        ("megatron", "run.sh", "--hybrid-context-parallel", "other micro-batches from step to step"),
        ("megatron", "run.sh", "--num-virtual-stages-per-pipeline-rank 2 --pipeline-model-parallel-size 2 --no-overlap-p2p-communication",
         "pipeline-model-parallel size should be greater than 2 to avoid having multiple p2p sends and recvs"),
        ("deepspeed", "ds.json", '{ "zero_optimization": true }', "expected an object with a stage"),
        ("deepspeed", "ds.json", '{ "tensor_parallel": { "autotp_size": 2 } }', "does not describe AutoTP"),
        ("deepspeed", "ds.json", '{ "compile": { "deepcompile": true } }', "does not describe DeepCompile"),
        ("deepspeed", "ds.json", '{ "zero_optimization": { "stage": 3, "zero_hpz_partition_size": 8 } }', "ZeRO++ hpZ"),
        ("deepspeed", "ds.json", '{ "elasticity": { "enabled": true } }', "Elastic training has been removed"),
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


def test_a_batch_that_grows_is_judged_as_it_is_in_the_end_and_that_is_said(run, tmp_path):
    (tmp_path / "run.sh").write_text(
        f"python pretrain_gpt.py {' '.join(ARGUMENTS)} --micro-batch-size 1 --global-batch-size 16 --rampup-batch-size 4 4 1000 --softmax-type vanilla\n")
    result = run("import", "megatron", "run.sh", "--world-size", "4", "--check")
    assert result.returncode == 0, result.stderr
    assert "The number of micro-batches is that behind the ramp of rampup_batch_size" in " ".join(result.stderr.split())


def test_what_stands_behind_an_exit_is_not_imported_unless_the_exit_is_conditional(run, tmp_path):
    training = f"torchrun --nproc_per_node 4 pretrain_gpt.py {' '.join(ARGUMENTS)}\n"
    for text, status in [("exit 0\n" + training, 2), ("[ -d data ] || exit 1\n" + training, 0),
                         ("if [ -d data ]; then\n  exit 0\nfi\n" + training, 0), (training + "exit 0\n" + training, 0)]:
        (tmp_path / "run.sh").write_text(text)
        result = run("import", "megatron", "run.sh")
        assert result.returncode == status, text + result.stderr


def test_of_a_function_and_its_call_bash_can_tell_that_they_are_one_training(run, tmp_path):
    arguments = " ".join(ARGUMENTS)
    (tmp_path / "run.sh").write_text(f'train() {{\n  torchrun --nproc_per_node 4 pretrain_gpt.py {arguments} "$@"\n}}\ntrain {arguments}\n')
    assert run("import", "megatron", "run.sh").returncode == 0
    # Called twice it may be two, which only --run tells.
    with (tmp_path / "run.sh").open("a") as script:
        script.write(f"train {arguments}\n")
    result = run("import", "megatron", "run.sh")
    assert result.returncode == 2 and "--run, which lets bash read it, where one is a function" in " ".join(result.stderr.split()), result.stderr


REMOVED = "DeepSpeed 0.19.8 refuses this key, with any value: "
BATCH = '"train_batch_size": 16, '


@pytest.mark.parametrize(
    "kind, text, words",
    [
        ("deepspeed", BATCH + '"zero_optimization": { "stage": 3, "mics_shard_size": 4 }', REMOVED + "MiCS ZeRO-3 sharding has been removed"),
        ("deepspeed", BATCH + '"amp": { "enabled": false }', REMOVED + "NVIDIA Apex AMP integration has been removed"),
        ("deepspeed", BATCH + '"amp": {}', REMOVED + "NVIDIA Apex AMP integration has been removed"),
        ("deepspeed", BATCH + '"compression_training": { "a": 1 }', REMOVED + "The DeepSpeed compression library"),
        ("deepspeed", BATCH + '"curriculum_learning": { "enabled": true }', REMOVED + "Legacy top-level"),
        ("deepspeed", BATCH + '"zero_optimization": { "stage": 3, "offload_param": false }', "DeepSpeed 0.19.8 refuses false here: it expects an object"),
        ("deepspeed", BATCH + '"tensorboard": true', "DeepSpeed 0.19.8 refuses true here: it expects an object"),
        ("deepspeed", BATCH + '"tensor_parallel": { "tp": 1 }', "DeepSpeed 0.19.8 refuses 1 here: it expects an object"),
        ("deepspeed", BATCH + '"communication_data_type": "int8"', "Supported data types: ['fp16', 'bf16', 'fp32']"),
        ("deepspeed", '"gradient_accumulation_steps": 2', "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided"),
        ("deepspeed", BATCH + '"gradient_accumulation_steps": 3', "train_batch_size: it does not divide by gradient_accumulation_steps 3 × 8 data-parallel ranks"),
        ("deepspeed", '"train_batch_size": 12', "train_batch_size: it does not divide by 8 data-parallel ranks"),
        ("deepspeed", '"train_batch_size": 4', "train_batch_size: it does not divide by 8 data-parallel ranks"),
        ("gpt-neox", '"gradient_accumulation_steps": 2', "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided"),
        ("gpt-neox", BATCH + '"bf16": { "enabled": true }, "fp16": { "enabled": true }', "bfloat16 and fp16 modes cannot be simultaneously enabled"),
        ("accelerate", '"distributed_type": "NO", "num_processes": 8', "accelerate starts one process with distributed_type NO, not 8"),
        ("accelerate", '"distributed_type": "DEEPSPEED", "num_processes": 8, "deepspeed_config": { "zero_stage": 3, "deepspeed_config_file": "ds.json" }',
         "deepspeed_config.zero_stage: accelerate refuses this key beside deepspeed_config_file"),
        ("accelerate", '"distributed_type": "DEEPSPEED", "num_processes": 8, "mixed_precision": "bf16", "deepspeed_config": { "deepspeed_config_file": "ds.json" }',
         "mixed_precision: accelerate refuses this key beside deepspeed_config_file"),
    ],
    ids=str,
)  # fmt: skip
def test_what_the_framework_itself_refuses_is_not_imported(run, tmp_path, kind, text, words):
    if kind == "gpt-neox":
        text += ', "num_layers": 2, "hidden_size": 64, "num_attention_heads": 4'
    name = "ds0.json" if kind == "deepspeed" else "file.yaml"
    (tmp_path / name).write_text("{" + text + "}")
    (tmp_path / "ds.json").write_text(DEEPSPEED)
    files = [name, "ds.json"] if "deepspeed_config_file" in text else [name]
    world = [] if kind == "accelerate" else ["--world-size", "8"]
    result = run("import", kind, *files, *world)
    assert (result.returncode, result.stdout) == (2, "") and words in result.stderr, result.stderr


def test_keys_of_deepspeed_that_gpt_neox_s_release_still_has_stay_there(run, tmp_path):
    (tmp_path / "neox.yml").write_text(
        '{ "num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "train_micro_batch_size_per_gpu": 1, "amp": { "enabled": false } }'
    )
    result = run("import", "gpt-neox", "neox.yml", "--world-size", "8")
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("kind", ["MULTI_GPU", "FSDP"])
def test_use_cpu_does_not_keep_accelerate_from_starting_all_processes(run, tmp_path, kind):
    # accelerate 1.15: launch_command asks for --cpu of the command line, not for use_cpu of the file.
    (tmp_path / "a.yaml").write_text(f"distributed_type: {kind}\nnum_processes: 8\nuse_cpu: true\n")
    result = run("import", "accelerate", "a.yaml")
    assert result.returncode == 0 and json.loads(result.stdout)["layout"] == {"dp": 8}, result.stderr


def test_one_process_of_accelerate_may_be_asked_for(run, tmp_path):
    (tmp_path / "a.yaml").write_text("distributed_type: 'NO'\nnum_processes: 8\n")
    result = run("import", "accelerate", "a.yaml", "--world-size", "1")
    assert result.returncode == 0 and json.loads(result.stdout)["layout"] == {}, result.stderr


@pytest.mark.parametrize("flag", ["--use-checkpoint-args", "--use-mp-args-from-checkpoint-args"])
def test_arguments_from_a_checkpoint_are_not_known(run, flag):
    result = run("import", "megatron", "--world-size", "4", "--", *ARGUMENTS, flag)
    assert (result.returncode, result.stdout) == (2, "")
    assert f"{flag}: Megatron takes the model" in result.stderr


def log_of(**values):
    names = {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 64, "padded_vocab_size": 1024,
             "micro_batch_size": 1, "global_batch_size": 16, "world_size": 8, "tensor_model_parallel_size": 2,
             "data_parallel_size": 4, "use_checkpoint_args": True, **values}  # fmt: skip
    lines = [f"  {name} {'.' * (48 - len(name))} {value}\n" for name, value in names.items()]
    return "------------------------ arguments ------------------------\n" + "".join(lines) + "-------------------- end of arguments ---------------------\n"


def test_a_log_that_contradicts_itself_is_refused_and_one_with_several_blocks_says_which_counts(run, tmp_path):
    # What a checkpoint said stands in the log.
    (tmp_path / "log.txt").write_text(log_of())
    result = run("import", "megatron", "log.txt")
    assert result.returncode == 0 and "several blocks" not in result.stderr, result.stderr
    (tmp_path / "log.txt").write_text(log_of(data_parallel_size=8))
    result = run("import", "megatron", "log.txt")
    assert result.returncode == 2 and "data_parallel_size: it is 8, but the other sizes in this block leave 4" in result.stderr
    (tmp_path / "log.txt").write_text(log_of(seq_length=8) + log_of(seq_length=16))
    assert "several blocks" not in run("import", "megatron", "log.txt").stderr
    (tmp_path / "log.txt").write_text(log_of(global_batch_size=8) + "step 1\n" + log_of())
    result = run("import", "megatron", "log.txt")
    assert result.returncode == 0, result.stderr
    assert "The log has several blocks of arguments, and the last one counts; the one before it differs in global_batch_size." in result.stderr


def test_biases_that_every_rank_adds_are_said_to_be_parameters_of_their_own(run, tmp_path):
    text = '"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "train_micro_batch_size_per_gpu": 1, "gpt_j_residual": true'
    for more, said in [("", False), (', "model_parallel_size": 2', True),
                       (', "model_parallel_size": 2, "use_bias_in_attn_linear": false, "use_bias_in_mlp": false', False)]:  # fmt: skip
        (tmp_path / "neox.yml").write_text("{" + text + more + "}")
        result = run("import", "gpt-neox", "neox.yml", "--world-size", "4", "--check")
        assert ("are added 2 times, once by each tensor-parallel rank" in result.stderr) == said, result.stderr
        assert ("each copy of a row-parallel bias a parameter of its own" in result.stdout) == said, result.stdout


@pytest.mark.parametrize("line", ["A[${#A[@]}]=--sequence-parallel", "eval TP=4", "printf -v TP 4", "mapfile -t TP < tp.txt", 'export "$N=4"'])
def test_what_the_shell_writes_into_a_variable_is_refused_at_its_place(run, tmp_path, line):
    text = f'TP=2\nN=TP\nA=(--bf16)\n{line}\ntorchrun pretrain_gpt.py {" ".join(ARGUMENTS)} --tensor-model-parallel-size $TP "${{A[@]}}"\n'
    (tmp_path / "run.sh").write_text(text)
    result = run("import", "megatron", "run.sh", "--world-size", "8")
    assert (result.returncode, result.stdout) == (2, "") and "line 4" in result.stderr, result.stderr


def test_what_an_unknown_text_may_set_is_said(run, tmp_path):
    (tmp_path / "run.sh").write_text(f'eval "$(conda shell.bash hook)"\ntorchrun pretrain_gpt.py {" ".join(ARGUMENTS)}\n')
    result = run("import", "megatron", "run.sh", "--world-size", "8")
    assert result.returncode == 0, result.stderr
    assert "Line 1 may set variables whose names are not known here" in result.stderr


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
    # A sanitizer reserves terabytes of addresses and uses few of them.
    if "release" not in run("version").stdout:
        limit = resource.RLIM_INFINITY
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
