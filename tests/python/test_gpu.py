# SPDX-License-Identifier: Apache-2.0
"""A capture on a GPU finds what the same capture finds on the processor (docs/capture.md): the same gradients have the same sketches and hashes, to
the bit, and `lockstep verify` says the same of both. Where there is no GPU the runs on the processor alone are made."""

import functools
import json
import subprocess

import pytest

from torch_ranks import PROGRAM, python, ran, read_run, torch_python

pytestmark = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")

CASES = {"ddp": "match", "ddp_no_sync": "match", "ddp_bfloat16": "match", "fsdp2": "match", "tensor_parallel": "match",
         "nobody_reduces": "mismatch"}


@functools.lru_cache(None)
def has_gpu():
    return python("-c", "import torch; print(torch.cuda.is_available())").strip() == "True"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpu")
    ran(folder, 2, [f"{case}_{device}" for case in CASES for device in (("cpu", "cuda") if has_gpu() else ("cpu",))], "gpu_worker.py")
    return folder


def run(folder, name):
    for error in sorted(folder.glob(f"{name}.error-*")):
        pytest.fail(error.read_text())
    return folder / name


def verified(folder, name):
    done = subprocess.run([PROGRAM, "verify", "-f", "json", run(folder, name)], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(done.stdout)
    return json.loads(json.dumps(report).replace(str(folder / name), "RUN"))


@pytest.mark.parametrize("case", CASES)
def test_on_the_processor_the_verdict_is_the_known_one(folder, case):
    assert verified(folder, f"{case}_cpu")["verdict"] == CASES[case]


@pytest.mark.parametrize("case", CASES)
def test_on_a_gpu_a_capture_has_the_bits_of_the_one_on_the_processor(folder, case):
    if not has_gpu():
        pytest.skip("there is no GPU")
    there, here = read_run(run(folder, f"{case}_cuda")), read_run(run(folder, f"{case}_cpu"))
    for gpu, processor in zip(there, here):
        assert gpu["sketches"] == processor["sketches"]
        assert set(gpu["events"]) == set(processor["events"])
        for kind in ("contribution", "result", "micro_batch", "step"):
            assert gpu["events"][kind] == processor["events"][kind]
    assert verified(folder, f"{case}_cuda") == verified(folder, f"{case}_cpu")
