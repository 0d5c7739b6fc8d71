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
BUILD = Path(os.environ.get("LOCKSTEP_BINARY", "/none/bin/lockstep")).absolute().parents[1]
pytestmark = pytest.mark.skipif(os.environ.get("LOCKSTEP_TEST_WHEEL") != "1",
                                reason="compiles the program once more: tools/nightly, or tools/test --only test_wheel")


def test_a_fresh_environment_gets_the_command_and_the_module(tmp_path):
    environment = tmp_path / "environment"
    run(sys.executable, "-m", "venv", environment)
    # As deep as the build and with its compiler, so that a compiler cache knows what it compiles.
    compiler = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE)[1]
    folder = BUILD.with_name(BUILD.name + "-wheel")
    done = subprocess.run([environment / "bin" / "pip", "install", "--quiet", ROOT, "-C", f"build-dir={folder}"], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, env={**os.environ, "CXX": compiler})
    assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / "plain.json").write_text(SCENARIO)
    for command in ([environment / "bin" / "lockstep"], [environment / "bin" / "python", "-m", "lockstep"]):
        done = subprocess.run([*command, "check", "-q", "plain.json"], cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (1, "mismatch  plain.json  plain\n", "")
        version = run(*command, "version")
        assert run(environment / "bin" / "pip", "show", "lockstep").splitlines()[1] == f"Version: {version.split()[1]}"
        assert "mpi" not in re.search(r"^engines: (.*)$", version, re.MULTILINE)[1]
    tags = [file for file in (environment / "lib").glob("python*/site-packages/lockstep-*.dist-info/WHEEL")]
    assert len(tags) == 1 and re.search(r"^Tag: py3-none-", tags[0].read_text(), re.MULTILINE)
