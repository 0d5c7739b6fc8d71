# SPDX-License-Identifier: Apache-2.0
"""`lockstep extract` of schedules of torch.distributed.pipelining (pipelined_extracted.py): the formulas of ranks that really run, and verdicts."""

import json

import pytest

from test_extract import extract, formulas, judged, ran
from torch_ranks import HERE, nightly, nightly_but, torch_python

pytestmark = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")

SCRIPT = HERE / "pipelined_extracted.py"
RIGHT = ["1f1b", "gpipe", "interleaved", "zero-bubble", "dual-pipe-v", "fsdp2", "ddp", "own-names", "tied", "evaluated"]
WRONG = {
    "not-reduced": "no other data-parallel rank's contribution arrived",
    "interleaved-not-reduced": "no other data-parallel rank's contribution arrived",
    "summed": "1 where 1/2 was expected",
    "evaluated-before-the-step": "1/8 where 1/2 was expected",  # an evaluation divides the gradients as well
    "own-names-mixed": "contributions to another parameter are in it",  # by a collective of all ranks
    "two-schedules": "other coefficients than expected",  # the second schedule divides what the first has left as well
}
MEASURED = ["1f1b", "fsdp2", "tied", "interleaved-not-reduced", "two-schedules", "summed", "evaluated-before-the-step"]


def extraction_of(tmp_path, case, ranks=4, **settings):
    extract(tmp_path / "step.json", SCRIPT, case, ranks=ranks, loss="local_mean", **settings)
    return judged("check", tmp_path / "step.json")


@pytest.mark.parametrize("case", nightly_but(RIGHT + list(WRONG), ["dual-pipe-v", "own-names-mixed"]))
def test_verdicts(tmp_path, case):
    report = extraction_of(tmp_path, case)
    assert report["verdict"] == ("mismatch" if case in WRONG else "match")
    assert WRONG.get(case, "") in json.dumps(report, ensure_ascii=False)
    assert report["mesh"] == {"pp": 2, "dp": 2} and report["micro_batches"] == (8 if case == "two-schedules" else 4)


@pytest.mark.parametrize("case", nightly_but(MEASURED, ["tied"]))
def test_formulas_are_what_ranks_that_run_have_measured(tmp_path, case):
    extracted, measured = formulas(extraction_of(tmp_path, case, steps=2)), formulas(ran(tmp_path, SCRIPT, case))
    if case.startswith("interleaved"):  # a capture names a rank's chunks by their order
        extracted, measured = ({(step, name.split("layers.")[1], rank): content for (step, name, rank), content in found.items()}
                               for found in (extracted, measured))
    assert extracted == measured and extracted


@pytest.mark.parametrize("case", nightly_but(["begin-alike", "tied-lost"], ["tied-lost"]))
def test_stages_that_begin_with_the_same_weights_under_one_name_are_undecided(tmp_path, case):
    report = extraction_of(tmp_path, case)
    assert report["verdict"] == "undecided"
    assert "begin with the same weights" in json.dumps(report)
    assert not any(piece["verdict"] == "wrong" for piece in report["results"])


def test_one_name_of_different_parameters_is_said(tmp_path):
    report = extraction_of(tmp_path, "own-names")
    assert {name.split(".")[0] for name in {piece["parameter"] for piece in report["results"]}} == {"stage0", "stage1"}
    assert any("they are taken as each stage's own, stage0.layers.0.0.bias and so on" in note for note in report["notes"])


@nightly
def test_a_stage_that_was_not_chosen_is_played_where_another_waits_for_what_it_says(tmp_path):
    """Of more than 64 ranks few are played at first, and a stage asks the one before it for the shapes of what it gets."""
    report = extraction_of(tmp_path, "1f1b", ranks=72)
    assert report["verdict"] == "match" and report["world"] == 72
    assert any(note.startswith("ran ") and " of 72 ranks" in note for note in report["notes"])
