# SPDX-License-Identifier: Apache-2.0
"""picotron, with the deviations of the real code (docs/frameworks/picotron.md)."""

import pytest
from torch_program import (
    GPT2, LLAMA, NEEDS_PROGRAM, all_equal, coefficients, everywhere, on, refusal, replay_all, show, verdicts,
)

pytestmark = NEEDS_PROGRAM

LAYOUTS = [{"dp": 1}, {"dp": 2}, {"dp": 3}, {"tp": 2}, {"dp": 2, "tp": 2}, {"dp": 2, "cp": 2}, {"dp": 2, "cp": 2, "tp": 2}]


def test_defaults_match_without_a_pipeline():
    assert verdicts([on("picotron", layout, model=LLAMA) for layout in LAYOUTS]) == ["match"] * len(LAYOUTS)


def test_buckets_are_averaged_over_dp_and_cp():
    (report,) = replay_all([on("picotron", {"dp": 2, "cp": 3})])
    everywhere(report, all_equal("1/6", 6))


@pytest.mark.parametrize("engine", ["1f1b", "afab"])
@pytest.mark.parametrize("micro_batches", [1, 2, 3])
def test_a_pipeline_forgets_to_divide_by_the_micro_batches(engine, micro_batches):
    content = on("picotron", {"dp": 2, "pp": 2}, {"pp_engine": engine}, LLAMA, {"micro_batches": micro_batches})
    (report,) = replay_all([content])
    ratios = {piece["ratio"] for item in report["parameters"] for rank in item["ranks"] for piece in rank["pieces"]}
    assert ratios == {str(micro_batches)}
    assert report["verdict"] == ("match" if micro_batches == 1 else "mismatch")
    repaired = [{"set": "backward", "by": "1 / (tokens * micro_batches)"}]
    assert verdicts([{**content, "schedule": {**content["schedule"], "edits": repaired}}]) == ["match"]


def test_context_parallelism_without_data_parallelism_is_reduced_by_nobody():
    (report,) = replay_all([on("picotron", {"cp": 2})])
    assert report["verdict"] == "mismatch"
    for rank in range(2):
        assert coefficients(report, "w", rank) == {(rank, 0): "1", (rank, 1): "1"}


def test_ranks_lie_on_dp_pp_cp_tp_the_last_one_fastest():
    axes = show(on("picotron", {"dp": 2, "pp": 2, "cp": 2, "tp": 2}, model=LLAMA))["groups"]["axes"]
    assert [axes[axis][0] for axis in ("tp", "cp", "pp", "dp")] == [[0, 1], [0, 2], [0, 4], [0, 8]]


def test_tied_weights_are_not_shared_between_stages():
    (report,) = replay_all([on("picotron", {"dp": 2, "pp": 2}, model=GPT2, batch={"micro_batches": 1})])
    assert {item["tied"] for item in report["parameters"] if item["verdict"] == "mismatch"} == {"word_embeddings"}


def test_what_picotron_does_not_have_is_refused():
    assert "no axis sp" in refusal("picotron", {"sp": 2})
    assert "no experts" in refusal("picotron", {"dp": 2, "ep": 2})
    assert "dp_replicate = 2" in refusal("picotron", {"dp_replicate": 2})
    assert "no sequence parallelism" in refusal("picotron", {"tp": 2, "sequence_parallel": True})
    assert "virtual" in refusal("picotron", {"pp": 2, "virtual_stages": 2}, model=LLAMA)
    assert '"1f1b"' in refusal("picotron", {"pp": 2}, {"pp_engine": "1f1"}, model=LLAMA)
