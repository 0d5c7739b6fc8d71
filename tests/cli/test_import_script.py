# SPDX-License-Identifier: Apache-2.0
"""`lockstep import megatron --run`: bash runs the launch script, and what it starts is imported."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ARGUMENTS = "--hidden-size 64 --num-attention-heads 8 --seq-length 32 --max-position-embeddings 32 --micro-batch-size 1 --global-batch-size 16"
# What no reader of shell follows without running it: branches, loops, functions, arrays, other files, arithmetic, text tools.
SCRIPT = """#!/bin/bash
set -euo pipefail
source sizes.sh
while IFS='=' read -r key value; do declare "$key=$value"; done <<'EOF'
NODES=2
EOF
layers() { echo "$(seq 1 4 | tail -n 1)"; }
if [[ ${FAST:-no} == yes ]]; then PIPELINE=1; else PIPELINE=2; fi
GPUS=$(nvidia-smi -L | wc -l)
cd /workspace/megatron
mkdir -p logs
MODEL=(--num-layers "$(layers)" ARGUMENTS)
case $TENSOR in 2) MODEL+=(--tensor-model-parallel-size 2) ;; *) exit 3 ;; esac
for ((i = 1; i < 2; ++i)); do MODEL+=(--pipeline-model-parallel-size $((PIPELINE * i))); done
torchrun --nproc_per_node "$GPUS" --nnodes "$NODES" pretrain_gpt.py "${MODEL[@]}" --save "${1:-}" 2>&1 | tee logs/out.log
""".replace("ARGUMENTS", ARGUMENTS)


def has_sandbox():
    spaces = ["unshare", "--user", "--map-root-user", "--mount", "--net", "--pid", "--fork", "--ipc", "--uts", "true"]
    return any(shutil.which(words[0]) and subprocess.run(words, capture_output=True, check=False).returncode == 0
               for words in (["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"], spaces))


needs_sandbox = pytest.mark.skipif(not has_sandbox(), reason="neither bubblewrap nor unshare works here")


@pytest.fixture
def script(tmp_path):
    def write(text, name="train.sh"):
        (tmp_path / name).write_text(text)
        return name

    (tmp_path / "sizes.sh").write_text("TENSOR=2\n")
    return write


def layout(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["layout"]


@needs_sandbox
def test_a_script_is_imported_by_what_it_starts(run, script):
    done = run("import", "megatron", "--run", script(SCRIPT))
    assert layout(done) == {"tp": 2, "pp": 2, "dp": 4}
    assert "It asked for the GPUs of this machine, and was told of eight" in done.stderr
    assert "No value, or more than one, as from a variable that is not set" not in done.stderr  # an empty word is one


@needs_sandbox
def test_set_is_its_environment_and_what_stands_behind_two_dashes_its_arguments(run, script):
    assert layout(run("import", "megatron", "--run", script(SCRIPT), "--set", "FAST=yes")) == {"tp": 2, "dp": 8}
    text = 'torchrun --nproc_per_node $1 pretrain_gpt.py --num-layers 2 %s "$2"\n' % ARGUMENTS
    assert layout(run("import", "megatron", "--run", script(text), "--", "4", "--swiglu")) == {"dp": 4}
    done = run("import", "megatron", "--run", script(text))
    missing = "error: train.sh takes 2 arguments and was given none; write them after --, in this order: $1, $2\n"
    assert done.returncode == 2 and done.stderr == missing + "error: the number of ranks is not known; give --world-size N\n"


@needs_sandbox
@pytest.mark.parametrize("launcher", [
    "nohup torchrun --nproc_per_node 2 %s &", "srun -N 1 bash -c 'torchrun --nproc_per_node 2 %s'", "exec torchrun --nproc_per_node 2 %s",
    "env A=1 torchrun --nproc_per_node 2 %s", "eval 'torchrun --nproc_per_node 2 %s'", "deepspeed --num_gpus 2 %s",
    "ray job submit --runtime-env-json='{\"a\":\n 1}' -- python3 %s --actor-num-nodes 1 --actor-num-gpus-per-node 2",
], ids=["nohup", "srun", "exec", "env", "eval", "deepspeed", "ray"])
def test_launchers(run, script, launcher):
    more = ["--ignore-unknown"] if launcher.startswith("ray") else []
    assert layout(run("import", "megatron", "--run", script(launcher % ("pretrain_gpt.py --num-layers 2 " + ARGUMENTS)), *more)) == {"dp": 2}


@needs_sandbox
def test_a_value_that_is_not_there_matters_only_where_the_key_does(run, script):
    text = "torchrun --nproc_per_node 2 pretrain_gpt.py --save $SAVE --load <(echo) x y --num-layers %s " + ARGUMENTS + "\n"
    done = run("import", "megatron", "--run", script(text % 2))
    assert done.returncode == 0 and "No value, or more than one, as from a variable that is not set: --save, --load; they do not matter for gradients." in done.stderr
    done = run("import", "megatron", "--run", script(text % "$LAYERS"))
    assert done.returncode == 2 and "--num-layers needs a value" in done.stderr


@needs_sandbox
def test_what_the_script_says_is_passed_on_where_it_starts_nothing(run, script):
    done = run("import", "megatron", "--run", script("set -u\necho first\necho $BASE\n"))
    assert done.returncode == 2 and done.stdout == ""
    assert "error: train.sh started no program that is known to start training\n" in done.stderr
    assert 'error: train.sh ended with status 1, and said last "' in done.stderr and "BASE: unbound variable" in done.stderr


@needs_sandbox
def test_a_script_that_starts_something_else_is_told_how_to_go_on(run, script):
    done = run("import", "megatron", "--run", script("unknown --a --b --c\n"))
    assert "this script has no command with three or more arguments of the framework; give these arguments without the script: lockstep import megatron -- ARGUMENTS, and" in done.stderr
    done = run("import", "megatron", "--run", script("for tp in 1 2; do torchrun pretrain_gpt.py %s --tensor-model-parallel-size $tp; done\n" % ARGUMENTS))
    assert "starts a training more than once, in lines 1 and 2; give the arguments of one alone: lockstep import megatron -- ARGUMENTS\n" in done.stderr


@needs_sandbox
def test_missing_arguments_are_asked_for_at_once_by_their_names(run, script):
    """With what the script does with each: values that it compares it with, the argument of the training that gets it."""
    text = """set -u
