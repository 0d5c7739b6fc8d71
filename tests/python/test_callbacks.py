# SPDX-License-Identifier: Apache-2.0
"""lockstep.transformers and lockstep.lightning: one line in a script captures the training that a Trainer does, right and with a mistake."""

import json

import pytest

from test_frameworks import python_with
from torch_ranks import HERE, nightly, nightly_but, python

# Who says that the loss is a local_mean, for no script does.
SOURCES = {
    "transformers": "the Trainer hands the model the number of tokens of the whole step, by which it is to divide.",
    "lightning": "Lightning divides what training_step returns by accumulate_grad_batches.",
    "accelerate": "by autograd's graph each backward is of a mean over a rank's part of the batch, divided for the micro-batches, and DistributedDataParallel averages",
}
CASES = [(package, mistake) for package in ("transformers", "lightning", "accelerate") for mistake in ("", "divided again")]


@pytest.mark.parametrize("case", nightly_but(CASES, [("transformers", "divided again"), ("lightning", "divided again")]))
def test_a_trainer_is_captured_by_one_line(case, tmp_path):
    package, mistake = case
    if python_with(package) is None:
        pytest.skip(f"no Python with torch and {package}")
    said = json.loads(python(HERE / "callbacks_worker.py", tmp_path / "run", package, mistake).splitlines()[-1])
    notes, gaps = said.pop("notes"), said.pop("gaps")
    assert [note for note in notes if "the loss is taken for local_mean: " + SOURCES[package] in note] and not gaps, notes + gaps
    wrong = ["every contribution came with 1/4 where 1/2 was expected: uniform factor 1/2, invisible to Adam"]
    assert said == {
        "verdict": "mismatch" if mistake else "match", "loss": "local_mean", "steps": [0, 1], "adapter": "ddp", "findings": wrong if mistake else [],
        "formulas": ["(g0+g1)/4" if mistake else "(g0+g1)/2"], "expected": ["(g0+g1)/2"],
    }


@nightly
def test_a_model_that_does_not_divide_by_the_tokens_of_the_step_is_told(tmp_path):
    if python_with("transformers") is None:
        pytest.skip("no Python with torch and transformers")
    said = json.loads(python(HERE / "callbacks_worker.py", tmp_path / "run", "transformers", "tokens ignored").splitlines()[-1])
    assert said["verdict"] == "undecided" and not said["findings"]
    assert any("calls backward on 2 means that it does not divide by 2: if they are parts of one batch, the gradient is 2 times its mean" in gap
               for gap in said["gaps"]), said


@nightly
def test_manual_optimization_is_known_by_the_graph(tmp_path):
    if python_with("lightning") is None:
        pytest.skip("no Python with torch and lightning")
    said = json.loads(python(HERE / "callbacks_worker.py", tmp_path / "run", "lightning", "by hand").splitlines()[-1])
    assert (said["verdict"], said["loss"]) == ("match", "local_mean") and any(SOURCES["accelerate"] in note for note in said["notes"]), said
