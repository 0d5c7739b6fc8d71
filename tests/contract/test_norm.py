# SPDX-License-Identifier: Apache-2.0
"""The gradient norm, as the section "schedule" of the scenario format describes it."""

from contract_program import W, assert_held, backward, check, parameter, scenario, step, verdicts

MEAN = step("mean", "all_reduce", over="dp", reduce="avg")
SCATTER = step("scatter", "reduce_scatter", over="dp", reduce="avg")
DP2 = {"dp": 2}


def report(*steps, parameters=(W,), layout=None, **keys):
    return check(scenario([backward(), *steps], parameters, layout or DP2, **keys))


def counts(found):
    return [(entry["parameter"], entry["rank"], entry["counted"], entry["expected"]) for entry in found["norm"]]


def test_all_norm_steps_of_an_optimizer_step_add_up_to_one():
    two = [W, parameter("v", [4])]
    parts = [step("norm_w", "norm", params=["w"]), step("norm_v", "norm", params=["v"])]
    assert report(MEAN, *parts, parameters=two)["verdict"] == "match"
    found = report(MEAN, parts[0], parameters=two)
    assert (found["verdict"], counts(found)) == ("mismatch", [("v", 0, "0", "1"), ("v", 1, "0", "1")])
    found = report(MEAN, *parts, step("again", "norm", params=["v"]), parameters=two)
    assert counts(found) == [("v", 0, "2", "1"), ("v", 1, "2", "1")]
    # Each optimizer step has its own.
    assert verdicts(
        scenario([step("zero", "zero"), backward(), MEAN, step("norm", "norm")], layout=DP2, batch={"steps": 2})
    ) == ["match"]


def test_without_a_norm_none_is_missed_and_who_calls_none_counts_0():
    assert report(MEAN)["verdict"] == "match"
    found = report(MEAN, step("norm", "norm", only={"dp": 1}))
    assert (found["verdict"], counts(found)) == ("mismatch", [("w", 0, "0", "1")])


def test_a_rank_counts_the_elements_that_it_owns():
    # Scattered: each rank counts its half, together once; on its own each misses the other's.
    assert report(SCATTER, step("norm", "norm", over="dp"))["verdict"] == "match"
    found = report(SCATTER, step("norm", "norm"))
    assert found["verdict"] == "mismatch"
    assert counts(found) == [("w", 0, "0", "1"), ("w", 1, "0", "1")]
    # Whole on both, summed: counted twice.
    found = report(MEAN, step("norm", "norm", over="dp"))
    assert counts(found) == [("w", 0, "2", "1"), ("w", 1, "2", "1")]


def test_count_is_a_condition_true_by_default():
    one = step("norm", "norm", over="dp", count="rank.dp == 0")
    assert report(MEAN, one)["verdict"] == "match"
    found = report(MEAN, {**one, "count": "false"})
    assert counts(found) == [("w", 0, "0", "1"), ("w", 1, "0", "1")]
    # Counted by rank 0 alone and not summed: rank 1 misses it.
    found = report(MEAN, {"name": "norm", "op": "norm", "count": "rank.dp == 0"})
    assert counts(found) == [("w", 1, "0", "1")]


def test_params_select_what_is_counted():
    two = [W, parameter("v", [4], tags=["norm"])]
    found = report(MEAN, step("norm", "norm", params=["!tag:norm"]), parameters=two)
    assert counts(found) == [("v", 0, "0", "1"), ("v", 1, "0", "1")]


def test_over_sums_the_counts_and_none_is_this_rank_alone():
    # tp 2: pieces on both ranks are different elements, so they have to be summed.
    pieces = [parameter("w", [4], shard={"tp": 0})]
    assert report(step("norm", "norm", over="tp"), parameters=pieces, layout={"tp": 2})["verdict"] == "match"
    assert counts(report(step("norm", "norm"), parameters=pieces, layout={"tp": 2})) == [
        ("w", 0, "0", "1"),
        ("w", 1, "0", "1"),
    ]
    # What both hold whole is counted by one of them.
    both = [*pieces, parameter("v", [4])]
    once = [
        step("norm", "norm", over="tp", params=["w"]),
        step("norm_v", "norm", over="tp", params=["v"], count="rank.tp == 0"),
    ]
    assert report(*once, parameters=both, layout={"tp": 2})["verdict"] == "match"
    found = report(step("norm", "norm", over="tp"), parameters=both, layout={"tp": 2})
    assert counts(found) == [("v", 0, "2", "1"), ("v", 1, "2", "1")]


def test_all_members_call_it_also_those_with_nothing_selected():
    ends = [parameter("a", [4]), parameter("b", [4], stage=1)]
    per_stage = [step("norm_a", "norm", over="pp", params=["a"]), step("norm_b", "norm", over="pp", params=["b"])]
    assert report(*per_stage, parameters=ends, layout={"pp": 2})["verdict"] == "match"
    # `when` and `only` do leave ranks out, and then somebody waits.
    assert (
        report(step("norm", "norm", over="pp", only={"pp": [0]}), parameters=ends, layout={"pp": 2})["verdict"]
        == "deadlock"
    )


