# SPDX-License-Identifier: Apache-2.0
"""The nccl engine on the command line. With modules in the place of those that speak CUDA and NCCL (tests/device/modules)
it starts real processes, which meet by files: what is tested is who starts and ends them, and what is said."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.path.abspath(os.environ.get("LOCKSTEP_BINARY", "lockstep"))
MODULES = Path(PROGRAM).parent / "test-modules"

SCENARIO = """{
  "lockstep": 1,
  "name": "two-collectives",
  "layout": { "dp": 4 },
  "model": { "parameters": [ { "name": "weight", "shape": [1000] } ] },
  "batch": { "micro_batches": 1, "tokens": "even" },
  "schedule": { "steps": [
    { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
    { "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" },
    { "name": "again", "op": "broadcast", "over": "dp", "root": 0 }
  ] }
}
"""


def lockstep(*arguments, program=PROGRAM, **environment):
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("OMPI_", "PMI", "SLURM_", "LOCKSTEP_T"))}
    return subprocess.run([program, *map(str, arguments)], cwd=ROOT, env={**kept, **environment},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)


def is_built():
    return json.loads(lockstep("version", "-f", "json").stdout)["engines"]["nccl"]


needs_nccl = pytest.mark.skipif("LOCKSTEP_BINARY" not in os.environ or not is_built(),
                                reason="lockstep was built without NCCL")


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "two-collectives.json"
    path.write_text(SCENARIO)
    return path


class Gpus:
    """A machine with GPUs that are none: the program with the modules of the tests beside it."""

    def __init__(self, folder):
        self.program = folder / "lockstep"
        shutil.copy2(PROGRAM, self.program)
        for name in ("lockstep_cuda.so", "lockstep_nccl.so"):
            shutil.copy2(MODULES / name, folder / name)
        self.network = folder / "network"

    def environment(self, gpus=4, **more):
        shutil.rmtree(self.network, ignore_errors=True)
        self.network.mkdir()
        return {"LOCKSTEP_TEST_NETWORK": str(self.network), "LOCKSTEP_TEST_GPUS": str(gpus), **more}

    def run(self, *arguments, **more):
        return lockstep(*arguments, program=self.program, **self.environment(**more))

    def left(self):
        """Processes of this program that still run."""
        found = []
        for process in Path("/proc").iterdir():
            try:
                if process.name.isdigit() and os.readlink(process / "exe").startswith(str(self.program)):
                    found.append(process.name)
            except OSError:
                pass
        return found


@pytest.fixture
def gpus(tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    machine = Gpus(folder)
    yield machine
    assert machine.left() == []


@pytest.mark.parametrize("number", ["0", "x", "-1", "4097", "1.5"])
def test_a_number_of_gpus_that_is_none_is_refused(number, scenario):
    done = lockstep("check", "--engine", "nccl", "--gpus=" + number, scenario)
    assert done.returncode == 2
    assert done.stderr == f'error: --gpus takes a whole number from 1 to 4096; found "{number}"\n'


def test_gpus_are_for_the_nccl_engine_alone(scenario):
    done = lockstep("check", "--engine", "host", "--gpus", "2", scenario)
    assert done.returncode == 2
    assert done.stderr == "error: --gpus is for --engine nccl, which starts a process for each of them\n"
    done = lockstep("check", "--engine", "mpi,nccl", "--gpus", "2", scenario)
    assert done.returncode == 2
    assert done.stderr == ("error: --gpus is for --engine nccl without mpi; together they run in the processes that mpirun "
                           "starts, with a GPU each: say how many with --ranks\n")


def test_without_a_gpu_one_sentence_says_why_and_what_works(scenario):
    done = lockstep("check", "--engine", "symbolic,nccl", scenario, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 3
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    if is_built():
        assert done.stderr.startswith("lockstep: the nccl engine finds no GPU: cudaGetDeviceCount says ")
    else:
        assert done.stderr == (
            "lockstep: this lockstep was built without NCCL, so that it has no nccl engine; --engine cuda replays all "
            "ranks on one GPU, and --engine host the same numbers without any. Install NCCL beside the CUDA Toolkit and "
            "build it again\n")
    assert "--engine host" in done.stderr


def test_version_says_whether_it_is_built():
    lines = lockstep("version").stdout.splitlines()
    row = "engines: " if is_built() else "not built yet: "
    assert any(line.startswith(row) and "nccl" in line for line in lines)


@needs_nccl
def test_more_gpus_than_there_are_are_refused_with_the_number(scenario, gpus):
    done = gpus.run("check", "--engine", "nccl", "--gpus", "5", scenario, gpus=2)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "lockstep: --gpus 5 was given, and this machine has 2 GPUs\n"
    done = gpus.run("check", "--engine", "nccl", "--gpus", "2", scenario, gpus=1)
    assert done.stderr == "lockstep: --gpus 2 was given, and this machine has 1 GPU\n"


@needs_nccl
@pytest.mark.parametrize("count", [1, 2, 3, 4, 6])
def test_its_own_processes_find_what_the_host_engine_finds(count, scenario, gpus):
    done = gpus.run("check", "-f", "json", "--engine", "symbolic,host,nccl", "--gpus", count, scenario, gpus=6)
    assert done.stderr == ""
    assert done.returncode == 0
    engines = json.loads(done.stdout)["engines"]
    assert engines["nccl"] == engines["host"]
    text = gpus.run("check", "-v", "--engine", "nccl", "--gpus", count, scenario, gpus=6).stdout
    words = "1 process" if count == 1 else f"{count} processes"
    rest = f", {count - 4} of them without a rank" if count > 4 else ""
    assert f" in {words}{rest} with a GPU each" in text


@needs_nccl
def test_without_a_number_all_gpus_are_taken(scenario, gpus):
    done = gpus.run("check", "--engine", "nccl", scenario, gpus=3)
    assert done.returncode == 0
    assert "in 3 processes with a GPU each" in done.stdout


@needs_nccl
def test_a_mismatch_is_status_1_and_files_of_the_corpus_agree(gpus):
    folder = ROOT / "scenarios" / "deepspeed"
    files = [path for path in sorted(folder.rglob("*.json")) if '"parameters"' in path.read_text()][:6]
    done = gpus.run("check", "-q", "--engine", "symbolic,host,nccl", "--gpus", "2", *files)
    assert done.returncode in (0, 1), done.stderr
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) >= len(files)


@needs_nccl
def test_who_is_killed_is_named_with_its_step(scenario, gpus):
    done = gpus.run("check", "--engine", "nccl", "--gpus", "3", scenario, LOCKSTEP_TEST_FAULT="dies 2 2")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == ('lockstep: process 2 (GPU 2) was ended by signal 9 (Killed) in step "again" (broadcast) of '
                           "optimizer step 0; all processes of the job were ended\n")


@needs_nccl
@pytest.mark.parametrize("process", [0, 1])
def test_a_failure_of_one_is_said_once(process, scenario, gpus):
    done = gpus.run("check", "--engine", "nccl", "--gpus", "3", scenario, LOCKSTEP_TEST_FAULT=f"fails {process} 1")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (f'lockstep: a call failed in process {process} (GPU {process}) during step "mean" (all_reduce) '
                           "of optimizer step 0\n")


@needs_nccl
def test_who_does_not_come_is_missed_and_killed(scenario, gpus):
    done = gpus.run("check", "--engine", "nccl", "--gpus", "2", scenario, LOCKSTEP_TEST_FAULT="stops 1 2",
                    LOCKSTEP_NCCL_TIMEOUT="0.5")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        'lockstep: process 0 (GPU 0) waits in step "again" (broadcast) of optimizer step 0 for process 1 (GPU 1), which is '
        'in step "again" (broadcast) of optimizer step 0; nobody has moved for 500 ms. The communicators were aborted. '
        "LOCKSTEP_NCCL_TIMEOUT=SECONDS in the environment waits longer, and NCCL_DEBUG=WARN says more\n")


@needs_nccl
def test_a_patience_that_is_no_number_is_refused(scenario, gpus):
    done = gpus.run("check", "--engine", "nccl", scenario, LOCKSTEP_NCCL_TIMEOUT="soon")
    assert done.returncode == 2
    assert done.stderr == 'error: LOCKSTEP_NCCL_TIMEOUT takes a number of seconds above 0; found "soon"\n'


@needs_nccl
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_processes(number, scenario, gpus):
    environment = {**os.environ, **gpus.environment(LOCKSTEP_TEST_FAULT="stops 1 1")}
    with subprocess.Popen([gpus.program, "check", "--engine", "nccl", "--gpus", "2", scenario], env=environment,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        until = time.monotonic() + 300
        while not list(gpus.network.iterdir()) and time.monotonic() < until:
            time.sleep(0.05)
        running.send_signal(number)
        stdout, stderr = running.communicate(timeout=300)
    assert running.returncode == 128 + number
    assert (stdout, stderr) == ("", "")


@needs_nccl
def test_who_started_them_takes_them_along_when_it_is_killed(scenario, gpus):
    environment = {**os.environ, **gpus.environment(LOCKSTEP_TEST_FAULT="stops 1 1")}
    with subprocess.Popen([gpus.program, "check", "--engine", "nccl", "--gpus", "2", scenario], env=environment,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        until = time.monotonic() + 300
        while not list(gpus.network.iterdir()) and time.monotonic() < until:
            time.sleep(0.05)
        assert len(gpus.left()) == 3
        running.kill()
    until = time.monotonic() + 300
    while gpus.left() and time.monotonic() < until:
        time.sleep(0.05)
    assert gpus.left() == []
