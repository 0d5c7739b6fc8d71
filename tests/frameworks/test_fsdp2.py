# SPDX-License-Identifier: Apache-2.0
"""fully_shard against what torch 2.13 computed (docs/frameworks/fsdp2.md, data/README.md)."""

from fractions import Fraction

import pytest
from torch_program import (
    GPT2, LLAMA, NEEDS_PROGRAM, all_equal, coefficients, everywhere, load, on, parameter, rank_entries, refusal, replay_all,
    show, verdicts,
)

pytestmark = NEEDS_PROGRAM

MEASURED = load("torch-fsdp2.json")
ACCUMULATION = {
    "every": {},
    "last": {"requires_gradient_sync": False},
    "no_all_reduce": {"requires_all_reduce": False},
}
TYPES = ["float32", "bfloat16", "float16", "float64"]


def options_of(entry):
    return {
        "reduce_dtype": entry["reduce_dtype"],
        "gradient_divide_factor": entry["gradient_divide_factor"],
        "force_sum_reduction_for_comms": entry["force_sum"],
        **ACCUMULATION[entry["accumulation"]],
    }


@pytest.mark.parametrize("shards, replicas", [(1, 1), (1, 2), (2, 1), (1, 4), (2, 2), (4, 1)])
def test_every_measured_coefficient_is_the_one_of_the_schedule_on_every_rank(shards, replicas):
    entries = [entry for entry in MEASURED if (entry["shards"], entry["replicas"]) == (shards, replicas)]
    assert len(entries) > 50
    layout = {"dp_shard": shards, "dp_replicate": replicas}
    for entry, report in zip(entries, replay_all([on("fsdp2", layout, options_of(entry)) for entry in entries])):
        everywhere(report, all_equal(entry["coefficient"], shards * replicas))
        right = Fraction(entry["coefficient"]) == Fraction(1, shards * replicas)
        assert report["verdict"] == ("match" if right else "mismatch"), entry


def test_the_measured_settings_are_there():
    assert len(MEASURED) == 443
    assert {entry["reduce_dtype"] for entry in MEASURED} == set(TYPES)
    assert {entry["accumulation"] for entry in MEASURED} == set(ACCUMULATION)


@pytest.mark.parametrize("layout", [{"dp": 3}, {"dp": 6}, {"dp_shard": 3, "dp_replicate": 2}, {"dp_shard": 2, "cp": 2}])
@pytest.mark.parametrize("factor", [0, 3, 2.5])
def test_a_divide_factor_divides_once_where_there_is_a_shard_group(layout, factor):
    ranks = layout.get("dp", layout.get("dp_shard", 1) * layout.get("dp_replicate", 1)) * layout.get("cp", 1)
    settings = [
        {"reduce_dtype": dtype, "force_sum_reduction_for_comms": force, "gradient_divide_factor": factor, **accumulation}
        for dtype in ("float32", "float16") for force in (False, True) for accumulation in ACCUMULATION.values()
    ]
    for report in replay_all([on("fsdp2", layout, options) for options in settings]):
        everywhere(report, all_equal(1 / Fraction(factor or ranks), ranks))


@pytest.mark.parametrize("ranks, before", [(2, 2), (3, 2), (4, 2), (5, 2), (6, 4), (8, 4), (12, 4), (16, 4), (64, 8), (96, 16), (1024, 32)])
def test_a_narrow_type_divides_by_a_power_of_two_before_and_by_the_rest_after(ranks, before):
    content = on("fsdp2", {"dp": ranks}, {"reduce_dtype": "float16", "requires_gradient_sync": False})
    steps = {step["name"]: step for step in show(content)["steps"]}
    assert Fraction(steps["gradient_predivide"]["by"]) == Fraction(1, before)
    assert Fraction(steps["dp_scale"]["by"]) == Fraction(before, ranks) if before != ranks else "dp_scale" not in steps


def test_shards_are_rows_of_the_first_dimension_and_the_last_may_be_empty():
    model = [parameter("w", [5, 2]), parameter("scalars", [2])]
    (report,) = replay_all([on("fsdp2", {"dp_shard": 4, "dp_replicate": 2}, model=model)])
    for rank in range(8):
        shard = rank % 4
        first = min(4 * shard, 10)
        expected = [[first, min(first + 4, 10)]] if first < 10 else []
        assert rank_entries(report, "w")[rank]["owned"] == expected
        assert rank_entries(report, "scalars")[rank]["owned"] == ([[shard, shard + 1]] if shard < 2 else [])


