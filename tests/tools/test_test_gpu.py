# SPDX-License-Identifier: Apache-2.0
"""tools/test-gpu on a machine without a GPU: the program, with a GPU's answers made of the host engine's."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.path.abspath(os.environ.get("LOCKSTEP_BINARY", "lockstep"))
RANDOM = 6
BUFFERS = [*(f"{count} elements of float32" for count in (1, 511, 512, 513, 1000003, 2147483649, 4294967809)),
           *(f"{count} elements of {dtype}" for dtype in ("float64", "bfloat16", "float16") for count in (1, 513, 1000003))]


@pytest.fixture
def corpus(tmp_path):
    """A few small files: right, wrong, and one that never comes to numbers."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    for verdict in ("match", "mismatch", "deadlock"):
        chosen = [path for path in sorted((ROOT / "scenarios").rglob("*.json"))
                  if '"preset"' not in (text := path.read_text(encoding="utf-8")) and f'"verdict": "{verdict}"' in text
                  and "scale" not in path.parts][:2]
        assert len(chosen) == 2, verdict
        for path in chosen:
            shutil.copy(path, folder)
    return folder


@pytest.fixture
def test_gpu(corpus, tmp_path):
    tools = tmp_path / "path"
    tools.mkdir()
    # A machine with two GPUs; compute-sanitizer says nothing, or finds something.
    for name, text in {"nvidia-smi": "echo A100; echo A100",
                       "compute-sanitizer": 'touch "$6"; shift 6; [[ $FAKE != sanitizer ]] || exit 9; exec "$1" "${@:2}"',
                       # Its torch sees a GPU where FAKE says so, and of its tests it says the status alone.
                       "python3": f'case "$1 $2" in "-c "*torch*) [[ $FAKE == *torch* ]] ;; "-m pytest") [[ $FAKE != torch-differs ]] ;; '
                                  f'*) exec {sys.executable} "$@" ;; esac'}.items():
        (tools / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (tools / name).chmod(0o755)

    def run(*arguments, fake=""):
        environment = dict(os.environ, LOCKSTEP_BINARY=str(ROOT / "tests" / "tools" / "fake_gpu_lockstep"), LOCKSTEP_REAL=PROGRAM,
                           FAKE=fake, FAKE_LOG=str(tmp_path / "log"), PATH=f"{tools}:{os.environ['PATH']}")
        done = subprocess.run([ROOT / "tools" / "test-gpu", *(arguments or ("--random", str(RANDOM), corpus))], cwd=tmp_path,
                              env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
        done.table = {row[0]: row[1:] for line in done.stdout.splitlines() if len(row := re.split(r"  +", line)) == 6}
        done.log = (tmp_path / "log").read_text(encoding="utf-8").splitlines() if (tmp_path / "log").exists() else []
        return done

    return run


def results(done):
    return {name: row[-1] for name, row in done.table.items()}


def test_where_all_hashes_are_equal_the_table_says_what_was_replayed(test_gpu):
    done = test_gpu()
    assert done.returncode == 0, done.stdout + done.stderr
    names = ["corpus", "random schedules from seed 1", *BUFFERS]
    expected = [f"{name}, {engine}" for name in names for engine in ("cuda", "nccl")]
    assert list(done.table) == [*expected, "compute-sanitizer, memcheck", "compute-sanitizer, racecheck"]
    assert set(results(done).values()) == {"equal"}
    assert done.table["corpus, cuda"][:3] == ["6", "4", "0"]  # a deadlock has no numbers
    assert done.table["2147483649 elements of float32, nccl"][:3] == ["1", "1", "0"]
    files, replayed, skipped = map(int, done.table["random schedules from seed 1, cuda"][:3])
    assert files == RANDOM and RANDOM / 3 < replayed < RANDOM and skipped == 0
    assert "      2 A100" in done.stdout
    # nvidia-smi lists GPUs that CUDA_VISIBLE_DEVICES hides: the engine itself looks how many there are.
    assert any("--engine symbolic,host,nccl " in line for line in done.log) and not any("--gpus" in line for line in done.log)


def test_captures_are_compared_where_torch_sees_the_gpu(test_gpu, corpus):
    done = test_gpu("--random", "0", corpus, fake="torch")
    assert done.returncode == 0 and results(done)["captures of training"] == "equal"
    done = test_gpu("--random", "0", corpus, fake="torch-differs")
    assert done.returncode == 1 and results(done)["captures of training"] == "DIFFERS"
    done = test_gpu("--random", "0", corpus)
    assert done.returncode == 0 and "captures of training" not in done.table
    assert "captures of training were not compared (tests/python/test_gpu.py)" in done.stderr


def test_a_hash_that_differs_is_said_with_its_file(test_gpu):
    done = test_gpu(fake="differs")
    assert done.returncode == 1
    assert results(done)["corpus, cuda"] == results(done)["513 elements of bfloat16, nccl"] == "DIFFERS"
    assert '"disagreement": "w on rank 0 has another hash for cuda than for host"' in done.stderr
    assert '"file": "' in done.stderr


def test_schedules_that_are_skipped_are_counted_and_a_row_without_any_fails(test_gpu):
    done = test_gpu(fake="skipped")
    assert done.returncode == 1
    assert done.table["corpus, cuda"][1:3] + done.table["corpus, cuda"][4:] == ["3", "1", "equal"]
    assert results(done)["512 elements of float32, cuda"] == "NOT REPLAYED"
    done = test_gpu(fake="all-skipped")
    assert done.returncode == 1
    assert set(results(done).values()) == {"NOT REPLAYED"}


def test_a_program_that_ends_midway_has_failed(test_gpu):
    done = test_gpu("--random", "30", fake="dies")
    assert done.returncode == 1
    assert results(done)["random schedules from seed 1, cuda"] == "FAILED"
    assert "exit status 3 with 0 reports of 30" in done.stderr
    assert "cudaLaunchKernel failed on GPU 0" in done.stderr


def test_a_right_schedule_that_is_wrong_everywhere_is_wrong(test_gpu):
    done = test_gpu(fake="wrong")
    assert done.returncode == 1
    assert results(done)["1 elements of float32, cuda"] == "WRONG"
    assert results(done)["corpus, cuda"] == "equal"


def test_what_the_sanitizer_finds_fails(test_gpu):
    done = test_gpu(fake="sanitizer")
    assert done.returncode == 1
    assert {name for name, result in results(done).items() if result != "equal"} == {"compute-sanitizer, memcheck",
                                                                                      "compute-sanitizer, racecheck"}


def test_without_nccl_cuda_alone_is_compared(test_gpu):
    done = test_gpu(fake="no-nccl")
    assert done.returncode == 0
    assert not any("nccl" in name for name in done.table)
    assert "built without NCCL" in done.stderr


def test_without_a_gpu_it_ends_with_the_engines_sentence(test_gpu):
    done = test_gpu(fake="no-gpu")
    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.splitlines() == ['lockstep: the cuda engine finds no GPU: cudaGetDeviceCount says "no CUDA-capable device is '
                                        'detected". --engine host replays the same numbers']


def test_seed_gpus_and_mistakes_of_usage(test_gpu, corpus):
    done = test_gpu("--random", "3", "--seed", "7", "--gpus", "4", corpus)
    assert done.returncode == 0
    assert done.table["random schedules from seed 7, nccl on 4"][0] == "3"
    assert any("--engine symbolic,host,nccl --gpus 4 " in line for line in done.log)
    assert any("/7.json" in line and "/9.json" in line for line in done.log)
    for arguments, sentence in {("--gpus", "0"): '--gpus takes at least 1; found "0"',
                                ("--seed", "x"): '--seed takes a whole number; found "x"',
                                ("--random",): "--random needs a number",
                                ("--fast",): "unknown argument '--fast'; known are --gpus N, --random N and --seed N",
                                ("nowhere",): 'there is no file or folder "nowhere"'}.items():
        done = test_gpu(*arguments)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"lockstep: {sentence}\n")
