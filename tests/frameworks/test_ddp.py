# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel against what torch 2.13 computed (docs/frameworks/ddp.md)."""

import itertools

import pytest
from torch_program import (
    GPT2, NEEDS_PROGRAM, all_equal, coefficients, everywhere, on, parameter, refusal, replay_all, verdicts,
)

pytestmark = NEEDS_PROGRAM

FORGETS_TO_DIVIDE = [{"drop": "dp_scale"}]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_every_hook_and_every_way_to_accumulate_averages(ranks):
    hooks = ["none", "allreduce_hook", "fp16_compress_hook", "bf16_compress_hook"]
    flags = [{}, {"static_graph": True}, {"gradient_as_bucket_view": True}, {"find_unused_parameters": True}]
    settings = [
        {"comm_hook": hook, "no_sync": no_sync, **flag}
        for hook, no_sync, flag in itertools.product(hooks, [False, True], flags)
    ]
    for report in replay_all([on("ddp", {"dp": ranks}, options) for options in settings]):
        assert report["verdict"] == "match"
        everywhere(report, all_equal(f"1/{ranks}", ranks))


@pytest.mark.parametrize("ranks, micro_batches", [(2, 2), (2, 3), (3, 2), (4, 3)])
def test_a_hook_that_forgets_to_divide_sums_and_grows_again_in_every_micro_batch(ranks, micro_batches):
    contents = [
        on("ddp", {"dp": ranks}, {"no_sync": no_sync}, batch={"micro_batches": micro_batches}, edits=FORGETS_TO_DIVIDE)
        for no_sync in (True, False)
    ]
    once, every = replay_all(contents)
    everywhere(once, all_equal(1, ranks, micro_batches))
    # n^(M - 1 - m): with two micro-batches n for the earlier one and 1 for the last.
    everywhere(every, {
        (rank, m): str(ranks ** (micro_batches - 1 - m)) for rank in range(ranks) for m in range(micro_batches)
    })
    assert [report["verdict"] for report in (once, every)] == ["mismatch"] * 2


@pytest.mark.parametrize("no_sync", [False, True])
def test_a_hook_that_reduces_nothing_leaves_each_rank_its_own(no_sync):
    (report,) = replay_all([on("ddp", {"dp": 2}, {"comm_hook": "noop_hook", "no_sync": no_sync})])
    for rank in range(2):
        assert coefficients(report, "w", rank) == {(rank, 0): "1", (rank, 1): "1"}


@pytest.mark.parametrize("no_sync", [False, True])
def test_a_parameter_that_later_micro_batches_leave_out_is_averaged_as_well(no_sync):
    # As torch 2.13 does with find_unused_parameters, under no_sync too.
    model = [parameter("w", [4]), parameter("unused_later", [4], micro_batches=[0])]
    content = on("ddp", {"dp": 2}, {"find_unused_parameters": True, "no_sync": no_sync}, model, {"micro_batches": 3})
    (report,) = replay_all([content])
    assert report["verdict"] == "match"
    for rank in range(2):
        assert coefficients(report, "unused_later", rank) == {(0, 0): "1/2", (1, 0): "1/2"}
        assert coefficients(report, "w", rank) == all_equal("1/2", 2, 3)


def test_losses_that_are_not_divided_by_the_micro_batches_are_a_sum_of_means():
    contents = [
        on("ddp", {"dp": 2}, {"gradient_accumulation": "sum", "no_sync": no_sync}, GPT2) for no_sync in (False, True)
    ]
    assert verdicts(contents) == ["match"] * 2
    # Against the mean over micro-batches everything is their number too large.
    contents = [{**content, "batch": {"loss": "local_mean"}} for content in contents]
    for report in replay_all(contents):
        assert report["verdict"] == "mismatch"
        assert {piece["ratio"] for item in report["parameters"] for rank in item["ranks"] for piece in rank["pieces"]} == {"2"}


def test_defaults_match_on_layouts_that_ddp_is_used_on():
    layouts = [{"dp": 1}, {"dp": 2}, {"dp": 3}, {"dp": 8}, {"dp": 2, "cp": 2}, {"dp": 2, "pp": 2}, {"dp": 2, "tp": 2}]
    model = {**GPT2, "tied_embeddings": False}
    assert verdicts([on("ddp", layout, model=model) for layout in layouts]) == ["match"] * len(layouts)
    assert verdicts([on("ddp", {"dp": 4}, {"max_norm": 1}, GPT2)]) == ["match"]


def test_a_norm_that_every_rank_takes_for_itself_misses_what_other_stages_and_tp_ranks_hold():
    model = {**GPT2, "tied_embeddings": False}
    contents = [on("ddp", layout, {"max_norm": 1}, model) for layout in ({"dp": 2, "pp": 2}, {"dp": 2, "tp": 2})]
    for report in replay_all(contents):
        assert report["verdict"] == "mismatch" and {entry["counted"] for entry in report["norm"]} == {"0"}


def test_what_ddp_does_not_know_is_refused():
    assert "ep is 2" in refusal("ddp", {"dp": 2, "ep": 2})
    assert "dp_replicate = 2" in refusal("ddp", {"dp_replicate": 2, "dp_shard": 2})
    assert "Ulysses" in refusal("ddp", {"sp": 2})
    assert "must be positive" in refusal("ddp", {"dp": 2}, {"bucket_cap_mb": 0})
    assert '"no_sync"' in refusal("ddp", {"dp": 2}, {"nosync": True})
    assert '"fp16_compress_hook"' in refusal("ddp", {"dp": 2}, {"comm_hook": "fp16_compres_hook"})
