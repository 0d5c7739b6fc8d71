# SPDX-License-Identifier: Apache-2.0
"""Each collective of the module that speaks MPI, in real processes: test_device runs its test of it under mpirun."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

PROGRAM = Path(os.environ.get("LOCKSTEP_BINARY", "lockstep")).resolve()


def why_not():
    if "LOCKSTEP_BINARY" not in os.environ:
        return "LOCKSTEP_BINARY does not name the program"
    if not json.loads(subprocess.run([PROGRAM, "version", "-f", "json"], capture_output=True, text=True).stdout)["engines"]["mpi"]:
        return "lockstep was built without MPI"
    return None if shutil.which("mpirun") else "there is no mpirun"


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
@pytest.mark.parametrize("processes", [1, 2, 4])
def test_every_collective_of_every_group_of_processes(processes):
    # Open MPI unloads its plugins before leaks are looked for, so that its own cannot be told from ours.
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0", "OMPI_MCA_mpi_yield_when_idle": "1",
                   "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    command = ["mpirun", "-n", str(processes), "--oversubscribe", "--bind-to", "none", *root, PROGRAM.parent / "test_device", "[.mpi]"]
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("All tests passed") == processes
