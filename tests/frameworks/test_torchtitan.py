# SPDX-License-Identifier: Apache-2.0
"""torchtitan: sums over everything, divided by the step's tokens before backward (docs/frameworks/torchtitan.md)."""

import pytest
from torch_program import (
    GPT2, LLAMA, MIXTRAL, NEEDS_PROGRAM, all_equal, coefficients, everywhere, on, owners, parameter, rank_entries, refusal,
    replay_all, show, verdicts,
)

pytestmark = NEEDS_PROGRAM

LAYOUTS = [
    {"dp": 1}, {"dp": 4}, {"dp": 3}, {"cp": 2}, {"dp": 2, "cp": 2}, {"dp_shard": 2, "dp_replicate": 2},
    {"dp_shard": 1, "dp_replicate": 4}, {"dp": 2, "tp": 2}, {"pp": 2}, {"dp_shard": 2, "dp_replicate": 2, "cp": 2, "tp": 2},
    {"dp_shard": 2, "dp_replicate": 2, "pp": 2, "tp": 2},
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_nothing_is_divided_after_backward(layout):
    ranks = layout.get("dp", layout.get("dp_shard", 1) * layout.get("dp_replicate", 1)) * layout.get("cp", 1)
    stride = layout.get("tp", 1)
    (report,) = replay_all([on("torchtitan", layout, model=[parameter("w", [5, 2])], batch={"micro_batches": 3})])
    assert report["verdict"] == "match"
    expected = {(stride * rank, m): "1" for rank in range(ranks) for m in range(3)}
    everywhere(report, expected)


def test_uneven_tokens_get_the_weight_of_one_mean_over_all():
    tokens = [[[[3]], [[5]]], [[[2]], [[10]]]]
    (report,) = replay_all([on("torchtitan", {"dp": 2}, batch={"micro_batches": 2, "tokens": tokens})])
    assert report["verdict"] == "match"
    resolved = show(on("torchtitan", {"dp": 2}, batch={"micro_batches": 2, "tokens": tokens}))
    backward = next(step for step in resolved["steps"] if step["op"] == "each")["steps"][1]
    assert backward["name"] == "backward" and backward["by"] == "1 / sum(tokens, dp, cp, micro_batch)"


def test_defaults_match_and_count_the_norm_once():
    for model in (GPT2, LLAMA, {**LLAMA, "qk_layernorm": True}):
        layouts = [layout for layout in LAYOUTS if model is not GPT2 or "pp" not in layout]
        assert verdicts([on("torchtitan", layout, model=model) for layout in layouts]) == ["match"] * len(layouts)
    assert verdicts([on("torchtitan", {"dp": 2, "tp": 2}, {"enable_sequence_parallel": False}, LLAMA)]) == ["match"]
    report = replay_all([on("torchtitan", {"dp": 2, "tp": 2}, model=LLAMA, edits=[{"set": "grad_norm_replicated", "count": None}])])
    assert report[0]["verdict"] == "mismatch" and {entry["counted"] for entry in report[0]["norm"]} == {"2"}


EXPERT_LAYOUTS = [
    {"dp": 4, "ep": 2}, {"dp": 4, "ep": 4}, {"dp": 2, "cp": 2, "ep": 4}, {"dp": 2, "tp": 2, "ep": 4}, {"dp": 4, "ep": 2, "pp": 2},
    {"dp": 4, "tp": 2, "ep": 2}, {"dp_shard": 2, "dp_replicate": 2, "ep": 2}, {"dp_shard": 4, "dp_replicate": 2, "ep": 2},
    {"dp_shard": 2, "dp_replicate": 2, "tp": 2, "ep": 4}, {"dp": 2, "tp": 2}, {"dp": 2, "tp": 4, "cp": 2},
]


@pytest.mark.parametrize("layout", EXPERT_LAYOUTS, ids=str)
def test_experts_are_summed_over_their_own_mesh(layout):
    assert verdicts([on("torchtitan", layout, model=MIXTRAL)]) == ["match"]


def test_ranks_of_experts_vary_fastest_over_ep():
    shown = show(on("torchtitan", {"dp": 4, "ep": 2}, model=MIXTRAL))
    assert shown["groups"]["axes"]["ep"] == [[0, 1], [2, 3]]
    assert shown["groups"]["axes"]["edp"] == [[0, 2], [1, 3]]
    # dp_replicate, efsdp, ep = 2, 2, 2
    steps = show(on("torchtitan", {"dp_shard": 4, "dp_replicate": 2, "ep": 2}, model=MIXTRAL))["groups"]["steps"]
    assert steps["expert_dp_reduce_scatter"] == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert steps["expert_replicate_all_reduce"] == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_ranks_lie_on_pp_dp_replicate_dp_shard_cp_tp_the_last_one_fastest():
    shown = show(on("torchtitan", {"pp": 2, "dp_replicate": 2, "dp_shard": 2, "cp": 2, "tp": 2}, model=LLAMA))
    axes = shown["groups"]["axes"]
    assert axes["tp"][0] == [0, 1] and axes["cp"][0] == [0, 2] and axes["dp_shard"][0] == [0, 4]
    assert axes["dp_replicate"][0] == [0, 8] and axes["pp"][0] == [0, 16]
    assert shown["groups"]["steps"]["dp_reduce_scatter"][0] == [0, 2, 4, 6]


def test_shards_are_rows_over_dp_shard_and_cp():
    (report,) = replay_all([on("torchtitan", {"dp_shard": 2, "cp": 2}, model=[parameter("w", [6, 2])])])
    assert [rank_entries(report, "w")[rank]["owned"] for rank in range(4)] == [[[0, 4]], [[4, 8]], [[8, 12]], []]
    assert owners(report, "w") == [0, 1, 2]


def test_tokens_counted_by_each_rank_alone_are_the_mistake_of_issue_1842():
    # A mean over each rank's own tokens, averaged over ranks and micro-batches.
    edits = [{"set": "backward", "by": "1 / (tokens * dp * micro_batches)"}]
    (report,) = replay_all([on("torchtitan", {"dp": 2}, edits=edits)])
    assert report["verdict"] == "mismatch" and report["parameters"][0]["replicas_agree"]
    assert verdicts([on("torchtitan", {"dp": 2}, batch={"tokens": "even"}, edits=edits)]) == ["match"]


def test_a_pipeline_that_divides_only_the_logged_loss_is_the_mistake_of_issue_2972():
    (report,) = replay_all([on("torchtitan", {"pp": 2}, {"max_norm": 0}, LLAMA, {"tokens": "even"}, [{"set": "backward", "by": None}])])
    assert report["verdict"] == "mismatch"
    ratios = {piece["ratio"] for item in report["parameters"] for rank in item["ranks"] for piece in rank["pieces"]}
    assert ratios == {"2"}  # the tokens of the step


def test_what_torchtitan_refuses_is_refused_with_its_reason():
    assert "must divide dp_shard * cp * tp (4)" in refusal("torchtitan", {"dp_shard": 4, "dp_replicate": 2, "ep": 8}, model=MIXTRAL)
    assert "Weight tying is not supported with Pipeline Parallel" in refusal("torchtitan", {"pp": 2}, {"enable_weight_tying": True})
    assert "etp is 2" in refusal("torchtitan", {"tp": 2, "ep": 2, "etp": 2, "dp": 2})
    assert "etp is 1 and tp 2" in refusal("torchtitan", {"tp": 2, "etp": 1})
    assert "no axis sp" in refusal("torchtitan", {"sp": 2})
    assert "enable_sequence_parallel is false" in refusal(
        "torchtitan", {"tp": 2, "sequence_parallel": True}, {"enable_sequence_parallel": False})
    assert "enable_sequence_parallel is true" in refusal("torchtitan", {"tp": 2, "sequence_parallel": False})
    assert '"max_norm"' in refusal("torchtitan", {"dp": 2}, {"maxnorm": 1})
    assert "float32" in refusal("torchtitan", {"dp": 2}, {"mixed_precision_reduce": "bfloat16"})


def test_a_tied_embedding_that_a_stage_holds_alone_is_summed_by_nobody():
    # Why torchtitan refuses it.
    (report,) = replay_all([on("torchtitan", {"pp": 2}, model=GPT2)])
    assert report["verdict"] == "mismatch"
    wrong = {item["tied"] for item in report["parameters"] if item["verdict"] == "mismatch"}
    assert wrong == {"word_embeddings"}


def test_the_step_of_each_micro_batch_is_reduced_outside_of_a_pipeline_alone():
    for layout, inside in (({"dp": 2}, True), ({"dp": 2, "pp": 2}, False)):
        steps = show(on("torchtitan", layout, model=LLAMA))["steps"]
        body = [step["name"] for step in next(step for step in steps if step["op"] == "each")["steps"]]
        assert ("dp_reduce_scatter" in body) is inside
    (report,) = replay_all([on("torchtitan", {"dp": 2})])
    assert coefficients(report, "w", 0) == all_equal(1, 2)