of() { echo $9; }
ENV=$1
SIZE=${2}
BATCH=$3
TP=${4:-1}
LAYERS=${10}
if [ $ENV = dsw ]; then GPUS=8; elif [ $ENV = dlc ]; then GPUS=4; fi
awk '{print $7}' /dev/null
torchrun --nproc_per_node $GPUS pretrain_gpt.py --num-layers $LAYERS --micro-batch-size $BATCH --tensor-model-parallel-size $TP %s
""" % ARGUMENTS.replace("--micro-batch-size 1", "")
    names = "ENV (dsw or dlc), SIZE, BATCH (--micro-batch-size), TP (--tensor-model-parallel-size), $5, $6, $7, $8, $9, LAYERS (--num-layers)"
    done = run("import", "megatron", "--run", script(text))
    assert done.stderr.splitlines()[0] == "error: train.sh takes 10 arguments and was given none; write them after --, in this order: " + names
    done = run("import", "megatron", "--run", script(text), "--", "dsw", "7B", "1")
    assert done.stderr.splitlines()[0].endswith("takes 10 arguments and was given 3; write the others as well after --, in this order: "
                                                + names[names.index("TP"):])
    given = ["dlc", "7B", "1", "2", "5", "6", "7", "8", "9", "4"]
    assert layout(run("import", "megatron", "--run", script(text), "--", *given)) == {"tp": 2, "dp": 2}


@needs_sandbox
def test_options_that_a_script_reads_in_a_loop_have_no_order(run, script):
    text = 'while [[ $# -gt 0 ]]; do key="$1"; case $key in --tp) TP=$2; shift ;; esac; shift; done\n'
    text += "torchrun --nproc_per_node 2 pretrain_gpt.py --num-layers $LAYERS --tensor-model-parallel-size ${TP:-1} %s\n" % ARGUMENTS
    done = run("import", "megatron", "--run", script(text))
    assert done.stderr.splitlines()[0] == "error: train.sh takes options and was given none; write them after --"
    assert "--num-layers needs a value" in done.stderr
    assert layout(run("import", "megatron", "--run", script(text), "--set", "LAYERS=2", "--", "--tp", "2")) == {"tp": 2}


@needs_sandbox
def test_what_a_script_writes_beside_itself_is_there_for_it_alone(run, script, tmp_path):
    text = 'set -e\nmkdir "$(dirname "$0")/made"\necho 2 >"$(dirname "$0")/made/number"\necho TENSOR=1 >%s/sizes.sh\n' % tmp_path
    text += 'torchrun --nproc_per_node $(cat %s/made/number) pretrain_gpt.py --num-layers 2 %s\n' % (tmp_path, ARGUMENTS)
    done = run("import", "megatron", "--run", script(text))
    if "Read-only file system" in done.stderr:
        pytest.skip("this kernel lays no file system in memory over a folder")
    assert layout(done) == {"dp": 2}
    assert (tmp_path / "sizes.sh").read_text() == "TENSOR=2\n" and not (tmp_path / "made").exists()


@needs_sandbox
def test_variables_that_nothing_sets_are_named_where_the_script_fails(run, script):
    text = 'set -u\nfor I in 1; do :; done\nA=$(dirname "$BASE/$I")\necho $A $OTHER ${WITH_DEFAULT:-1} $HOME\n'
    done = run("import", "megatron", "--run", script(text))
    assert "it takes from its environment BASE, OTHER: give --set BASE=VALUE and so on\n" in done.stderr
    assert "it takes from its environment OTHER: give --set OTHER=VALUE\n" in run("import", "megatron", "--run", script(text), "--set", "BASE=/x").stderr


@needs_sandbox
def test_what_a_script_wrote_and_nothing_sets_is_said_where_what_it_started_cannot_be_imported(run, script):
    text = "echo hello\ntorchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py --num-layers 2 %s --pipeline-model-parallel-size $STAGES\n" % ARGUMENTS
    refused = run("import", "megatron", "--run", script(text))
    assert refused.returncode and "--pipeline-model-parallel-size needs a value" in refused.stderr
    assert 'train.sh said last "hello"; it takes from its environment STAGES: give --set STAGES=VALUE\n' in refused.stderr
    done = run("import", "megatron", "--run", script(text), "--set", "STAGES=2")
    assert layout(done) == {"pp": 2, "dp": 4} and "hello" not in done.stderr


@needs_sandbox
def test_megatron_deepspeed_is_judged_by_the_configuration_that_the_script_writes(run, script, tmp_path):
    text = """ZERO=1
