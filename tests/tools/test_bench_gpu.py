# SPDX-License-Identifier: Apache-2.0
"""tools/bench-gpu without a GPU: its program compiles against the kernels as they are, and mistakes are told."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def bench_gpu(*arguments, **environment):
    return subprocess.run([ROOT / "tools" / "bench-gpu", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False, env=dict(os.environ, **environment))


def compile_to_ptx(name, folder, *options):
    """As far as PTX: the assembler would take most of the time, and knows nothing of C++."""
    return subprocess.run(["nvcc", "-std=c++20", "-arch=compute_90", "-I", ROOT, *options, "--ptx", "-o", folder / f"{name}.ptx",
                           ROOT / "benchmarks" / "gpu" / f"{name}.cu"], capture_output=True, text=True, check=False)


@pytest.mark.skipif(not shutil.which("nvcc"), reason="there is no nvcc")
def test_its_program_compiles(tmp_path):
    done = compile_to_ptx("roofline", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not shutil.which("nvcc"), reason="there is no nvcc")
def test_its_program_of_collectives_compiles(tmp_path):
    found = subprocess.run(["bash", "-c", f"source '{ROOT}/tools/build.sh' && find_nccl"], capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip("there is no NCCL")
    done = compile_to_ptx("collectives", tmp_path, "-I", f"{found.stdout.strip()}/include")
    assert done.returncode == 0, done.stdout + done.stderr


def test_usage_and_a_machine_without_a_compiler(tmp_path):
    done = bench_gpu("--fast")
    assert done.returncode == 2 and done.stdout.startswith("tools/bench-gpu: ")
    assert bench_gpu("--help").returncode == 0
    for name in ("bash", "readlink"):
        (tmp_path / name).symlink_to(shutil.which(name))
    done = bench_gpu(PATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (3, "lockstep: no nvcc in PATH; install the CUDA Toolkit\n")
