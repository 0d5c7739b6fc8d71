# SPDX-License-Identifier: Apache-2.0
"""Real runs that end badly: what is left is read, and `lockstep verify` says what is missing or no number."""

import signal
import sys

import pytest

from torch_ranks import HERE, PROGRAM, forked, torch_python

sys.path.insert(0, str(HERE.parents[1] / "python"))

from lockstep import verify

pytestmark = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")


def left(folder, case, world=2):
    """The run that a case leaves, how its ranks ended, and what they said."""
    statuses, said = forked("robust_worker.py").run(folder, world, [case], 300)
    assert all(status in (0, -signal.SIGKILL) for status in statuses), "\n".join(said)
    return folder / "run", statuses, said


def step_verdicts(verification, step):
    return {one["verdict"] for one in verification.report["results"] if one["step"] == step}


def test_a_rank_that_is_killed_leaves_what_it_had(tmp_path):
    run, statuses, _ = left(tmp_path, "killed")
    assert statuses[1] == -signal.SIGKILL
    verification = verify(run, program=PROGRAM)
    assert verification.verdict == "undecided" and not verification.report["complete"]
    assert step_verdicts(verification, 0) == {"right"}
    assert step_verdicts(verification, 1) <= {"undecided"}
    gaps = " ".join(verification.report["gaps"])
    assert "rank 1 did not end the capture" in gaps or "ranks 0 and 1 did not end the capture" in gaps
    assert "did not finish optimizer step 1" in gaps
    lines = (run / "rank-00001.jsonl").read_text().splitlines()
    assert sum('"event":"contribution"' in line and '"step":1' in line for line in lines) == 8  # of two micro-batches, four parameters each


def test_ranks_that_captured_different_steps_are_told(tmp_path):
    run, _, _ = left(tmp_path, "shorter")
    verification = verify(run, program=PROGRAM)
    assert verification.verdict == "undecided"
    assert step_verdicts(verification, 0) == {"right"} and step_verdicts(verification, 2) == {"undecided"}
    for step in (1, 2):
        assert "rank 1 did not capture optimizer step %d, which others did." % step in verification.report["gaps"]


def test_a_loss_that_is_no_number_is_told_with_its_rank(tmp_path):
    run, _, _ = left(tmp_path, "overflowed")
    verification = verify(run, program=PROGRAM)
    assert verification.verdict == "undecided" and step_verdicts(verification, 0) == {"right"}
    assert [finding["what"] for finding in verification.findings] == [
        "backward yields elements that are infinite or no numbers, so the sums say nothing"]
    assert all("on rank 1" in one["why"] for one in verification.report["results"] if one["step"] == 1)


def test_an_overflow_after_backward_is_wrong(tmp_path):
    run, _, _ = left(tmp_path, "overflowed_after")
    verification = verify(run, program=PROGRAM)
    assert verification.verdict == "mismatch"
    finding, = verification.findings
    assert finding["what"] == "the optimizer gets elements that are infinite or no numbers, and backward yields none"
    assert finding["parameters"] == ["0.weight"]


def test_parameters_without_a_gradient_are_right_where_nobody_gets_one(tmp_path):
    run, _, _ = left(tmp_path, "without_gradient")
    verification = verify(run, program=PROGRAM)
    assert verification.verdict == "match" and len(verification.report["results"]) == 100
    without = [one["parameter"] for one in verification.report["results"] if one["why"] == "no rank yields a gradient, and the optimizer gets none"]
    assert sorted(without) == sorted("scales.%d" % number for number in range(0, 100, 10))


WARNING = "lockstep: warning: "


@pytest.mark.parametrize("case, warned", [("full", [0, 1]), ("full_of_sketches", [1, 1]), ("gone", [1, 1]), ("nobody_to_warn", [0, 0])])
def test_what_cannot_be_written_ends_the_capture_with_one_warning_and_never_the_training(tmp_path, case, warned):
    """Each rank has compared its weights with those of the same training without a capture."""
    run, statuses, said = left(tmp_path, case)
    assert statuses == (0, 0), said
    assert [text.count(WARNING) for text in said] == warned, said
    assert not any("Traceback" in text or "Exception" in text for text in said), said
    assert all("the training goes on; lockstep verify says that the run is not complete" in text for text in said if WARNING in text)
    if not case.startswith("full"):
        assert not run.exists()
        return
    verification = verify(run, program=PROGRAM)
    assert verification.verdict == "undecided" and not verification.report["complete"]
    assert any("did not end the capture" in gap for gap in verification.report["gaps"])
    assert step_verdicts(verification, 0) == step_verdicts(verification, 1) == {"right"} and step_verdicts(verification, 2) == {"undecided"}
    assert not list(run.glob("*.part"))
