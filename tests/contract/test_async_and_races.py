# SPDX-License-Identifier: Apache-2.0
"""The section "schedule" of the scenario format: asynchronous steps and races."""

from contract_program import W, assert_held, backward, check, each, parameter, scenario, step, verdicts

DP2 = {"dp": 2}
FLYING = step("mean", "all_reduce", over="dp", reduce="avg", params=["w"], **{"async": True})
WAIT = {"op": "wait", "for": "mean"}
TWO = [W, parameter("v", [4])]
REST = step("rest", "all_reduce", over="dp", reduce="avg", params=["v"])


def flight(*between, parameters=(W,), **keys):
    return scenario([backward(), FLYING, *between, WAIT], parameters, DP2, **keys)


def races(content):
    report = check(content)
    assert report["verdict"] == "race", report["verdict"]
    return [(entry["rank"], entry["step"], entry["in_flight"]) for entry in report["stuck"]]


def test_any_other_step_that_reads_or_writes_a_buffer_in_flight_is_a_race():
    # Each writes or reads `grad` of w on both ranks.
    touching = [
        step("x", "scale", by="2"),
        step("x", "zero"),
        step("x", "leftover", what="n"),
        step("x", "copy", **{"from": "other"}),
        step("x", "copy", **{"from": "grad", "to": "other"}),
        step("x", "accumulate", **{"from": "grad", "to": "other"}),
        step("x", "accumulate", **{"from": "other"}),
        step("x", "all_reduce", over="dp"),
        step("x", "reduce_scatter", over="dp"),
        step("x", "all_gather", over="dp"),
        step("x", "broadcast", over="dp", root=0),
        step("x", "reduce", over="dp", root=0),
        step("x", "norm"),
        step("x", "norm", over="dp"),
        {**each(step("x", "backward")), "name": "later"},
    ]
    for one in touching:
        name = one["steps"][0]["name"] if one["op"] == "each" else one["name"]
        assert races(flight(one)) == [(0, name, "mean"), (1, name, "mean")], one


def test_what_touches_another_buffer_another_parameter_or_no_buffer_is_no_race():
    harmless = [
        step("x", "scale", by="2", buffer="other"),
        step("x", "copy", **{"from": "other", "to": "third"}),
        step("x", "own", over=[]),
        step("x", "all_to_all", over="dp"),
        step("x", "norm", count="false"),
        REST,
        step("x", "scale", by="1", params=["v"]),
    ]
    for one in harmless:
        rest = [] if one is REST else [REST]
        assert check(scenario([backward(), FLYING, one, WAIT, *rest], TWO, DP2))["verdict"] in (
            "match",
            "mismatch",
        ), one
    assert verdicts(scenario([backward(), FLYING, REST, WAIT], TWO, DP2)) == ["match"]


def test_tied_parameters_on_one_rank_are_one_buffer_in_flight():
    tied = [parameter("w", [4], tied="t"), parameter("head", [4], tied="t")]
    assert races(flight(step("x", "scale", by="2", params=["head"]), parameters=tied)) == [
        (0, "x", "mean"),
        (1, "x", "mean"),
    ]


def test_the_wait_ends_it():
    assert verdicts(
        scenario([backward(), FLYING, WAIT, step("x", "scale", by="2"), step("y", "scale", by="1/2")], layout=DP2)
    ) == ["match"]


def test_async_is_for_any_op():
    for one in (
        step("fly", "scale", by="1", **{"async": True}),
        step("fly", "copy", **{"from": "grad", "to": "other", "async": True}),
        step("fly", "norm", **{"async": True}),
        step("fly", "accumulate", **{"from": "none", "async": True}),
    ):
        waiting = scenario([backward(), one, {"op": "wait", "for": "fly"}, step("x", "scale", by="1")])
        touching = scenario([backward(), one, step("x", "scale", by="1"), {"op": "wait", "for": "fly"}])
        assert verdicts(waiting, touching) == ["match", "race"], one
    inner = each(
        step("backward", "backward", **{"async": True}), {"op": "wait", "for": "backward"}, step("x", "scale", by="1")
    )
    assert verdicts(scenario([inner])) == ["match"]


def test_the_end_of_a_ranks_list_with_something_in_flight_is_a_race():
    report = check(scenario([backward(), FLYING], layout=DP2))
    assert report["verdict"] == "race"
    assert [(entry["rank"], entry["in_flight"]) for entry in report["stuck"]] == [(0, "mean"), (1, "mean")]
    # Of each optimizer step's list.
    report = check(
        scenario(
            [step("zero", "zero"), backward(), {**FLYING, "when": "step == 1"}], batch={"steps": 3}, layout={"dp": 1}
        )
    )
    assert (report["verdict"], report["step"]) == ("race", 1)
    # On the ranks that have it in flight.
    report = check(scenario([backward(), FLYING, {**WAIT, "only": {"dp": [0]}}], layout=DP2))
    assert [(entry["rank"], entry["in_flight"]) for entry in report["stuck"]] == [(1, "mean")]


