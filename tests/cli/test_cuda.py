# SPDX-License-Identifier: Apache-2.0
"""The cuda engine on the command line: without a GPU what it says, with one against the host engine."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.path.abspath(os.environ.get("LOCKSTEP_BINARY", "lockstep"))


def lockstep(*arguments, **environment):
    return subprocess.run([PROGRAM, *map(str, arguments)], cwd=ROOT, env={**os.environ, **environment},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)


def is_built():
    return json.loads(lockstep("version", "-f", "json").stdout)["engines"]["cuda"]


def has_gpu():
    return is_built() and lockstep("check", "-q", "--engine", "cuda", a_scenario()).returncode in (0, 1)


def a_scenario():
    """A small one in which something is wrong."""
    for path in sorted((ROOT / "scenarios").rglob("*.json")):
        text = path.read_text(encoding="utf-8")
        if '"parameters"' in text and '"preset"' not in text and '"mismatch"' in text:
            return path
    raise AssertionError("the corpus has no small scenario with a mismatch")


def test_without_a_gpu_one_sentence_says_why_and_what_works():
    # An empty list hides every GPU.
    done = lockstep("check", "--engine", "symbolic,cuda", a_scenario(), CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 3
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    if is_built():
        assert lines[0].startswith("lockstep: the cuda engine finds no GPU: cudaGetDeviceCount says \"")
    else:
        assert lines[0].startswith("lockstep: this lockstep was built without CUDA")
    assert "--engine host replays the same numbers" in lines[0]


def test_a_file_that_is_not_there_is_said_before_a_gpu_is_looked_for():
    done = lockstep("check", "--engine", "cuda", "no-such-file.json", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2
    assert "GPU" not in done.stderr


def test_a_misspelt_engine_is_told_the_right_one():
    done = lockstep("check", "--engine", "cudda", a_scenario())
    assert done.returncode == 2
    assert 'did you mean "cuda"?' in done.stderr


def test_an_import_which_checks_no_file_does_not_know_the_engine():
    sizes = ("--num-layers", "2", "--hidden-size", "64", "--num-attention-heads", "4", "--vocab-size", "1000",
             "--position-embedding-type", "rope", "--micro-batch-size", "1", "--global-batch-size", "8")
    done = lockstep("import", "megatron", "--world-size", "4", "--check", "--engine", "cuda", "--", *sizes)
    assert done.returncode == 2
    assert "--engine takes symbolic, parametric, host, transformer, separated by commas; found \"cuda\"" in done.stderr


def test_the_module_is_found_beside_the_program_alone(tmp_path):
    """The program starts without it, lists the engine as not built yet, and says what works."""
    if not is_built():
        pytest.skip("lockstep was built without CUDA")
    moved = tmp_path / "lockstep"
    moved.write_bytes(Path(PROGRAM).read_bytes())
    moved.chmod(0o755)
    version = subprocess.run([moved, "version"], capture_output=True, text=True)
    assert version.returncode == 0 and "not built yet: mpi, cuda, nccl\n" in version.stdout
    done = subprocess.run([moved, "check", "--engine", "cuda", a_scenario()], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 3
    assert done.stderr.startswith("lockstep: this lockstep was built without CUDA, so that it has no cuda engine; --engine host ")


def test_on_a_gpu_the_hashes_are_those_of_the_host_engine():
    if not has_gpu():
        pytest.skip("there is no GPU")
    files = [path for path in sorted((ROOT / "scenarios").rglob("*.json")) if "scale" not in path.parts]
    done = lockstep("check", "-f", "json", "--engine", "symbolic,host,cuda", *files)
    assert done.returncode in (0, 1), done.stderr
    for report in json.loads(done.stdout):
        assert "disagreement" not in report, report
        assert report["verdict"] == "error" or "cuda" in report["engines"]


def test_elements_are_a_number_and_those_of_engines_with_a_gpu():
    done = lockstep("check", "--elements", "100", a_scenario())
    assert done.returncode == 2
    assert "--elements is for --engine cuda and nccl: " in done.stderr
    for wrong in ("0", "many", "-3"):
        done = lockstep("check", "--engine", "cuda", f"--elements={wrong}", a_scenario())
        assert done.returncode == 2
        assert f"--elements takes a whole number from 1 to 1099511627776; found \"{wrong}\"" in done.stderr
