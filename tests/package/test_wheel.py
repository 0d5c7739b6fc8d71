# SPDX-License-Identifier: Apache-2.0
"""The Python package: built by pip from the sources, in a fresh virtual environment, and run there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from test_package import SCENARIO, run

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "python"))

from torch_ranks import clean_environment, torch_python

BUILD = Path(os.environ.get("LOCKSTEP_BINARY", "/none/bin/lockstep")).absolute().parents[1]
pytestmark = pytest.mark.skipif(os.environ.get("LOCKSTEP_TEST_WHEEL") != "1",
                                reason="compiles the program once more: tools/nightly, or tools/test --only test_wheel")


TRAINING = """
import torch, torch.distributed as dist

def train(rank, world, reduced):
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 4)
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    import lockstep
    with lockstep.capture(wrapped, optimizer, out="run", loss="local_mean"):
        torch.manual_seed(rank + 1)
        (wrapped if reduced else model)(torch.randn(6, 8)).square().mean().backward()
        optimizer.step()

def test_reduced(lockstep):
    lockstep.run(train, ranks=2, arguments={"reduced": True})

def test_not_reduced(lockstep):
    lockstep.run(train, ranks=2, arguments={"reduced": False})
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A virtual environment into which pip has built and installed the sources."""
    environment = tmp_path_factory.mktemp("wheel") / "environment"
    run(sys.executable, "-m", "venv", environment)
    # As deep as the build and with its compiler, so that a compiler cache knows what it compiles.
    compiler = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE)[1]
    folder = BUILD.with_name(BUILD.name + "-wheel")
    done = subprocess.run([environment / "bin" / "pip", "install", "--quiet", ROOT, f"--config-settings=build-dir={folder}"], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, env={**os.environ, "CXX": compiler})
    assert done.returncode == 0, done.stdout + done.stderr
    return environment


def test_a_fresh_environment_gets_the_command_and_the_module(environment, tmp_path):
    (tmp_path / "plain.json").write_text(SCENARIO)
    own = {key: value for key, value in os.environ.items() if key != "LOCKSTEP_BINARY"}
    for command in ([environment / "bin" / "lockstep"], [environment / "bin" / "python", "-m", "lockstep"]):
        done = subprocess.run([*command, "check", "-q", "plain.json"], cwd=tmp_path, capture_output=True, text=True, env=own)
        assert (done.returncode, done.stdout, done.stderr) == (1, "mismatch  plain.json  plain\n", "")
        version = subprocess.run([*command, "version"], capture_output=True, text=True, env=own, check=True).stdout
        assert run(environment / "bin" / "pip", "show", "lockstep").splitlines()[1] == f"Version: {version.split()[1]}"
        assert "mpi" not in re.search(r"^engines: (.*)$", version, re.MULTILINE)[1]
    tags = [file for file in (environment / "lib").glob("python*/site-packages/lockstep-*.dist-info/WHEEL")]
    assert len(tags) == 1 and re.search(r"^Tag: py3-none-", tags[0].read_text(), re.MULTILINE)


@pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")
def test_a_fresh_environment_gets_the_capture_and_the_pytest_plugin(environment, tmp_path):
    """Beside the torch of another environment, which would take minutes to install once more."""
    packages, = (environment / "lib").glob("python*/site-packages")
    (tmp_path / "test_training.py").write_text(TRAINING)
    kept = {key: value for key, value in clean_environment().items() if key != "LOCKSTEP_BINARY"}
    done = subprocess.run([torch_python(), "-m", "pytest", "--lockstep", "-q", "test_training.py"], cwd=tmp_path, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, env={**kept, "PYTHONPATH": str(packages)})
    assert done.returncode == 1 and "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "no other data-parallel rank's contribution arrived, and its own came with 1 where 1/2 was expected" in done.stdout
