# SPDX-License-Identifier: Apache-2.0
"""The section "expect" of the scenario format."""

from contract_program import W, backward, check, expectation_holds, message, parameter, run, scenario, step, write

DP2 = {"dp": 2}
SPLIT = step("mine", "own", over="dp")
MEAN = step("mean", "all_reduce", over="dp", reduce="avg")
# a is twice too large on rank 1; b is right; c is not reduced at all.
THREE = scenario(
    [backward(), {**MEAN, "params": ["a", "b"]}, step("x", "scale", by="2", params=["a"], only={"dp": [1]})],
    [parameter("a", [4], tags=["t"]), parameter("b", [4]), parameter("c", [4])],
    DP2,
)
RIGHT = scenario([backward(), MEAN], layout=DP2)


def holds(content, **keys):
    return expectation_holds(content, **{"verdict": check(content)["verdict"], **keys})


def test_verdict_has_to_be_there():
    assert expectation_holds(RIGHT, verdict="match")
    for other in ("mismatch", "deadlock", "invalid_collective", "race"):
        assert not expectation_holds(RIGHT, verdict=other)
    assert '"verdict"' in message({**RIGHT, "expect": {"ranks": []}})
    assert message({**RIGHT, "expect": {"verdict": "matches"}})
    assert check(RIGHT)["expected"] is None


def test_parameters_are_selectors_of_exactly_those_that_are_wrong():
    assert holds(THREE, parameters=["a", "c"])
    assert holds(THREE, parameters=["tag:t", "c"])
    assert holds(THREE, parameters=["!b"])
    assert not holds(THREE, parameters=["a"])
    assert not holds(THREE, parameters=["*"])
    # In norm alone, and unowned.
    uncounted = scenario(
        [backward(), MEAN, step("norm", "norm", params=["a"])], [parameter("a", [4]), parameter("b", [4])], DP2
    )
    assert holds(uncounted, parameters=["b"]) and not holds(uncounted, parameters=["a", "b"])
    lost = scenario(
        [
            backward(),
            MEAN,
            step("lost", "reduce", over="dp", root=0, params=["a"]),
            step("less", "own", over="dp", params=["a"], only={"dp": [0]}),
        ],
        [parameter("a", [4]), parameter("b", [4])],
        DP2,
    )
    assert holds(lost, parameters=["a"]) and not holds(lost, parameters=["b"])
    assert holds(RIGHT, parameters=[])


def test_ranks_are_exactly_those_that_own_something_wrong_hold_something_unowned_or_count_a_wrong_norm():
    only_one = scenario([backward(), MEAN, step("x", "scale", by="2", only={"dp": [1]})], layout=DP2)
    assert holds(only_one, ranks=[1])
    assert not holds(only_one, ranks=[0, 1]) and not holds(only_one, ranks=[]) and not holds(only_one, ranks=[0])
    # What it does not own does not count.
    stale = scenario(
        [
            backward(),
            step("scatter", "reduce_scatter", over="dp", reduce="avg"),
            step("x", "scale", by="2", only={"dp": [1]}),
        ],
        layout=DP2,
    )
    assert holds(stale, ranks=[1])
    # Of the family that lacks an owner, every rank that holds the element: rank 0, which gave up the second half.
    unowned = scenario([backward(), MEAN, {**SPLIT, "only": {"dp": [0]}}], layout=DP2)
    assert holds(unowned, ranks=[0]) and not holds(unowned, ranks=[0, 1])
    norm = scenario([backward(), MEAN, step("norm", "norm", count="rank.dp == 0")], layout=DP2)
    assert holds(norm, ranks=[1]) and not holds(norm, ranks=[0])


def test_a_formula_is_given_per_parameter_and_rank():
    assert holds(THREE, formula={"a": {"1": "g0 + g1"}, "c": {"0": "g0", "1": "g1"}})
    assert not holds(THREE, formula={"a": {"1": "(g0 + g1)/2"}})
    assert not holds(THREE, formula={"c": {"0": "g1"}})
    # Every wrong element of that rank: one that is right has none.
    assert not holds(THREE, formula={"a": {"0": "(g0 + g1)/2"}})


PARTS = scenario(
    [
        backward(),
        step("scatter", "reduce_scatter", over="dp", geometry={"kind": "flat", "align": 6}),
        step("all", "own", over=[]),
    ],
    layout=DP2,
)


