# SPDX-License-Identifier: Apache-2.0
"""The capture of DeepSpeed engines, ZeRO 0 to 3, and of accelerate's DDP; where they are installed beside torch (LOCKSTEP_DEEPSPEED_PYTHON and
LOCKSTEP_ACCELERATE_PYTHON may name other Pythons)."""

import os
import subprocess
from math import prod

import pytest

import torch_ranks
from recorded_runs import predicts_what_was_measured
from torch_ranks import ran, read_run, recovered, torch_python


def python_with(package):
    """A Python with torch and the package, or None."""
    python = os.environ.get("LOCKSTEP_%s_PYTHON" % package.upper()) or torch_python()
    look = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None or u.find_spec('%s') is None)" % package
    return python if python and subprocess.run([python, "-c", look], capture_output=True).returncode == 0 else None


def run_on(package, folder, cases, worker="frameworks_worker.py", world=2):
    """What ranks on the Python with the package left."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_ranks, "torch_python", lambda: python_with(package))
        ran(folder, world, cases, worker)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    if python_with("deepspeed") is None:
        pytest.skip("no Python with torch and deepspeed (LOCKSTEP_DEEPSPEED_PYTHON names one)")
    return run_on("deepspeed", tmp_path_factory.mktemp("deepspeed"), ["zero-%d" % stage for stage in range(4)])


@pytest.mark.skipif(python_with("accelerate") is None, reason="no Python with torch and accelerate (LOCKSTEP_ACCELERATE_PYTHON names one)")
def test_accelerate_gives_the_average_of_all_contributions_to_every_rank(tmp_path):
    run_on("accelerate", tmp_path, ["accelerate"])
    for error in sorted(tmp_path.glob("accelerate.error-*")):
        pytest.fail(error.read_text())
    for step in (0, 1):
        formulas = recovered(read_run(tmp_path / "accelerate"), step)
        assert formulas and all(formula.is_sum_of({(rank, micro): 0.5 for rank in (0, 1) for micro in (0, 1)}) for formula in formulas.values())


@pytest.mark.parametrize("stage", range(4))
def test_every_stage_gives_the_average_of_all_contributions_to_the_owners(folder, stage):
    for error in sorted(folder.glob(f"zero-{stage}.error-*")):
        pytest.fail(error.read_text())
    whole = read_run(folder / f"zero-{stage}")
    assert all(rank["adapter"] == "deepspeed" and rank["versions"]["deepspeed"] for rank in whole)
    names = {line["id"]: line["name"] for line in whole[0]["events"]["parameter"]}
    for step in (0, 1):
        formulas = recovered(whole, step)
        for (rank, number, piece), formula in formulas.items():
            if names[number] == "unused":  # DeepSpeed makes zeros of it
                assert not formula.columns and not any(formula.target)
                continue
            assert formula.is_sum_of({(other, micro): 0.5 for other in (0, 1) for micro in (0, 1)}), (names[number], piece, formula.solved)
        owners = [place[1:] for place in formulas]
        assert stage == 0 or len(owners) == len(set(owners)), "a piece with two owners"
    for parameter in whole[0]["events"]["parameter"]:
        pieces = [piece["range"] for piece in parameter["pieces"]]
        assert pieces[0][0] == 0 and pieces[-1][1] == prod(parameter["shape"])
    shared = [line for line in whole[0]["events"]["parameter"] if len(line["pieces"]) > 1]
    assert bool(shared) == (stage > 0)


@pytest.mark.parametrize("stage", range(4))
def test_check_predicts_the_same_for_the_recorded_schedule(folder, tmp_path, stage):
    predicts_what_was_measured(folder / f"zero-{stage}", tmp_path, right=True)
