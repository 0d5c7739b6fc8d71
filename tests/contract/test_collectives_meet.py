# SPDX-License-Identifier: Apache-2.0
"""The section "schedule" of the scenario format: how collectives meet, and when they cannot."""

from contract_program import W, assert_held, backward, check, parameter, scenario, step, verdicts

TWO = [W, parameter("v", [4])]
DP2 = {"dp": 2}
FIRST, SECOND = {"only": {"dp": [0]}}, {"only": {"dp": [1]}}


def meeting(one, other, parameters=(W,), **keys):
    """Rank 0 calls `one`, rank 1 calls `other`."""
    return check(scenario([backward(), {**one, **FIRST}, {**other, **SECOND}], parameters, DP2, **keys))


def test_collectives_meet_in_the_order_in_which_each_member_calls_them_whichever_steps_they_stem_from():
    # Rank 0: a (w), b (v); rank 1: b (v), c (w). So w meets v, then v meets w.
    steps = [
        backward(),
        step("a", "all_reduce", over="dp", params=["w"], **FIRST),
        step("b", "all_reduce", over="dp", params=["v"]),
        step("c", "all_reduce", over="dp", params=["w"], **SECOND),
    ]
    report = check(scenario(steps, TWO, DP2))
    assert report["verdict"] == "mismatch"
    assert_held(report, "w", {0: "g0 g1!v", 1: "g0!v g1"})
    assert_held(report, "v", {0: "g0 g1!w", 1: "g0!w g1"})
    # Two steps of different names that agree are one collective.
    report = meeting(
        step("here", "all_reduce", over="dp", reduce="avg"), step("there", "all_reduce", over="dp", reduce="avg")
    )
    assert report["verdict"] == "match"


def test_another_group_is_met_apart():
    # The group of tp and that of dp wait for nothing of each other.
    layout = {"tp": 2, "dp": 2}
    steps = [
        backward(),
        step("a", "all_reduce", over="tp", only={"dp": [0]}),
        step("b", "all_reduce", over="dp", reduce="avg"),
        step("c", "all_reduce", over="tp", only={"dp": [1]}),
    ]
    report = check(scenario(steps, [parameter("w", [4], partial=["tp"])], layout))
    # dp 0 has summed before the mean, dp 1 sums (g0+g1)+g2 with (g0+g1)+g3 after it, halved.
    assert_held(
        report, "w", {0: "1/2: g0 g1 g2", 1: "1/2: g0 g1 g3", 2: "1: g0 g1; 1/2: g2 g3", 3: "1: g0 g1; 1/2: g2 g3"}
    )


def test_the_same_ranks_are_one_group_whatever_the_axes_are_called():
    # tp x dp with dp 1 is the group of tp.
    report = check(
        scenario(
            [
                backward(),
                step("a", "all_reduce", over="tp", only={"tp": [0]}),
                step("b", "all_reduce", over=["tp", "dp"], only={"tp": [1]}),
            ],
            [parameter("w", [4], partial=["tp"])],
            {"tp": 2},
        )
    )
    assert report["verdict"] == "match"


def test_parameters_are_matched_by_position_in_model_order():
    # The order of the selectors does not matter, that of the model does.
    report = meeting(
        step("a", "all_reduce", over="dp", params=["v", "w"], reduce="avg"),
        step("b", "all_reduce", over="dp", params=["w", "v"], reduce="avg"),
        TWO,
    )
    assert report["verdict"] == "match"
    three = [*TWO, parameter("u", [4])]
    report = meeting(
        step("a", "all_reduce", over="dp", params=["w", "u"]),
        step("b", "all_reduce", over="dp", params=["w", "v"]),
        three,
    )
    assert_held(report, "w", {0: "g0 g1", 1: "g0 g1"})
    assert_held(report, "u", {0: "g0 g1!v", 1: "g1"})
    assert_held(report, "v", {0: "g0", 1: "g0!u g1"})


def invalid(one, other, parameters=(W,)):
    report = meeting(one, other, parameters)
    assert report["verdict"] == "invalid_collective", report["verdict"]
    return [(entry["rank"], entry["calls"], entry["with"]) for entry in report["stuck"]]