def test_a_formula_may_be_given_per_elements():
    # Slices of 3: rank 0 has the sum in [0,3), its own in [3,4).
    assert holds(PARTS, formula={"w": {"0": {"[0,3)": "g0 + g1", "[3,4)": "g0"}}})
    assert holds(PARTS, formula={"w": {"1": {"[0,3)": "g1", "[3,4)": "g0 + g1"}}})
    assert holds(PARTS, formula={"w": {"0": {"[1,2)": "g0 + g1"}}})
    assert not holds(PARTS, formula={"w": {"0": {"[0,4)": "g0 + g1"}}})
    assert not holds(PARTS, formula={"w": {"0": {"[0,3)": "g0"}}})
    # One formula for the rank means every wrong element.
    assert not holds(PARTS, formula={"w": {"0": "g0 + g1"}})


def test_ratio_is_one_number_for_all_wrong_elements():
    summed = scenario(
        [backward(), step("sum", "all_reduce", over="dp", params=["w"]), {**MEAN, "params": ["v"]}],
        [W, parameter("v", [4])],
        DP2,
    )
    assert holds(summed, ratio="2") and holds(summed, ratio="4/2") and holds(summed, ratio=2)
    assert not holds(summed, ratio="1/2")
    # Two ratios are none, and so is another formula.
    both = scenario(
        [backward(), step("sum", "all_reduce", over="dp"), step("x", "scale", by="3", params=["v"])],
        [W, parameter("v", [4])],
        DP2,
    )
    assert not holds(both, ratio="2") and not holds(both, ratio="6")
    assert not holds(THREE, ratio="2")


def test_replicas_agree_means_that_no_comparison_of_replicas_could_see_it():
    summed = scenario([backward(), step("sum", "all_reduce", over="dp")], layout=DP2)
    apart = scenario([backward()], layout=DP2)
    assert holds(summed, replicas_agree=True) and not holds(summed, replicas_agree=False)
    assert holds(apart, replicas_agree=False) and not holds(apart, replicas_agree=True)
    # Only owners are compared.
    sliced = scenario([backward(), step("scatter", "reduce_scatter", over="dp")], layout=DP2)
    assert holds(sliced, replicas_agree=True)
    # Tied copies are replicas of each other.
    ends = [parameter("word", [4], tied="t"), parameter("head", [4], tied="t", stage=-1)]
    assert holds(scenario([backward()], ends, {"pp": 2}), replicas_agree=False)
    assert holds(
        scenario([backward(), step("x", "all_reduce", over="pp", reduce="avg")], ends, {"pp": 2}), replicas_agree=True
    )
    # Elements that one owner has and another has not are compared where both have them.
    assert holds(RIGHT, replicas_agree=True)


def test_norm_gives_counts_by_parameter():
    twice = scenario(
        [backward(), MEAN, step("norm", "norm", over="dp", params=["a"]), step("rest", "norm", params=["b"])],
        [parameter("a", [4]), parameter("b", [4])],
        DP2,
    )
    assert holds(twice, norm={"a": "2"}) and not holds(twice, norm={"a": "1"}) and not holds(twice, norm={"b": "2"})


def test_step_is_the_first_wrong_optimizer_step():
    late = scenario(
        [step("zero", "zero"), backward(), step("x", "scale", by="step + 1")], batch={"steps": 3, "loss": "sum"}
    )
    assert holds(late, step=1) and not holds(late, step=0) and not holds(late, step=2)


def test_stuck_names_the_steps_in_which_ranks_wait():
    stuck = scenario([backward(), step("a", "all_reduce", over="dp", only={"dp": [0]})], layout=DP2)
    assert holds(stuck, stuck=["a"]) and not holds(stuck, stuck=["backward"]) and not holds(stuck, stuck=[])


def test_blame_names_the_steps_at_fault():
    noisy = scenario(
        [backward(), MEAN, step("noise", "leftover", what="n"), step("later", "scale", by="1")], layout=DP2
    )
    assert holds(noisy, blame=["noise"]) and not holds(noisy, blame=["mean"]) and not holds(noisy, blame=[])
    assert not holds(noisy, blame=["noise", "later"])


def test_test_fails_when_anything_named_differs_and_check_ignores_it_for_its_exit_status():
    wrong = scenario([backward()], layout=DP2)
    for content, verdict, of_test, of_check in (
        (RIGHT, "match", 0, 0),
        (RIGHT, "mismatch", 1, 0),
        (wrong, "mismatch", 0, 1),
        (wrong, "match", 1, 1),
    ):
        path = write({**content, "expect": {"verdict": verdict}}, "status.json")
        assert (run("test", path).returncode, run("check", path).returncode) == (of_test, of_check)
    # Everything that is not named may be as it is.
    assert holds(THREE)
    # One wrong name among right ones is enough.
    assert not holds(THREE, parameters=["a", "c"], ranks=[0])