cat <<EOF >$PWD/ds.json
{ "train_batch_size": 16, "train_micro_batch_size_per_gpu": 1, "zero_optimization": { "stage": $ZERO } }
EOF
deepspeed --num_gpus 4 pretrain_gpt.py --num-layers 2 ARGUMENTS --tensor-model-parallel-size 2 --deepspeed --deepspeed_config=ds.json
""".replace("ARGUMENTS", ARGUMENTS)
    done = run("import", "megatron", "--run", script(text))
    assert layout(done) == {"tp": 2, "dp": 2}
    schedule = json.loads(done.stdout)["schedule"]
    assert schedule == {"framework": "deepspeed", "options": {"pipeline_engine": True, "zero_stage": 1}}
    assert "Megatron-DeepSpeed 4efb479d (16 July 2025) with DeepSpeed 0.19.8" in done.stderr
    done = run("import", "megatron", "--run", script(text.replace("=ds.json", " nothing.json")))
    assert done.returncode == 2 and "its configuration is not there; give it as a second file" in done.stderr
    (tmp_path / "by-hand.json").write_text('{ "train_batch_size": 16, "train_micro_batch_size_per_gpu": 1 }')
    assert layout(run("import", "megatron", "--run", script(text.replace("=ds.json", " nothing.json")), "by-hand.json")) == {"tp": 2, "dp": 2}
    done = run("import", "megatron", "--run", script(text.replace("--deepspeed --deepspeed_config=ds.json", "")), "by-hand.json")
    assert done.returncode == 2 and "expected one configuration of Megatron-LM, found 2 files" in done.stderr
    done = run("import", "megatron", "--run", script(text.replace("$ZERO", "2")))
    assert done.returncode == 2 and "pipeline engine refuses ZeRO stage 2" in done.stderr


@needs_sandbox
def test_python_is_told_of_eight_gpus_too(run, script):
    text = "GPUS=`python -c 'import torch; print(torch.cuda.device_count())'`\ntorchrun --nproc_per_node $GPUS pretrain_gpt.py --num-layers 2 %s\n" % ARGUMENTS
    done = run("import", "megatron", "--run", script(text))
    assert layout(done) == {"dp": 8} and "was told of eight" in done.stderr and "started python" not in done.stderr


@needs_sandbox
def test_what_a_cluster_tells_its_first_node_is_there(run, script):
    text = '[[ -n $MASTER_ADDR && -n $MASTER_PORT && $NODE_RANK == 0 && $RANK == 0 ]] || exit 3\n[[ -z ${WORLD_SIZE-} ]] || exit 4\n'
    text += "torchrun --nproc_per_node 2 pretrain_gpt.py --num-layers 2 %s\n" % ARGUMENTS
    assert layout(run("import", "megatron", "--run", script(text))) == {"dp": 2}
    assert "ended with status 3" in run("import", "megatron", "--run", script(text), "--set", "NODE_RANK=1").stderr


@needs_sandbox
@pytest.mark.parametrize("text, noted", [
    ('if [ -n "$RANK" ]; then NODES=4; else NODES=1; fi', "RANK, which was 0 here"),
    ("NODES=1; [[ ${RANK:-} == 0 ]] && NODES=4", "RANK, which was 0 here"),
    ("NODES=4; MASTER_ADDR=${MASTER_ADDR:-127.0.0.1}; export NODE_RANK", "MASTER_ADDR, which was localhost here, and NODE_RANK, which was 0 here"),
    ("NODES=4\nif false; then\nRANK=1\nfi\n: $RANK", "RANK, which was 0 here"),
    ("NODES=4; [[ $RANK==1 ]]", "RANK, which was 0 here"),
    ("NODES=4\n: ${MASTER_PORT:=1}", "MASTER_PORT, which was 29500 here"),
    ("NODES=4\nexport MASTER_ADDR=$(hostname | head -n 1)\nRANK=1 # of two\n: $RANK $MASTER_ADDR $MY_RANK # RANKS", ""),
    ("NODES=4\n# $RANK", "")])
def test_what_a_script_reads_of_a_first_node_is_named(run, script, text, noted):
    text += "\ntorchrun --nproc_per_node 2 --nnodes $NODES pretrain_gpt.py --num-layers 2 %s\n" % ARGUMENTS
    done = run("import", "megatron", "--run", script(text))
    assert layout(done) == {"dp": 8}
    assert re.findall("It reads (.*), as on a first node; --set says otherwise", done.stderr) == ([noted] if noted else [])
    if noted.startswith("RANK"):
        assert "It reads" not in run("import", "megatron", "--run", script(text), "--set", "RANK=0").stderr


@needs_sandbox
def test_mistakes_beside_missing_arguments_are_said_too(run, script):
    text = "TP=$1\ntorchrun --nproc_per_node 2 pretrain_gpt.py --tensor-model-parallel-size $TP %s --num-layers\n" % ARGUMENTS
    lines = run("import", "megatron", "--run", script(text)).stderr
    assert lines.startswith("error: train.sh takes 1 argument and was given none")
    assert "--num-layers needs a value" in lines


@needs_sandbox
def test_a_file_of_the_repository_is_found_by_its_path_of_another_machine(run, script, tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "small.sh").write_text("declare -a MODEL=(--num-layers 2 --tensor-model-parallel-size 2)\n")
    text = 'set -e\nsource "/elsewhere/of/others/models/small.sh"\ntorchrun --nproc_per_node 4 pretrain_gpt.py "${MODEL[@]}" %s\n' % ARGUMENTS
    done = run("import", "megatron", "--run", script(text))
    assert layout(done) == {"tp": 2, "dp": 2}
    assert "It reads a file in a folder that is not here; that of its repository was taken: models/small.sh." in done.stderr
    # The name alone is no reason to take another file.
    done = run("import", "megatron", "--run", script(text.replace("models/small.sh", "sizes.sh")))
    assert done.returncode == 2 and "No such file or directory" in done.stderr


@needs_sandbox
def test_a_file_of_the_repository_is_found_by_a_path_that_a_variable_makes(run, script, tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "small.sh").write_text("source $WORK/models/more.sh\nexport TP=2\n")
    (tmp_path / "models" / "more.sh").write_text("export LAYERS=2\n")
    for first in ("WORK=/elsewhere/of/others\n", "WORK=/elsewhere\nset -e\n"):
        text = first + "source $WORK/models/small.sh\ntorchrun --nproc_per_node 4 pretrain_gpt.py --num-layers $LAYERS --tensor-model-parallel-size $TP %s\n" % ARGUMENTS
        done = run("import", "megatron", "--run", script(text))
        assert layout(done) == {"tp": 2, "dp": 2}
        assert "that of its repository was taken: models/small.sh, models/more.sh." in done.stderr
    done = run("import", "megatron", "--run", script("set -e\n: $SLURM_JOB_NODELIST\n" + text.replace("small.sh", "others.sh")))
    assert done.returncode == 2 and "/elsewhere/models/others.sh is not here" in done.stderr and "SLURM_JOB_NODELIST: give" not in done.stderr


@needs_sandbox
def test_an_argument_that_has_to_be_there_is_asked_for_and_a_default_is_no_variable_of_the_environment(run, script):
    text = 'LOG_DIR=${1:?no folder}\n: "${LAYERS:=2}"\ntorchrun --nproc_per_node 2 pretrain_gpt.py --num-layers $LAYERS %s --save $LOG_DIR\n' % ARGUMENTS
    done = run("import", "megatron", "--run", script(text))
    assert done.returncode == 2 and "train.sh takes 1 argument and was given none; write them after --, in this order: LOG_DIR" in done.stderr
    assert "LAYERS: give" not in done.stderr
    assert layout(run("import", "megatron", "--run", script(text), "--", "/logs")) == {"dp": 2}


@needs_sandbox
def test_placeholders_of_a_document_are_values(run, script):
    text = "DATA=<Specify path and file prefix>_text\nSAVE=<Specify path>\ntorchrun --nproc_per_node 2 pretrain_gpt.py --num-layers 2 %s --save $SAVE --data-path $DATA\n"
    done = run("import", "megatron", "--run", script(text % ARGUMENTS))
    assert layout(done) == {"dp": 2} and "Its <placeholders> were taken as they are" in done.stderr
    done = run("import", "megatron", "--run", script(text % ARGUMENTS.replace("16", "$SAVE")))
    assert done.returncode == 2 and "--global-batch-size" in done.stderr


@needs_sandbox
def test_placeholders_of_several_words_are_read_from_no_file(run, script):
    text = ('# %s\nOUT="<some dir>"\nOPTIONS="--num-layers 2 ' + ARGUMENTS + ' --save=${OUT}"\n'
            'srun --container-image <path to docker image> \\\n  -n 2 %s sh -c "python pretrain_gpt.py ${OPTIONS}"\n')
    done = run("import", "megatron", "--run", script(text % ("usage: <some words>", "--output=<a b c>")))
    assert layout(done) == {"dp": 2} and "Its <placeholders> were taken as they are" in done.stderr
    # A comment has none, and a file that is there is read.
    plain = "# usage: <some words>\ntorchrun --nproc_per_node $(cat <in.txt) pretrain_gpt.py --num-layers 2 %s\n" % ARGUMENTS
    script("2\n", "in.txt")
    done = run("import", "megatron", "--run", script(plain))
    assert layout(done) == {"dp": 2} and "placeholders" not in done.stderr


@needs_sandbox
def test_a_folder_that_a_script_writes_to_is_made(run, script):
    text = "set -e\ncat >./tmp/of/run/ds.txt <<<2\ntorchrun --nproc_per_node $(cat tmp/of/run/ds.txt) pretrain_gpt.py --num-layers 2 %s\n" % ARGUMENTS
    done = run("import", "megatron", "--run", script(text))
    assert layout(done) == {"dp": 2} and "It writes to folders that were not there, and were made: ./tmp/of/run/." in done.stderr
    done = run("import", "megatron", "--run", script("set -e\ncat /nowhere/x\nsource /nowhere/y.sh\n"))
    assert done.returncode == 2 and "No such file" in done.stderr


@needs_sandbox
def test_a_hostile_script_changes_nothing_and_reads_no_other_files(run, script, tmp_path):
    outside = tmp_path.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("a secret")
    text = """