def test_op_sizes_dtype_reduction_and_root_must_agree():
    sizes = [W, parameter("v", [5]), parameter("h", [4], dtype="bfloat16"), parameter("x", [4])]
    reduce = {"over": "dp"}
    both = [(0, "a", [1]), (1, "b", [0])]
    assert invalid(step("a", "all_reduce", **reduce), step("b", "reduce_scatter", **reduce)) == both
    assert invalid(step("a", "all_reduce", **reduce), step("b", "all_to_all", **reduce)) == both
    assert (
        invalid(step("a", "all_reduce", params=["w"], **reduce), step("b", "all_reduce", params=["v"], **reduce), sizes)
        == both
    )
    assert (
        invalid(step("a", "all_reduce", params=["w"], **reduce), step("b", "all_reduce", params=["h"], **reduce), sizes)
        == both
    )
    # The same number of elements in all, but not one by one.
    assert (
        invalid(
            step("a", "all_reduce", params=["w", "x"], **reduce), step("b", "all_reduce", params=["x"], **reduce), sizes
        )
        == both
    )
    assert invalid(step("a", "all_reduce", **reduce), step("b", "all_reduce", reduce="avg", **reduce)) == both
    for op in ("broadcast", "reduce"):
        assert invalid(step("a", op, root=0, **reduce), step("b", op, root=1, **reduce)) == both
    assert invalid(step("a", "reduce", root=0, **reduce), step("b", "reduce", root=0, reduce="avg", **reduce)) == both


def test_with_lists_all_other_members():
    report = check(
        scenario(
            [
                backward(),
                step("a", "all_reduce", over="dp", when="rank.dp != 1"),
                step("b", "all_reduce", over="dp", reduce="avg", only={"dp": [1]}),
            ],
            layout={"dp": 3},
        )
    )
    assert report["verdict"] == "invalid_collective"
    assert [(entry["rank"], entry["calls"], entry["with"]) for entry in report["stuck"]] == [
        (0, "a", [1, 2]),
        (1, "b", [0, 2]),
        (2, "a", [0, 1]),
    ]


def test_a_collective_that_some_member_never_reaches_is_a_deadlock():
    report = check(scenario([backward(), step("a", "all_reduce", over="dp", when="rank.dp != 1")], layout={"dp": 3}))
    assert report["verdict"] == "deadlock"
    assert report["stuck"] == [{"rank": 0, "waits_in": "a", "for": [1]}, {"rank": 2, "waits_in": "a", "for": [1]}]


def test_waiting_for_each_other_in_two_groups_is_a_deadlock():
    # Ranks 0 and 3 go to tp first, 1 and 2 to dp first: nobody's partner comes.
    layout = {"tp": 2, "dp": 2}
    tp_first = "rank.tp == rank.dp"
    steps = [
        backward(),
        step("t1", "all_reduce", over="tp", when=tp_first),
        step("d", "all_reduce", over="dp"),
        step("t2", "all_reduce", over="tp", when="not (" + tp_first + ")"),
    ]
    report = check(scenario(steps, [parameter("w", [4], partial=["tp"])], layout))
    assert report["verdict"] == "deadlock"
    assert report["stuck"] == [
        {"rank": 0, "waits_in": "t1", "for": [1]},
        {"rank": 1, "waits_in": "d", "for": [3]},
        {"rank": 2, "waits_in": "d", "for": [0]},
        {"rank": 3, "waits_in": "t1", "for": [2]},
    ]


def test_collectives_inside_each_meet_once_per_micro_batch():
    sync = {
        "name": "micro_batches",
        "op": "each",
        "steps": [step("backward", "backward"), step("sum", "all_reduce", over="dp")],
    }
    # The sum of micro-batch 0 is there on both ranks when micro-batch 1 is summed: it counts twice.
    report = check(scenario([sync], layout=DP2, batch={"micro_batches": 2}))
    assert_held(report, "w", {0: "2: g0 g1; 1: g0.1 g1.1", 1: "2: g0 g1; 1: g0.1 g1.1"})
    # A member that leaves one out comes with its next one; at the end one call is left over.
    sync["steps"][1] = step("sum", "all_reduce", over="dp", when="rank.dp == 0 or micro_batch == 1")
    report = check(scenario([sync], layout=DP2, batch={"micro_batches": 2}))
    assert (report["verdict"], report["stuck"]) == ("deadlock", [{"rank": 0, "waits_in": "sum", "for": [1]}])


def test_a_foreign_contribution_is_worth_nothing_even_where_the_sizes_agree():
    report = meeting(
        step("a", "broadcast", over="dp", root=0, params=["w"]),
        step("b", "broadcast", over="dp", root=0, params=["v"]),
        TWO,
    )
    assert report["verdict"] == "mismatch"
    assert_held(report, "v", {0: "g0", 1: "g0!w"})


def test_norm_and_all_to_all_meet_by_op_alone():
    both = [W, parameter("v", [7])]
    steps = [
        backward(),
        step("mean", "all_reduce", over="dp", reduce="avg"),
        step("mine", "own", over="dp"),
        step("a", "norm", over="dp", params=["w"], **FIRST),
        step("b", "norm", over="dp", params=["w"], **SECOND),
        step("rest", "norm", over="dp", params=["v"]),
        step("c", "all_to_all", over="dp", params=["w"], **FIRST),
        step("d", "all_to_all", over="dp", params=["v"], **SECOND),
    ]
    assert verdicts(scenario(steps, both, DP2)) == ["match"]
