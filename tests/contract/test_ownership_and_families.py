# SPDX-License-Identifier: Apache-2.0
"""The section "What is compared" of the scenario format: owners, families, and the first verdict."""

from contract_program import W, assert_held, backward, check, named, owned, parameter, scenario, step, verdicts

MEAN = step("mean", "all_reduce", over="dp", reduce="avg")
DP2 = {"dp": 2}
SPLIT = {"dp_shard": 2, "dp_replicate": 2}  # rank = shard + 2 replicate


def unowned(report, name="w"):
    return named(report, name)["unowned"]


def test_each_rank_hands_what_it_owns_to_its_optimizer_after_the_last_step():
    # What rank 1 holds in [0,2) is wrong, but it does not own it.
    report = check(scenario([backward(), step("scatter", "reduce_scatter", over="dp", reduce="avg")], layout=DP2))
    assert report["verdict"] == "match"
    # What is wrong in between does not matter.
    report = check(
        scenario([backward(), step("spoil", "scale", by="7"), MEAN, step("mend", "scale", by="1/7")], layout=DP2)
    )
    assert report["verdict"] == "match"
    # It is read from `result`.
    steps = [backward(), MEAN, step("keep", "copy", **{"from": "grad", "to": "kept"}), step("spoil", "zero")]
    assert verdicts(scenario(steps, layout=DP2, result="kept"), scenario(steps, layout=DP2)) == ["match", "mismatch"]


def test_each_element_must_equal_exactly_that_of_one_device():
    nearly = [backward(), MEAN, step("x", "scale", by="1000000000001/1000000000000")]
    report = check(scenario(nearly, layout=DP2))
    assert report["verdict"] == "mismatch"
    assert_held(report, "w", {rank: "1000000000001/2000000000000: g0 g1" for rank in (0, 1)})
    # Of the same logical element: the right values in each other's place are wrong.
    pieces = [parameter("w", [4], shard={"tp": 0})]
    report = check(scenario([backward(), step("x", "broadcast", over="tp", root=0)], pieces, {"tp": 2}))
    assert report["verdict"] == "mismatch"
    assert_held(report, "w", {0: "g0", 1: "g0!w"})


def test_a_family_is_what_a_reduce_scatter_a_reduce_or_an_own_joined():
    joined = [
        [step("x", "reduce_scatter", over="dp", reduce="avg")],
        [step("x", "reduce", over="dp", root=0, reduce="avg")],
        [MEAN, step("x", "own", over="dp")],
    ]
    for steps in joined:
        report = check(scenario([backward(), *steps], layout=DP2))
        assert (report["verdict"], unowned(report)) == ("match", []), steps
    # Half of it given up on each rank alone: own over different groups joins nobody.
    alone = [backward(), MEAN, step("x", "own", over="dp", only={"dp": [0]}, geometry={"kind": "parameter"})]
    report = check(scenario(alone, layout=DP2))
    assert (report["verdict"], unowned(report)) == ("mismatch", [[2, 4]])


def test_ranks_are_joined_directly_or_through_others():
    # shard joins 0-1 and 2-3, replicate joins 0-2 and 1-3: one family of four. In it rank 0 owns [0,4), rank 3 [4,8).
    through = [
        backward(),
        step("one", "reduce_scatter", over="dp_shard", reduce="avg"),
        step("two", "reduce_scatter", over="dp_replicate", reduce="avg"),
    ]
    report = check(scenario(through, [parameter("w", [8])], SPLIT))
    assert (report["verdict"], unowned(report)) == ("match", [])
    assert owned(report, "w") == {0: [[0, 4]], 3: [[4, 8]]}
    # Only those that call are joined.
    apart = [
        backward(),
        MEAN,
        step("first_half", "own", over="dp", when="rank.dp_replicate == 0", geometry={"kind": "flat", "align": 16}),
    ]
    report = check(scenario(apart, [parameter("w", [8])], SPLIT))
    # Slices of 4: rank 0 has [0,4), rank 1 [4,8): a family; ranks 2 and 3 did not call and own all.
    assert (report["verdict"], owned(report, "w")) == ("match", {0: [[0, 4]], 1: [[4, 8]], 2: [[0, 8]], 3: [[0, 8]]})


def test_within_each_family_every_element_must_be_owned():
    # dp_shard 2 each: both families must own all of it; replicate 1's second shard gives its half up.
    steps = [
        backward(),
        MEAN,
        step("cut", "own", over="dp_shard"),
        step("lost", "reduce", over="dp_shard", root=0, only={"dp_replicate": [1]}),
    ]
    report = check(scenario(steps, [parameter("w", [8])], SPLIT))
    assert report["verdict"] == "mismatch"
    # Ranks 2 and 3 are the family; element [4,8) of it nobody owns, though rank 1 owns it in the other family.
    assert unowned(report) == [[4, 8]]
    assert owned(report, "w") == {0: [[0, 4]], 1: [[4, 8]], 2: [[0, 4]]}


def test_any_other_rank_is_a_family_of_its_own():
    # all_reduce, broadcast and all_gather join nobody.
    steps = [
        backward(),
        MEAN,
        step("send", "broadcast", over="dp", root=0),
        step("mine", "own", over="dp", only={"dp": [1]}),
    ]
    report = check(scenario(steps, layout=DP2))
    assert (report["verdict"], unowned(report), owned(report, "w")) == (
        "mismatch",
        [[0, 2]],
        {0: [[0, 4]], 1: [[2, 4]]},
    )


