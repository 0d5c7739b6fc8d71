# SPDX-License-Identifier: Apache-2.0
"""accelerate over DDP, FSDP1 and FSDP2, against what torch 2.13 computed (docs/frameworks/accelerate.md, data/README.md)."""

from fractions import Fraction

import pytest
from torch_program import (
    GPT2, LLAMA, NEEDS_PROGRAM, all_equal, coefficients, everywhere, load, on, owners, rank_entries, refusal, replay_all,
    show, verdicts,
)

pytestmark = NEEDS_PROGRAM

MEASURED = load("torch-fsdp1.json")


def fsdp_1(**options):
    return {"distributed_type": "FSDP", **options}


def fsdp_2(**options):
    return {"distributed_type": "FSDP", "fsdp_version": 2, **options}


def content_of(entry):
    return on(
        "accelerate", {"dp_shard": entry["shards"], "dp_replicate": entry["replicas"]},
        fsdp_1(fsdp_sharding_strategy=entry["sharding_strategy"], sync_each_batch=entry["accumulation"] == "every"),
    )


@pytest.mark.parametrize("strategy", ["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"])
def test_every_measured_coefficient_of_fsdp_1_is_the_one_of_the_schedule_on_every_rank(strategy):
    entries = [entry for entry in MEASURED if entry["sharding_strategy"] == strategy]
    assert len(entries) >= 6
    for entry, report in zip(entries, replay_all([content_of(entry) for entry in entries])):
        ranks = entry["shards"] * entry["replicas"]
        assert len(entry["values_by_rank"]) == ranks
        for rank, values in enumerate(entry["values_by_rank"]):
            for name in ("w", "norm"):
                if rank not in owners(report, name):
                    continue
                found = coefficients(report, name, rank)
                missing = {"0"} if len(found) < 2 * ranks else set()
                assert set(found.values()) | missing == set(values), (entry, rank)


@pytest.mark.parametrize("ranks, before", [(1, 1), (2, 2), (3, 2), (4, 2), (6, 4), (8, 4), (12, 4), (16, 4), (64, 8), (96, 16)])
def test_fsdp_1_divides_by_a_power_of_two_before_and_by_the_rest_after(ranks, before):
    for strategy in ("FULL_SHARD", "NO_SHARD"):
        steps = {step["name"]: step for step in show(on("accelerate", {"dp": ranks}, fsdp_1(fsdp_sharding_strategy=strategy)))["steps"]}
        found = [Fraction(steps[name]["by"]) if name in steps else 1 for name in ("gradient_predivide", "dp_scale")]
        assert found == [Fraction(1, before), Fraction(before, ranks)]


def test_the_measured_split_is_that_of_the_schedule():
    for entry in MEASURED:
        steps = {step["name"]: step for step in show(content_of({**entry, "accumulation": "last"}))["steps"]}
        found = [Fraction(steps[name]["by"]) if name in steps else 1 for name in ("gradient_predivide", "dp_scale")]
        assert found == [Fraction(1, entry["divided_before"]), Fraction(1, entry["divided_after"])], entry


@pytest.mark.parametrize("sync_each_batch", [False, True])
def test_everything_averages_once_however_it_accumulates(sync_each_batch):
    kinds = [
        {}, {"distributed_type": "MULTI_CPU"}, {"comm_hook": "fp16"}, fsdp_1(), fsdp_1(fsdp_sharding_strategy="NO_SHARD"), fsdp_2(),
        fsdp_2(mixed_precision="fp16"), fsdp_2(mixed_precision="bf16"),
    ]
    for ranks in (1, 2, 3, 4):
        contents = [on("accelerate", {"dp": ranks}, {**kind, "sync_each_batch": sync_each_batch}) for kind in kinds]
        for report in replay_all(contents):
            assert report["verdict"] == "match"
            everywhere(report, all_equal(f"1/{ranks}", ranks))


