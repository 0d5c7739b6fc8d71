# SPDX-License-Identifier: Apache-2.0
"""lockstep.transformers and lockstep.lightning: one line in a script captures the training that a Trainer does, right and with a mistake."""

import json

import pytest

from test_frameworks import python_with
from torch_ranks import HERE, nightly_but, python

CASES = [(package, mistake) for package in ("transformers", "lightning") for mistake in ("", "divided again")]


@pytest.mark.parametrize("case", nightly_but(CASES, [("transformers", "divided again"), ("lightning", "divided again")]))
def test_a_trainer_is_captured_by_one_line(case, tmp_path):
    package, mistake = case
    if python_with(package) is None:
        pytest.skip(f"no Python with torch and {package}")
    said = json.loads(python(HERE / "callbacks_worker.py", tmp_path / "run", package, mistake).splitlines()[-1])
    wrong = ["every contribution came with 1/4 where 1/2 was expected: uniform factor 1/2, invisible to Adam"]
    assert said == {
        "verdict": "mismatch" if mistake else "match", "loss": "local_mean", "steps": [0, 1], "adapter": "ddp", "findings": wrong if mistake else [],
        "formulas": ["(g0+g1)/4" if mistake else "(g0+g1)/2"], "expected": ["(g0+g1)/2"],
    }