def test_every_rank_needs_every_element_of_the_model_also_of_other_stages():
    ends = [parameter("a", [4]), parameter("b", [4], stage=1)]
    assert report(step("norm", "norm", over="pp"), parameters=ends, layout={"pp": 2})["verdict"] == "match"
    found = report(step("norm", "norm"), parameters=ends, layout={"pp": 2})
    assert counts(found) == [("b", 0, "0", "1"), ("a", 1, "0", "1")]


def test_a_tied_parameter_is_one_logical_parameter_to_be_counted_once():
    ends = [parameter("word", [4], tied="t"), parameter("head", [4], tied="t", stage=1)]
    sync = step("sync", "all_reduce", over="pp")
    twice = report(sync, step("norm", "norm", over="pp"), parameters=ends, layout={"pp": 2})
    assert counts(twice) == [("word", 0, "2", "1"), ("head", 1, "2", "1")]
    assert (
        report(sync, step("norm", "norm", over="pp", count="rank.pp == 0"), parameters=ends, layout={"pp": 2})[
            "verdict"
        ]
        == "match"
    )


def test_an_element_of_copies_is_counted_in_one_of_them():
    lost = [parameter("word", [4], tied="t"), parameter("head", [4], tied="t", copy="head")]
    ends, sync = [lost[0], {**lost[1], "stage": 1}], step("sync", "all_reduce", over="pp")
    twice = report(sync, step("norm", "norm", over="pp"), parameters=ends, layout={"pp": 2})
    assert counts(twice) == [("word", 0, "2", "1"), ("head", 1, "2", "1")]
    once = report(sync, step("norm", "norm", over="pp", params=["word"]), parameters=ends, layout={"pp": 2})
    assert once["verdict"] == "match"
    # On one rank, whose norm counts both: in the name of the first.
    both = report(step("norm", "norm"), parameters=lost, layout={"dp": 1})
    assert counts(both) == [("word", 0, "2", "1")]


def test_combine_is_sum_by_default_and_mean_of_norms_is_never_right_over_more_than_one_rank():
    for keys, verdict in (({}, "match"), ({"combine": "sum"}, "match"), ({"combine": "mean_of_norms"}, "mismatch")):
        assert report(SCATTER, step("norm", "norm", over="dp", **keys))["verdict"] == verdict
    # Even where every rank holds all of it.
    found = report(MEAN, step("norm", "norm", over="dp", combine="mean_of_norms"))
    assert found["verdict"] == "mismatch"
    assert [entry["rank"] for entry in found["norm"]] == [0, 1]
    # Over one rank it is the norm itself.
    assert report(MEAN, step("norm", "norm", combine="mean_of_norms"))["verdict"] == "match"
    assert report(MEAN, step("norm", "norm", over="tp", combine="mean_of_norms"))["verdict"] == "match"


def test_an_element_is_counted_by_a_rank_that_owns_it_to_the_end():
    # Rank 0 counts all of it, but the optimizer of rank 1 gets the second half.
    steps = [MEAN, step("norm", "norm", over="dp", count="rank.dp == 0"), step("mine", "own", over="dp")]
    found = report(*steps)
    assert found["verdict"] == "mismatch"
    assert counts(found) == [("w", 0, "1", "1"), ("w", 1, "1", "1")]
    assert report(MEAN, step("mine", "own", over="dp"), step("norm", "norm", over="dp"))["verdict"] == "match"


def test_counted_right_but_too_early_is_an_entry_with_counted_1():
    found = report(step("norm", "norm"), MEAN)
    assert found["verdict"] == "mismatch"
    assert counts(found) == [("w", 0, "1", "1"), ("w", 1, "1", "1")]
    # In value it is right.
    assert_held(found, "w", {0: "1/2: g0 g1", 1: "1/2: g0 g1"})
    # What is the same before and after was not too early.
    assert (
        report(MEAN, step("norm", "norm"), step("a", "scale", by="2"), step("b", "scale", by="1/2"))["verdict"]
        == "match"
    )


def test_a_norm_scales_nothing():
    found = report(MEAN, step("norm", "norm"))
    assert_held(found, "w", {0: "1/2: g0 g1", 1: "1/2: g0 g1"})


def test_frozen_parameters_are_not_counted():
    assert report(MEAN, step("norm", "norm"), parameters=[W, parameter("ice", [3], frozen=True)])["verdict"] == "match"


def test_where_everything_is_counted_equally_often_the_norm_is_wrong_by_one_factor():
    two = [W, parameter("v", [4])]
    twice = report(MEAN, step("norm", "norm", over="dp"), parameters=two)
    assert twice["norm_squared_factor"] == "2"
    assert report(MEAN, step("norm", "norm", over="dp", count="false"), parameters=two)["norm_squared_factor"] == "0"
    # Where gradients are wrong too the norm is not that far off: twice counted and halved make 1/2 of its square.
    halved = report(MEAN, step("half", "scale", by="1/2"), step("norm", "norm", over="dp"), parameters=two)
    assert {entry["counted"] for entry in halved["norm"]} == {"2"} and "norm_squared_factor" not in halved
    # w twice, v once: no one number.
    mixed = [step("norm", "norm"), step("again", "norm", params=["w"])]
    assert report(MEAN, *mixed, parameters=two).get("norm_squared_factor") is None
    # Too early, or right.
    assert report(step("norm", "norm"), MEAN, parameters=two).get("norm_squared_factor") is None
    assert report(MEAN, step("norm", "norm"), parameters=two).get("norm_squared_factor") is None