def test_a_hybrid_of_fsdp_1_with_one_rank_in_the_shard_group_reduces_nothing_but_divides():
    layout = {"dp_shard": 1, "dp_replicate": 4}
    last, every = replay_all([
        on("accelerate", layout, fsdp_1(fsdp_sharding_strategy="HYBRID_SHARD", sync_each_batch=each)) for each in (False, True)
    ])
    for rank in range(4):
        assert coefficients(last, "w", rank) == {(rank, 0): "1/4", (rank, 1): "1/4"}
        assert coefficients(every, "w", rank) == {(rank, 0): "1/16", (rank, 1): "1/4"}
    # FSDP2 has no such fallback.
    assert verdicts([on("accelerate", layout, fsdp_2())]) == ["match"]


def test_defaults_match_on_layouts_that_accelerate_runs():
    contents = []
    for model in (GPT2, LLAMA):
        contents += [on("accelerate", {"dp": ranks}, options, model) for ranks in (1, 2, 6)
                     for options in ({}, {"max_norm": 1}, fsdp_1(), fsdp_1(max_norm=1), fsdp_2(), fsdp_2(max_norm=1))]
        contents += [
            on("accelerate", layout, fsdp_2(max_norm=1), model)
            for layout in ({"dp_shard": 2, "dp_replicate": 2}, {"dp": 2, "cp": 2}, {"dp": 2, "tp": 2},
                           {"dp_shard": 2, "dp_replicate": 2, "tp": 2, "cp": 2, "sequence_parallel": True})
        ]
        contents += [on("accelerate", {"dp_shard": 2, "dp_replicate": 3}, fsdp_1(fsdp_sharding_strategy="HYBRID_SHARD", max_norm=1), model)]
    assert verdicts(contents) == ["match"] * len(contents)


def test_shards_of_fsdp_1_are_flat_and_those_of_fsdp_2_are_rows():
    one, two = replay_all([on("accelerate", {"dp": 2}, options) for options in (fsdp_1(), fsdp_2())])
    # 10 + 3 elements: 7 for each, the second has one of padding.
    assert [rank_entries(one, "w")[rank]["owned"] for rank in range(2)] == [[[0, 7]], [[7, 10]]]
    assert owners(one, "norm") == [1]
    assert [rank_entries(two, "w")[rank]["owned"] for rank in range(2)] == [[[0, 6]], [[6, 10]]]
    assert [rank_entries(two, "norm")[rank]["owned"] for rank in range(2)] == [[[0, 2]], [[2, 3]]]


def test_a_loss_divided_by_the_script_and_by_accelerate_is_the_mistake_of_issue_3533():
    (report,) = replay_all([on("accelerate", {"dp": 1}, edits=[{"duplicate": "zero"}, {"insert": {
        "name": "again", "op": "scale", "by": "1 / micro_batches"}, "after": "micro_batches"}])])
    assert report["verdict"] == "mismatch"
    assert {piece["ratio"] for item in report["parameters"] for rank in item["ranks"] for piece in rank["pieces"]} == {"1/2"}


def test_what_accelerate_refuses_is_refused_with_its_reason():
    assert "framework deepspeed" in refusal("accelerate", {"dp": 2}, {"distributed_type": "DEEPSPEED"})
    assert "framework megatron" in refusal("accelerate", {"dp": 2}, {"distributed_type": "MEGATRON_LM"})
    assert "sp_backend" in refusal("accelerate", {"sp": 2})
    assert "pipeline" in refusal("accelerate", {"pp": 2})
    assert "expert" in refusal("accelerate", {"dp": 2, "ep": 2})
    assert "fsdp_version 2" in refusal("accelerate", {"tp": 2})
    assert "fsdp_version 2" in refusal("accelerate", {"cp": 2}, fsdp_1())
    assert "pure data parallelism" in refusal("accelerate", {"dp_shard": 1, "dp_replicate": 2, "tp": 2}, fsdp_2())
    assert "FSDP1's" in refusal("accelerate", {"dp": 2}, fsdp_2(fsdp_sharding_strategy="HYBRID_SHARD"))
    assert '"distributed_type"' in refusal("accelerate", {"dp": 2}, {"distributed": "FSDP"})
    assert '"FULL_SHARD"' in refusal("accelerate", {"dp": 2}, fsdp_1(fsdp_sharding_strategy="FULLSHARD"))
