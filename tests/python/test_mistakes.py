# SPDX-License-Identifier: Apache-2.0
"""What a user of the capture gets wrong is answered with a sentence; the package itself needs no torch."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig

import pytest

from torch_ranks import HERE, python, torch_python

EXPECTED = {
    "loss": "'avg': expected \"local_mean\"", "sums": "100: expected a multiple of 64", "seed": "-1: expected a number from 0",
    "mesh": "str: expected a DeviceMesh", "mesh size": "2 places, but there are 1 ranks", "axis": "\"rows\" see different tokens is not known",
    "data axis": "(did you mean \"dp\"?); its axes are dp, tp", "model": "list: expected a torch.nn.Module", "no parameters": "ReLU",
    "dtype": "\"weight\" is complex64", "no optimizer": "lockstep.capture(model, optimizer", "not an optimizer": "int: expected a torch.optim",
    "other optimizer": "none of the model's parameters", "folder": "holds the files of another run (rank-00003.jsonl)", "tokens": "-1: expected",
    "twice": "each run needs one of its own", "not started": "outside of the capture", "compiled": "give collectives=False",
    "mesh without names": "give mesh=, the whole mesh", "mesh without a name": "1 axis without a name", "another run": "replace that run with overwrite=True",
    "mesh of part": "DTensors on the ranks [0], of a mesh whose axes on all 2 ranks",
    "different meshes": "different axes (tp and pp): give mesh=",
    "loss in verify": "or None (did you mean \"token_mean\"?)", "loss in run": "'avg': expected \"local_mean\", \"sum\", \"token_mean\", \"token_sum\" or None",
    "out is None": "out is None: expected the path", "out is a file": "cannot be written (File exists): choose another with out=",
    "out below a file": "cannot be written (Not a directory)", "out is not there": "cannot be written (", "out is no path": "null byte",
    "out of run": "out is 3: expected the path", "out of run is a file": "is a file: choose a new or empty folder",
    "data_axes": "data_axes is 3: expected a list", "data_axes of numbers": "data_axes is [0]: expected a list of names of the mesh's axes, which are dp",
    "several tokens": "tokens is tensor([[1., 1., 1.], [1.", "tokens of text": "tokens is 'many'", "tokens without end": "tokens is inf",
    "ranks": "ranks that are numbers", "ranks are one": "expected lists of its axes", "axes are numbers": "names of axes that are text",
    "parameters": "parameters is 3: expected the name", "parameters of numbers": "parameters is [3]", "folder of verify": "a run is None: expected the path",
    "reference": "reference is 3: expected the path",
    "no process group": "begin the capture after init_process_group",
    "no shape": "\"weight\" has no shape yet",
    "sample": "sample is '1/0': expected a part of the elements such as \"1/16\"", "sample is a number": "sample is 0.1: expected",
    "shards": "shards is ['weight']: expected a dictionary", "shards without an axis": "shards has 0 for \"weight\": expected for each axis the dimension",
    "shards along no axis": "shards names the axis \"tpp\", which the mesh has not (did you mean \"tp\"?)",
    "shards of nothing": "shards names \"wieght\", and no parameter has such a name (did you mean \"weight\"?)",
    "shards of no dimension": "shards cuts dimension 1 of \"bias\", which has 1",
}


@pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")
def test_mistakes_are_answered_with_a_sentence(tmp_path):
    said = json.loads(python(HERE / "mistakes.py", tmp_path))
    assert said.keys() == EXPECTED.keys()
    for name, part in EXPECTED.items():
        assert said[name] is not None and part in said[name] and "\n" not in said[name] and not said[name].endswith("."), (name, said[name])


def test_the_older_name_of_a_loss_is_taken_as_that_of_today():
    script = ("import sys; sys.path.insert(0, sys.argv[1]); sys.modules['torch'] = None\n"
              "from lockstep.errors import LOSSES, checked_loss\n"
              "print(*[checked_loss(one, ValueError) for one in ('mean', None, *LOSSES)])")
    done = subprocess.run([sys.executable, "-c", script, str(HERE.parents[1] / "python")], capture_output=True, text=True)
    assert done.stdout.split() == ["local_mean", "None", "local_mean", "sum", "token_mean", "token_sum"], done.stderr


def test_the_package_is_imported_without_torch_and_says_what_a_capture_needs():
    script = ("import sys; sys.path.insert(0, sys.argv[1]); sys.modules['torch'] = None\n"
              "import lockstep; assert lockstep.program().endswith('lockstep')\n"
              "try: lockstep.capture(None)\n"
              "except lockstep.CaptureError as error: print(error)")
    done = subprocess.run([sys.executable, "-c", script, str(HERE.parents[1] / "python")], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("a capture needs torch, which this Python"), done.stderr


def test_the_program_of_the_package_s_own_environment_is_found_whatever_python_runs_it(tmp_path):
    packages = tmp_path / os.path.relpath(sysconfig.get_path("purelib"), sysconfig.get_path("data"))
    scripts = tmp_path / os.path.relpath(sysconfig.get_path("scripts"), sysconfig.get_path("data"))
    shutil.copytree(HERE.parents[1] / "python" / "lockstep", packages / "lockstep")
    scripts.mkdir(parents=True)
    (scripts / "lockstep").write_text("#!/bin/sh\n")
    environment = {key: value for key, value in os.environ.items() if key != "LOCKSTEP_BINARY"}
    said = subprocess.run([sys.executable, "-c", "import lockstep; print(lockstep.program())"], env={**environment, "PYTHONPATH": str(packages)},
                          capture_output=True, text=True, check=True).stdout
    assert said == f"{scripts / 'lockstep'}\n"