def test_families_are_ranks_that_hold_the_same_piece_on_the_same_stage():
    # Tied copies on two stages: a reduce to the first one leaves the last one without an owner.
    ends = [parameter("word", [4], tied="t"), parameter("head", [4], tied="t", stage=-1)]
    report = check(scenario([backward(), step("x", "reduce", over="pp", root=0)], ends, {"pp": 2}))
    assert report["verdict"] == "mismatch"
    assert unowned(report, "head") == [[0, 4]] and unowned(report, "word") == []
    # So do different pieces of a sharded parameter.
    pieces = [parameter("w", [8], shard={"tp": 0})]
    report = check(scenario([backward(), step("x", "own", over="tp")], pieces, {"tp": 2}))
    assert report["verdict"] == "mismatch"
    assert owned(report, "w") == {0: [[0, 2]], 1: [[2, 4]]}
    assert sorted(map(tuple, unowned(report))) in ([(0, 2), (2, 4)], [(0, 4)])


def test_an_element_may_be_owned_by_several_as_long_as_each_is_right():
    assert verdicts(scenario([backward(), MEAN], layout=DP2)) == ["match"]
    report = check(scenario([backward(), MEAN, step("x", "scale", by="2", only={"dp": [1]})], layout=DP2))
    assert report["verdict"] == "mismatch"
    assert [entry["verdict"] for entry in named(report, "w")["ranks"]] == ["match", "mismatch"]


def test_the_first_wrong_optimizer_step_is_reported():
    # Wrong in steps 1 and 2, in different ways.
    steps = [step("zero", "zero"), backward(), step("x", "scale", by="step + 1")]
    report = check(scenario(steps, batch={"steps": 3, "loss": "sum"}))
    assert (report["verdict"], report["step"]) == ("mismatch", 1)
    assert_held(report, "w", {0: "2: g0.1"})


def test_each_of_the_five_verdicts_is_reached():
    skip = {"only": {"dp": [0]}}
    assert verdicts(
        scenario([backward(), MEAN], layout=DP2),
        scenario([backward()], layout=DP2),
        scenario([backward(), {**MEAN, **skip}], layout=DP2),
        scenario([backward(), {**MEAN, **skip}, step("sum", "all_reduce", over="dp", only={"dp": [1]})], layout=DP2),
        scenario([backward(), {**MEAN, "async": True}], layout=DP2),
    ) == ["match", "mismatch", "deadlock", "invalid_collective", "race"]


FLYING = {**MEAN, "async": True}
TOUCH = step("touch", "scale", by="1")


def test_a_deadlock_comes_only_when_nobody_can_go_on():
    # dp 4 in pairs: ranks 0 and 1 are stuck at once, ranks 2 and 3 go on to a race.
    steps = [
        backward(),
        step("stuck", "all_reduce", over="dp_shard", only={"dp": [0]}),
        step("fly", "scale", by="1", only={"dp_replicate": [1]}, **{"async": True}),
        TOUCH,
    ]
    report = check(scenario(steps, layout=SPLIT))
    # Rank 1 is not stuck either: it has nothing to wait for.
    assert report["verdict"] == "race"
    assert [entry["rank"] for entry in report["stuck"]] == [2, 3]
    # Without the race it is a deadlock, of rank 0 alone.
    report = check(scenario(steps[:2], layout=SPLIT))
    assert (report["verdict"], [entry["rank"] for entry in report["stuck"]]) == ("deadlock", [0])


def test_an_invalid_collective_comes_when_its_last_member_arrives():
    # Ranks 0 and 1 bring different things, but rank 2 has to come before that shows: it races first …
    by_rank = [
        step("a", "all_reduce", over="dp", only={"dp": [0]}),
        step("b", "all_reduce", over="dp", reduce="avg", only={"dp": [1]}),
    ]
    last = step("c", "all_reduce", over="dp", only={"dp": [2]})
    flight = [
        step("fly", "scale", by="1", only={"dp": [2]}, **{"async": True}),
        step("touch", "scale", by="1", only={"dp": [2]}),
    ]
    assert verdicts(
        scenario([backward(), *by_rank, *flight, last], layout={"dp": 3}),
        # … or never comes, and all wait …
        scenario([backward(), *by_rank], layout={"dp": 3}),
        # … or comes.
        scenario([backward(), *by_rank, last], layout={"dp": 3}),
        scenario([backward(), *by_rank, last, *flight], layout={"dp": 3}),
    ) == ["race", "deadlock", "invalid_collective", "invalid_collective"]


def test_the_first_verdict_reached_in_time_ends_the_run():
    race = [FLYING, TOUCH]
    invalid = [
        step("a", "all_reduce", over="dp", only={"dp": [0]}),
        step("b", "all_reduce", over="dp", reduce="avg", only={"dp": [1]}),
    ]
    stuck = [step("c", "all_reduce", over="dp", only={"dp": [0]})]
    orders = [[*race, *invalid], [*invalid, *race], [*race, *stuck], [*stuck, TOUCH]]
    assert verdicts(*[scenario([backward(), *steps], layout=DP2) for steps in orders]) == [
        "race",
        "invalid_collective",
        "race",
        "deadlock",
    ]


def test_a_wrong_optimizer_step_comes_before_what_happens_in_a_later_one():
    later = step("late", "all_reduce", over="dp", when="step == 1 and rank.dp == 0")
    wrong_first = [step("zero", "zero"), backward(), later]
    report = check(scenario(wrong_first, layout=DP2, batch={"steps": 2}))
    assert (report["verdict"], report["step"]) == ("mismatch", 0)
    right_first = [step("zero", "zero"), backward(), MEAN, later]
    report = check(scenario(right_first, layout=DP2, batch={"steps": 2}))
    assert (report["verdict"], report["step"]) == ("deadlock", 1)
