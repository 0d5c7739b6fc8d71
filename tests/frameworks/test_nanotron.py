# SPDX-License-Identifier: Apache-2.0
"""nanotron: averages over dp and cp, then tied weights, then a norm over one replica (docs/frameworks/nanotron.md)."""

import pytest
from torch_program import (
    GPT2, LLAMA, NEEDS_PROGRAM, all_equal, everywhere, on, refusal, replay_all, show, verdicts,
)

pytestmark = NEEDS_PROGRAM

# Tied as in nanotron's Llama, and without biases: a row-parallel bias lives on the first tp rank alone.
TIED = {**LLAMA, "tied_embeddings": True}
LAYOUTS = [
    {"dp": 1}, {"dp": 2}, {"dp": 3, "cp": 2}, {"tp": 2}, {"pp": 2}, {"dp": 2, "tp": 2, "pp": 2}, {"dp": 2, "cp": 2, "pp": 2},
    {"dp": 2, "tp": 4}, {"dp": 2, "pp": 4},
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_defaults_match_in_both_modes_of_tensor_parallelism(layout):
    contents = [
        on("nanotron", layout, {"tp_mode": mode, "accumulate_grad_in_fp32": fp32}, model)
        for model in (LLAMA, TIED) for mode in ("ALL_REDUCE", "REDUCE_SCATTER") for fp32 in (True, False)
    ]
    assert verdicts(contents) == ["match"] * len(contents)


def test_every_rank_holds_the_average_over_dp_and_cp():
    for fp32 in (True, False):
        (report,) = replay_all([on("nanotron", {"dp": 2, "cp": 3}, {"accumulate_grad_in_fp32": fp32})])
        everywhere(report, all_equal("1/6", 6))


def test_zero_1_all_reduces_as_without_it():
    contents = [on("nanotron", {"dp": 2}, {"zero_stage": stage, "accumulate_grad_in_fp32": False}, LLAMA) for stage in (0, 1)]
    assert verdicts(contents) == ["match"] * 2
    assert show(contents[0])["steps"] == show(contents[1])["steps"]


def test_tied_weights_follow_data_parallelism_and_norms_follow_them():
    content = on("nanotron", {"dp": 2, "tp": 2, "pp": 2}, {"tp_mode": "REDUCE_SCATTER"}, TIED)
    names = [step["name"] for step in show(content)["steps"]]
    assert names == [
        "zero", "micro_batches", "dp_all_reduce", "tied_all_reduce", "norm_all_reduce", "grad_norm", "grad_norm_replicated",
        "grad_norm_tied",
    ]


def test_norms_that_the_reduce_scatter_mode_leaves_partial_are_wrong_without_their_sum():
    content = on("nanotron", {"tp": 2}, {"tp_mode": "REDUCE_SCATTER"}, LLAMA, edits=[{"drop": "norm_all_reduce"}])
    (report,) = replay_all([content])
    wrong = {item["name"] for item in report["parameters"] if item["verdict"] == "mismatch"}
    assert wrong and all("layernorm" in name for name in wrong)


def test_the_norm_counts_every_element_once_within_a_replica():
    edits = {
        "grad_norm_replicated": {"set": "grad_norm_replicated", "count": None},
        "grad_norm_tied": {"set": "grad_norm_tied", "count": None},
    }
    for name, edit in edits.items():
        (report,) = replay_all([on("nanotron", {"dp": 2, "tp": 2, "pp": 2}, model=TIED, edits=[edit])])
        assert report["verdict"] == "mismatch" and {entry["counted"] for entry in report["norm"]} == {"2"}, name
    (report,) = replay_all([on("nanotron", {"dp": 2, "tp": 2}, model=LLAMA, edits=[{"set": "grad_norm", "over": ["tp", "dp"]}])])
    assert {entry["counted"] for entry in report["norm"]} == {"2"}


def test_ranks_lie_on_pp_dp_cp_tp_the_last_one_fastest():
    axes = show(on("nanotron", {"pp": 2, "dp": 2, "cp": 2, "tp": 2}, model=LLAMA))["groups"]["axes"]
    assert [axes[axis][0] for axis in ("tp", "cp", "dp", "pp")] == [[0, 1], [0, 2], [0, 4], [0, 8]]


def test_query_and_key_norms_stay_partial_without_the_reduce_scatter_mode():
    # What every tp rank holds whole is tied with no op there; norms of single heads are not complete on a rank.
    model = {**LLAMA, "qk_layernorm": True}
    by_mode = [on("nanotron", {"tp": 2}, {"tp_mode": mode}, model) for mode in ("ALL_REDUCE", "REDUCE_SCATTER")]
    assert verdicts(by_mode) == ["mismatch", "match"]


def test_what_nanotron_refuses_is_refused_with_its_reason():
    assert "reduce-scatter that is not written" in refusal("nanotron", {"dp": 2}, {"zero_stage": 1})
    assert "not supported yet without DDP" in refusal("nanotron", {"cp": 2}, {"zero_stage": 1})
    assert "at least PP_SIZE-1=3" in refusal("nanotron", {"pp": 4}, {"pp_engine": "1f1b"}, model=LLAMA)
    assert "only ep = 1 runs" in refusal("nanotron", {"dp": 2, "ep": 2})
    assert "dp_replicate = 2" in refusal("nanotron", {"dp_replicate": 2})
    assert "no axis sp" in refusal("nanotron", {"sp": 2})
    assert "tp_mode is ALL_REDUCE" in refusal("nanotron", {"tp": 2, "sequence_parallel": True})
    assert "tp_mode is REDUCE_SCATTER" in refusal("nanotron", {"tp": 2, "sequence_parallel": False}, {"tp_mode": "REDUCE_SCATTER"})
    assert '"tp_mode"' in refusal("nanotron", {"tp": 2}, {"tpmode": "ALL_REDUCE"})
    assert verdicts([on("nanotron", {"pp": 4}, {"pp_engine": "1f1b"}, LLAMA, {"micro_batches": 3})]) == ["match"]


def test_a_model_with_learned_positions_and_biases_on_whole_layers_matches_without_sequence_parallelism():
    assert verdicts([on("nanotron", {"dp": 2, "tp": 2, "pp": 2}, model=GPT2)]) == ["match"]
