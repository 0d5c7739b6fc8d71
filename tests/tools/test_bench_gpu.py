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


def test_collectives_that_do_not_compile_do_not_keep_the_kernels_from_being_measured(tmp_path):
    for folder in ("benchmarks/gpu", "tools", "nccl/include", "nccl/lib", "path"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("bench-gpu", "build.sh"):
        shutil.copy2(ROOT / "tools" / name, tmp_path / "tools" / name)
    (tmp_path / "nccl/include/nccl.h").touch()
    (tmp_path / "nccl/lib/libnccl.so.2").touch()
    # A compiler that fails where NCCL is asked for, and whose programs say their names.
    nvcc = tmp_path / "path" / "nvcc"
    nvcc.write_text('#!/usr/bin/env bash\nwhile [[ $1 != -o ]]; do shift; done\n[[ $2 != *collectives ]] || exit 1\n'
                    'printf "#!/usr/bin/env bash\\necho measured\\n" > "$2"; chmod +x "$2"\n')
    nvcc.chmod(0o755)
    done = subprocess.run([tmp_path / "tools" / "bench-gpu"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                          env=dict(os.environ, PATH=f"{nvcc.parent}:{os.environ['PATH']}", LOCKSTEP_NCCL_ROOT=str(tmp_path / "nccl")))
    assert (done.returncode, done.stdout) == (0, "measured\n"), done.stderr
    assert "the benchmark collectives does not compile with the NCCL in " in done.stderr