def test_starting_it_again_before_its_wait_is_a_race():
    flying = {**FLYING, "over": "dp"}
    content = scenario(
        [each(step("backward", "backward", uses=["main"], params=["v"]), flying), WAIT], TWO, DP2, {"micro_batches": 2}
    )
    assert races(content) == [(0, "mean", "mean"), (1, "mean", "mean")]
    # Even one that touches no buffer.
    tokens = each(step("backward", "backward"), step("tokens", "all_to_all", over="dp", **{"async": True}))
    content = scenario([tokens, {"op": "wait", "for": "tokens"}, REST], TWO, DP2, {"micro_batches": 2})
    assert races(content) == [(0, "tokens", "tokens"), (1, "tokens", "tokens")]
    # With a wait in between it may.
    assert verdicts(
        scenario(
            [
                each(
                    step("backward", "backward"),
                    step("tokens", "all_to_all", over="dp", **{"async": True}),
                    {"op": "wait", "for": "tokens"},
                ),
                step("mean", "all_reduce", over="dp", reduce="avg"),
                step("half", "scale", by="1/2"),
            ],
            layout=DP2,
            batch={"micro_batches": 2},
        )
    ) == ["match"]


def test_a_race_lists_every_rank_that_races_at_the_first_time_at_which_any_does():
    all_at_once = flight(step("x", "scale", by="2", when="rank.dp == 0 or rank.dp == 1"))
    assert races(all_at_once) == [(0, "x", "mean"), (1, "x", "mean")]
    one_after_the_other = flight(step("x", "scale", by="2", only={"dp": [1]}), step("y", "scale", by="2"))
    assert races(one_after_the_other) == [(1, "x", "mean")]


def test_a_race_says_what_was_touched():
    entry = check(flight(step("x", "scale", by="2")))["stuck"][0]
    assert set(entry) == {"rank", "step", "touches", "in_flight"}
    assert "w" in entry["touches"] and "grad" in entry["touches"]


def test_a_race_is_on_one_rank_alone_and_needs_no_meeting():
    # Rank 1 never comes to the collective, but rank 0 has touched its own buffer before that shows.
    content = scenario(
        [backward(), {**FLYING, "only": {"dp": [0]}}, step("x", "scale", by="2", only={"dp": [0]}), WAIT], layout=DP2
    )
    assert races(content) == [(0, "x", "mean")]


def test_a_rank_stuck_in_a_wait_is_listed_with_the_step_it_waits_for():
    report = check(scenario([backward(), {**FLYING, "only": {"dp": [0, 2]}}, WAIT], layout={"dp": 3}))
    assert report["verdict"] == "deadlock"
    assert report["stuck"] == [{"rank": 0, "waits_in": "mean", "for": [1]}, {"rank": 2, "waits_in": "mean", "for": [1]}]


def test_an_asynchronous_collective_is_met_without_waiting():
    # Rank 0 starts v and w before it waits, rank 1 waits for each at once: the same order, so they meet.
    first, second = {"only": {"dp": [0]}}, {"only": {"dp": [1]}}
    other = step("other", "all_reduce", over="dp", reduce="avg", params=["v"], **{"async": True})
    wait_other = {"op": "wait", "for": "other"}
    steps = [
        backward(),
        FLYING,
        {**WAIT, **second},
        other,
        {**wait_other, **second},
        {**wait_other, **first},
        {**WAIT, **first},
    ]
    report = check(scenario(steps, TWO, DP2))
    assert report["verdict"] == "match"
    assert_held(report, "w", {0: "1/2: g0 g1", 1: "1/2: g0 g1"})


def test_a_step_that_touches_several_buffers_in_flight_races_with_each_and_so_does_the_end_of_the_list():
    start_v = step("start_v", "scale", by="1", params=["v"], **{"async": True})
    start_w = step("start_w", "scale", by="1", params=["w"], **{"async": True})
    both = [(rank, "x", name) for rank in (0, 1) for name in ("start_v", "start_w")]
    assert races(scenario([backward(), start_v, start_w, step("x", "zero")], TWO, DP2)) == both
    at_the_end = [(rank, "", name) for rank, _, name in both]
    assert races(scenario([backward(), start_v, start_w], TWO, DP2)) == at_the_end