# Tensor parallelism by DTensor, tp 2 and one data-parallel rank.
NORM = parameter("norm", [4], partial=["tp"], tags=["norm"])


def test_a_norm_on_a_sequence_shard_is_partial_until_it_is_brought_to_its_placement():
    layout = {"tp": 2, "sequence_parallel": True}
    right, local = replay_all([
        on("fsdp2", layout, model=[NORM]),
        on("fsdp2", layout, model=[NORM], edits=[{"drop": "norm_all_reduce"}]),
    ])
    assert right["verdict"] == "match" and local["verdict"] == "mismatch"
    for rank in range(2):
        assert coefficients(right, "norm", rank) == all_equal(1, 2)
        # The local value of the Partial DTensor, or a plain norm module that was left on a sequence shard: own tokens only.
        assert coefficients(local, "norm", rank) == {(rank, 0): "1", (rank, 1): "1"}
    assert local["parameters"][0]["replicas_agree"] is False


def test_a_norm_on_replicated_input_is_complete_on_every_rank():
    model = [parameter("norm", [4], tags=["norm"]), parameter("row.bias", [4], tags=["bias", "replicated"])]
    (report,) = replay_all([on("fsdp2", {"tp": 2}, model=model)])
    assert report["verdict"] == "match"
    everywhere(report, {(0, 0): "1", (0, 1): "1"})


def test_linear_weights_are_cut_by_tp_and_each_rank_has_the_gradient_of_its_piece():
    model = [
        parameter("column.weight", [4, 4], shard={"tp": 0}),
        parameter("row.weight", [4, 4], shard={"tp": 1}),
        parameter("row.bias", [4], tags=["bias", "replicated"]),
    ]
    one, two = replay_all([on("fsdp2", {"tp": 2, "dp": ranks}, model=model) for ranks in (1, 2)])
    assert one["verdict"] == two["verdict"] == "match"
    for name in ("column.weight", "row.weight"):
        for rank in range(2):
            assert coefficients(one, name, rank) == {(rank, 0): "1", (rank, 1): "1"}
        for rank in range(4):
            pieces = (rank % 2, rank % 2 + 2)
            assert coefficients(two, name, rank) == {(piece, m): "1/2" for piece in pieces for m in range(2)}


def test_defaults_match_on_layouts_that_fsdp_is_used_on():
    layouts = [
        {"dp": 1}, {"dp": 2}, {"dp": 3}, {"dp": 8}, {"dp_shard": 2, "dp_replicate": 3}, {"dp_shard": 1, "dp_replicate": 4},
        {"dp": 2, "tp": 2}, {"dp": 2, "tp": 2, "sequence_parallel": True}, {"dp": 2, "cp": 3},
        {"dp_shard": 2, "dp_replicate": 2, "cp": 2, "tp": 2, "sequence_parallel": True},
    ]
    for model in (GPT2, LLAMA, {**LLAMA, "qk_layernorm": True}):
        for options in ({}, {"max_norm": 1}):
            assert verdicts([on("fsdp2", layout, options, model) for layout in layouts]) == ["match"] * len(layouts)
    assert verdicts([on("fsdp2", {"dp": 2, "pp": 2}, model=LLAMA)]) == ["match"]


def test_losses_that_are_not_divided_by_the_micro_batches_are_a_sum_of_means():
    contents = [on("fsdp2", {"dp": 2}, {"gradient_accumulation": "sum", **how}) for how in ACCUMULATION.values()]
    assert verdicts(contents) == ["match"] * 3


def test_a_norm_without_the_pipeline_misses_other_stages():
    (report,) = replay_all([on("fsdp2", {"dp": 2, "pp": 2}, {"max_norm": 1}, LLAMA)])
    assert report["verdict"] == "mismatch" and {entry["counted"] for entry in report["norm"]} == {"0"}


def test_what_fully_shard_does_not_know_is_refused():
    assert "torchtitan" in refusal("fsdp2", {"dp": 2, "ep": 2})
    assert "Ulysses" in refusal("fsdp2", {"sp": 2})
    assert "must be positive" in refusal("fsdp2", {"dp": 2}, {"gradient_divide_factor": -1})
    assert "1048576" in refusal("fsdp2", {"dp": 2}, {"gradient_divide_factor": 1048576, "reduce_dtype": "float16"})
    assert '"force_sum_reduction"' in refusal("fsdp2", {"dp": 2}, {"force_sum_reduction": True})
    assert '"float16"' in refusal("fsdp2", {"dp": 2}, {"reduce_dtype": "fp16"})