cat %s/secret >taken; echo x >%s/written; echo x >written; rm -rf %s %s/train.sh; mkdir %s/made
python3 $(cat taken) /etc/passwd "$(cat /etc/passwd | head -n 1)" "$(ls /home /root %s 2>&1 | head -n 3)" --num-layers 1 --hidden-size 1 --seq-length 1
for file in /etc/hostname /proc/1/environ /sys/kernel; do [[ -e $file ]] && torchrun $file; done
(exec 3<>/dev/tcp/127.0.0.1/22) 2>/dev/null && torchrun network
""" % ((outside,) * 3 + (tmp_path, outside, outside))
    done = run("import", "megatron", "--run", script(text))
    assert done.returncode == 2 and "a secret" not in done.stderr and "root:" not in done.stderr
    assert sorted(path.name for path in outside.iterdir()) == ["secret"] and sorted(path.name for path in tmp_path.iterdir()) == ["sizes.sh", "train.sh"]


def test_without_a_sandbox_nothing_is_run(run, script, tmp_path):
    (tmp_path / "tools").mkdir()
    for tool in ("bash", "cat", "cp", "chmod", "ln", "mkdir", "env", "touch", "readlink"):
        os.symlink(shutil.which(tool), tmp_path / "tools" / tool)
    done = run("import", "megatron", "--run", script("touch %s/made\n" % tmp_path), env={"PATH": str(tmp_path / "tools")})
    assert done.returncode == 2 and done.stderr.startswith("error: --run needs bubblewrap, or unshare of util-linux where it may make namespaces")
    assert not (tmp_path / "made").exists()


@needs_sandbox
def test_a_script_sees_neither_hidden_files_nor_what_is_open(run, script, tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("token-of-git")
    (tmp_path / ".netrc").write_text("token-of-netrc")
    (tmp_path / "beside").write_text("not hidden")
    opened = tmp_path.parent / "opened"
    opened.write_text("open before\n")
    with open(opened, "r+", encoding="utf-8") as file:
        number = file.fileno()
        text = "cat %s/.git/config %s/.netrc %s/beside; (echo written >&%d) 2>/dev/null; (cat <&%d) 2>/dev/null; exit 5\n" % (*[tmp_path] * 3, number, number)
        done = run("import", "megatron", "--run", script(text), pass_fds=(number,))
    assert 'said last "not hidden"' in done.stderr and "token" not in done.stderr
    assert opened.read_text() == "open before\n"


@needs_sandbox
def test_what_a_script_leaves_where_commands_are_written_is_read_as_that_alone(run, script, tmp_path):
    """Links, devices and files without an end in the folder that it shares with this program."""
    outside = tmp_path.parent / "call.of-others"
    outside.write_bytes(b"torchrun\0--nproc_per_node\0002\0pretrain_gpt.py\0--num-layers\0002\0" + "\0".join(ARGUMENTS.split()).encode() + b"\0")
    text = "ln -s %s /out/call.1; ln -s /dev/zero /out/call.2; ln -s /dev/zero /out/call.3.part; exit 4\n" % outside
    done = run("import", "megatron", "--run", script(text))
    assert done.returncode == 2 and "started no program" in done.stderr
    done = run("import", "megatron", "--run", script("i=0; while :; do head -c 3000000 /dev/zero >/out/large.$i; i=$((i + 1)); done\n"))
    assert done.returncode == 2 and "was stopped: it takes longer than 20 seconds, or writes down too much" in done.stderr


@needs_sandbox
def test_what_stands_in_front_of_a_shell_is_kept(run, script):
    text = "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=2\nsrun -n 2 bash -c 'python pretrain_gpt.py --num-layers 2 %s'\n" % ARGUMENTS
    assert layout(run("import", "megatron", "--run", script(text))) == {"dp": 2}


@needs_sandbox
def test_one_start_on_several_nodes_is_one(run, script):
    text = "for i in 0 1 2; do torchrun --nnodes 3 --nproc_per_node 2 --node_rank $i pretrain_gpt.py --num-layers 2 %s & done\n" % \
        ARGUMENTS.replace("16", "18")
    assert layout(run("import", "megatron", "--run", script(text))) == {"dp": 6}


@needs_sandbox
def test_programs_that_are_started_besides_are_named(run, script):
    text = "TP=$(python3 choose.py)\ntorchrun --nproc_per_node 2 pretrain_gpt.py --num-layers 2 --tensor-model-parallel-size ${TP:-1} %s\n" % ARGUMENTS
    done = run("import", "megatron", "--run", script(text))
    assert "The script started python3 too, which did nothing: what it reads of it was empty." in done.stderr
    assert "started python3 too" in run("import", "megatron", "--run", script(text.replace("choose.py", "choose.py --a 1 --b 2 --c 3"))).stderr


@needs_sandbox
def test_limits_are_those_of_the_script_whatever_it_calls(run, script):
    text = "exec 2>&1\necho $(builtin ulimit -t) $(builtin ulimit -f) $(builtin ulimit -v)\nexit 7\n"
    assert 'ended with status 7, and said last "10 8192 2000000"' in run("import", "megatron", "--run", script(text)).stderr


@needs_sandbox
def test_a_folder_beside_the_script_can_be_written_to(run, script, tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "old").write_text("2")
    text = "torchrun --nproc_per_node $(cat logs/old) pretrain_gpt.py --num-layers 2 %s >logs/new\n" % ARGUMENTS
    assert layout(run("import", "megatron", "--run", script(text))) == {"dp": 2}
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["old"]


@needs_sandbox
def test_the_example_of_the_document(run, script, tmp_path):
    text = (Path(__file__).resolve().parents[2] / "docs" / "import.md").read_text(encoding="utf-8")
    (name,), (command, said) = re.findall(r"<!-- file: (branches\.sh) -->", text), re.search(r"\$ tools/lockstep (import .*branches.*)\n(.*)\n", text).groups()
    script(re.search(r"branches\.sh -->\n```bash\n(.*?)```", text, re.DOTALL)[1], name)
    assert run(*command.split()).stdout == said + "\n"


@pytest.mark.parametrize("arguments, message", [
    (["deepspeed", "--run", "train.sh"], "--run runs launch scripts of Megatron-LM, and deepspeed has none: leave it out"),
    (["megatron", "--run"], "--run runs one launch script that is a file, and behind it may stand DeepSpeed's configuration; found 0 files"),
    (["megatron", "--run", "-"], "--run runs one launch script that is a file, found standard input"),
    (["megatron", "--run", "-", "sizes.sh"], "--run runs one launch script that is a file, found standard input"),
    (["megatron", "--run", "train.sh", "sizes.sh", "x"], "--run runs one launch script that is a file, and behind it may stand DeepSpeed's configuration; found 3 files"),
    (["megatron", "--run", "train.sh", "nothing.json"], "error: there is no file nothing.json\n"),
    (["megatron", "--run", "nothing.sh"], "error: there is no file nothing.sh\n"),
    (["megatron", "--run", "/dev/null"], "error: --run runs a file, and /dev/null is a pipe or a device\n"),
    (["megatron", "--run", "train.sh", "--set", "x"], "--set takes NAME=VALUE, such as NNODES=4, found \"x\""),
])
def test_mistakes(run, script, arguments, message):
    script("echo\n")
    done = run("import", *arguments)
    assert done.returncode == 2 and message in done.stderr


@needs_sandbox
def test_what_a_script_sources_is_searched_for_what_only_a_first_node_has(run, script, tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "env.sh").write_text('. "$(dirname "${BASH_SOURCE[0]}")/more.sh"\nSTAGES=2\n')
    (tmp_path / "lib" / "more.sh").write_text('[ "$NODE_RANK" = 0 ] && LAYERS=4\n')
    (tmp_path / "lib" / "unused.sh").write_text("echo $MASTER_PORT\n")
    text = 'source "$(dirname "$0")/lib/env.sh"  # not lib/unused.sh\n'
    text += "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers $LAYERS %s --pipeline-model-parallel-size $STAGES $MORE\n" % ARGUMENTS
    done = run("import", "megatron", "--run", script(text))
    assert layout(done) == {"pp": 2, "dp": 4}
    assert "It reads NODE_RANK, which was 0 here, as on a first node; --set says otherwise.\n" in done.stderr
    # What it sources sets STAGES: only MORE is asked for.
    done = run("import", "megatron", "--run", script(text.replace("--num-layers", "--num-layer")))
    assert "it takes from its environment MORE: give --set MORE=VALUE\n" in done.stderr


@needs_sandbox
def test_the_batch_system_sets_what_the_lines_for_it_say(run, script):
    text = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=4\n"
    text += "torchrun --nnodes $SLURM_NNODES --nproc_per_node ${SLURM_GPUS_PER_NODE:?} pretrain_gpt.py --num-layers 2 %s\n" % ARGUMENTS
    done = run("import", "megatron", "--run", script(text))
    assert layout(done) == {"dp": 8}
    assert "Its #SBATCH lines say SLURM_NNODES 2, SLURM_GPUS_PER_NODE 4; --set says otherwise.\n" in done.stderr
    done = run("import", "megatron", "--run", script(text), "--set", "SLURM_NNODES=4")
    assert layout(done) == {"dp": 16} and "lines say SLURM_GPUS_PER_NODE 4; --set" in done.stderr


@needs_sandbox
def test_the_batch_system_reads_its_lines_as_sbatch_does(run, script):
    # The last of two counts, what is commented out does not, nor what stands behind the first command.
    lines = "#!/bin/bash\n##SBATCH --nodes=8\n#SBATCH --nodes=2\n\n# One node more.\n#SBATCH -N \"4\" # of this partition\n"
    lines += "#SBATCH --tasks-per-node 8\n#SBATCH --gres=gpu:a100:8,nvme\nset -e\n#SBATCH --nodes=16\n"
    text = lines + "srun python pretrain_gpt.py --num-layers 2 %s --global-batch-size ${SLURM_NTASKS:-4}\n" % ARGUMENTS
    for options in ([], ["--run"]):
        done = run("import", "megatron", *options, script(text))
        assert layout(done) == {"dp": 32} and json.loads(done.stdout)["batch"]["micro_batches"] == 1
    counted = "torchrun --nnodes 2 --nproc_per_node $(echo $CUDA_VISIBLE_DEVICES | tr , '\\n' | wc -l) pretrain_gpt.py --num-layers 2 %s\n" % ARGUMENTS
    assert layout(run("import", "megatron", "--run", script(lines + counted))) == {"dp": 16}
    done = run("import", "megatron", "--run", script(counted))
    assert layout(done) == {"dp": 2}
    assert "It reads CUDA_VISIBLE_DEVICES, which nothing here has set; --set says otherwise.\n" in done.stderr
    asked = "#SBATCH --gres=gpu:4\n" + counted.replace("echo $CUDA_VISIBLE_DEVICES | tr , '\\n'", "nvidia-smi -L")
    done = run("import", "megatron", "--run", script(asked))
    assert layout(done) == {"dp": 8} and "was told of 4; --world-size" in done.stderr
    more = "M=$(nvidia-smi -i 0 -q)\n" + asked
    done = run("import", "megatron", "--run", script(more))
    assert "The script started nvidia-smi (where it lists no GPUs) too, which did nothing" in done.stderr
    nodes = "NODES=($(scontrol show hostnames))\ntorchrun --nnodes ${#NODES[@]} --nproc_per_node 4 pretrain_gpt.py --num-layers 2 %s\n" % ARGUMENTS
    assert layout(run("import", "megatron", "--run", script("#SBATCH --nodes=2\n" + nodes))) == {"dp": 8}
    done = run("import", "megatron", "--run", script(nodes))
    assert layout(done) == {"dp": 4} and "names of its nodes, and was told of one; --set SLURM_NNODES=N gives others.\n" in done.stderr
    assert layout(run("import", "megatron", "--run", script(nodes), "--set", "SLURM_NNODES=4")) == {"dp": 16}
