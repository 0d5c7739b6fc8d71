# SPDX-License-Identifier: Apache-2.0
"""The section "schedule" of the scenario format: its first paragraph and the table of ops.

`OWN` makes every rank own its whole buffer, so that the report shows the stale elements too.
"""

from contract_program import (
    W,
    assert_held,
    backward,
    check,
    check_all,
    each,
    form,
    held,
    message,
    messages,
    owned,
    parameter,
    scenario,
    show,
    step,
    verdicts,
)

OWN = step("own_all", "own", over=[])
MEAN = step("mean", "all_reduce", over="dp", reduce="avg")
SCATTER = step("scatter", "reduce_scatter", over="dp")
DP2 = {"dp": 2}


def on_two_ranks(*steps, **keys):
    """After backward on dp 2: a report of steps that end with every rank owning all."""
    return check(scenario([backward(), *steps], layout=DP2, **keys))


def test_a_schedule_is_a_framework_with_options_or_a_list_of_steps_and_edits_in_both_cases():
    edits = [
        {"insert": step("extra", "scale", by="3"), "after": "zero"},
        {"insert": step("last", "scale", by="2"), "after": "extra"},
    ]
    listed = scenario([step("zero", "zero"), backward(), MEAN], layout=DP2, edits=edits)
    framework = {
        **listed,
        "schedule": {"framework": "megatron", "options": {"ddp_average_in_collective": True}, "edits": edits},
    }
    assert verdicts(listed, framework) == ["match", "match"]
    names = [entry.get("name") for entry in show(framework)["steps"]]
    assert names[:3] == ["zero", "extra", "last"]
    assert verdicts(
        {**listed, "schedule": {**listed["schedule"], "edits": [{**edits[1], "after": "micro_batches"}]}}
    ) == ["mismatch"]
    both = {**listed, "schedule": {"framework": "megatron", "steps": []}}
    assert messages(both)
    assert messages({**listed, "schedule": {}})
    assert messages({**listed, "schedule": {"steps": [backward()], "options": {"zero_stage": 1}}})


def test_steps_run_in_order_on_every_rank():
    before = on_two_ranks(step("double", "scale", by="2", only={"dp": [0]}), MEAN)
    after = on_two_ranks(MEAN, step("double", "scale", by="2", only={"dp": [0]}))
    assert_held(before, "w", {0: "1: g0; 1/2: g1", 1: "1: g0; 1/2: g1"})
    assert_held(after, "w", {0: "g0 g1", 1: "1/2: g0 g1"})


def test_with_several_optimizer_steps_the_list_runs_once_for_each_and_buffers_live_on():
    batch = {"steps": 2, "loss": "sum"}
    report = check(scenario([backward()], batch=batch))
    assert (report["verdict"], report["step"]) == ("mismatch", 1)
    assert_held(report, "w", {0: "g0 g0.1"})
    # A second buffer lives on as well.
    steps = [
        step("zero", "zero"),
        backward(),
        step("add_older", "accumulate", **{"from": "older"}),
        step("keep", "copy", **{"from": "grad", "to": "older"}),
    ]
    report = check(scenario(steps, batch=batch))
    assert (report["verdict"], report["step"]) == ("mismatch", 1)
    assert_held(report, "w", {0: "g0 g0.1"})
    assert verdicts(scenario([step("zero", "zero"), backward()], batch=batch)) == ["match"]


def test_ownership_is_whole_again_at_the_start_of_each_optimizer_step():
    # Scattered in step 0; in step 1 the gradient is averaged and every rank owns all of it.
    steps = [
        step("zero", "zero"),
        backward(),
        step("scatter", "reduce_scatter", over="dp", reduce="avg", when="step == 0"),
        step("mean", "all_reduce", over="dp", reduce="avg", when="step == 1"),
    ]
    report = check(scenario(steps, layout=DP2, batch={"steps": 2}))
    assert (report["verdict"], report["step"]) == ("match", 1)
    assert owned(report, "w") == {0: [[0, 4]], 1: [[0, 4]]}


def test_backward_adds_the_local_gradient_times_by_and_uses_limits_it():
    report = on_two_ranks()
    assert_held(report, "w", {0: "g0", 1: "g1"})
    # Of the current micro-batch: each iteration adds its own.
    report = check(
        scenario([backward(by="micro_batch + 1")], batch={"micro_batches": 3, "loss": {"weight": "micro_batch + 1"}})
    )
    assert report["verdict"] == "match"
    assert_held(report, "w", {0: "g0 g0.1 g0.2"})
    # It adds: twice is twice, relative to what the last one added.
    report = check(
        scenario([each(step("one", "backward", by="3"), step("two", "backward", by="2"))], batch={"loss": "sum"})
    )
    assert_held(report, "w", {0: "5/2: g0"})
    two = [parameter("w", [4], uses=["main", "aux"])]
    report = check(scenario([backward(uses=["aux"])], two))
    assert report["verdict"] == "mismatch"
    assert_held(report, "w", {0: "g0@aux"})


def test_by_of_backward_is_not_0():
    assert "0" in message(scenario([backward(by="0")]))
    assert "rank 1" in message(scenario([backward(by="1 - rank.dp")], layout=DP2))


def test_scale_multiplies_the_whole_local_buffer_stale_elements_too_and_0_clears():
    report = on_two_ranks(SCATTER, step("scale", "scale", by="1/3"), OWN)
    assert_held(
        report, "w", {0: {"[0,2)": "1/3: g0 g1", "[2,4)": "1/3: g0"}, 1: {"[0,2)": "1/3: g1", "[2,4)": "1/3: g0 g1"}}
    )
    report = on_two_ranks(SCATTER, step("scale", "scale", by="0"), OWN)
    assert_held(report, "w", {0: "", 1: ""})


def test_all_reduce_gives_every_member_the_sum_or_average_of_the_buffers_stale_elements_too():
    default, total, mean, stale = check_all(
        [
            scenario([backward(), step("r", "all_reduce", over="dp")], layout=DP2),
            scenario([backward(), step("r", "all_reduce", over="dp", reduce="sum")], layout=DP2),
            scenario([backward(), MEAN], layout=DP2),
            scenario([backward(), SCATTER, step("r", "all_reduce", over="dp"), OWN], layout=DP2),
        ]
    )
    for report in (default, total):
        assert_held(report, "w", {0: "g0 g1", 1: "g0 g1"})
    assert_held(mean, "w", {0: "1/2: g0 g1", 1: "1/2: g0 g1"})
    # [0,2): rank 0 has the sum, rank 1 its stale own; [2,4) the other way round.
    both = {"[0,2)": "1: g0; 2: g1", "[2,4)": "2: g0; 1: g1"}
    assert_held(stale, "w", {0: both, 1: both})


def test_reduce_scatter_gives_member_i_slice_i_and_the_rest_keeps_what_it_held():
    report = on_two_ranks(SCATTER)
    assert_held(report, "w", {0: "g0 g1", 1: "g0 g1"})
    assert owned(report, "w") == {0: [[0, 2]], 1: [[2, 4]]}
    report = on_two_ranks(SCATTER, OWN)
    assert_held(report, "w", {0: {"[0,2)": "g0 g1", "[2,4)": "g0"}, 1: {"[0,2)": "g1", "[2,4)": "g0 g1"}})
    report = on_two_ranks(step("scatter", "reduce_scatter", over="dp", reduce="avg"))
    assert report["verdict"] == "match"
    assert_held(report, "w", {0: "1/2: g0 g1", 1: "1/2: g0 g1"})


def test_reduce_scatter_owns_of_what_it_owned_only_its_slice():
    # Scattered by rows of 2 over dp_shard, then over dp_replicate (whole buffer, halves): what is owned is the intersection.
    layout = {"dp_shard": 2, "dp_replicate": 2}
    report = check(
        scenario(
            [
                backward(),
                step("one", "reduce_scatter", over="dp_shard"),
                step("two", "reduce_scatter", over="dp_replicate"),
            ],
            [parameter("w", [8])],
            layout,
        )
    )
    # Ranks: shard fastest. one: shard 0 has [0,4), shard 1 [4,8). two: replicate 0 has [0,4), replicate 1 [4,8).
    assert owned(report, "w") == {0: [[0, 4]], 3: [[4, 8]]}
    assert_held(report, "w", {0: "g0 g1 g2 g3", 3: "g0 g1 g2 g3"})


def test_all_gather_gives_every_member_each_slice_and_owns_all():
    report = on_two_ranks(
        step("scatter", "reduce_scatter", over="dp", reduce="avg"), step("gather", "all_gather", over="dp")
    )
    assert report["verdict"] == "match"
    assert_held(report, "w", {0: "1/2: g0 g1", 1: "1/2: g0 g1"})
    assert owned(report, "w") == {0: [[0, 4]], 1: [[0, 4]]}


def test_all_gather_uses_the_slices_of_the_last_reduce_scatter_of_the_parameter():
    # The bucket is rounded up to 128, so that all of w lies in the first slice; by its own geometry it would be halves.
    bucket = step("scatter", "reduce_scatter", over="dp", reduce="avg", geometry={"kind": "bucket"})
    assert verdicts(scenario([backward(), bucket, step("gather", "all_gather", over="dp")], layout=DP2)) == ["match"]
    # The last one counts.
    halves = step("halves", "reduce_scatter", over="dp", reduce="avg")
    report = on_two_ranks(bucket, OWN, halves, step("gather", "all_gather", over="dp"))
    # bucket: rank 0 mean, rank 1 stale g1. halves: [0,2) on rank 0 and [2,4) on rank 1 get (mean + g1)/2, and both get both.
    assert_held(report, "w", {0: "1/4: g0; 3/4: g1", 1: "1/4: g0; 3/4: g1"})
    # A parameter of several: each has its own cut.
    two = [parameter("a", [4]), parameter("b", [4])]
    flat = step("flat", "reduce_scatter", over="dp", reduce="avg", geometry={"kind": "flat"})
    report = check(scenario([backward(), flat, step("gather", "all_gather", over="dp", params=["b"])], two, DP2))
    assert report["verdict"] == "match"
    assert owned(report, "a") == {0: [[0, 4]]} and owned(report, "b") == {0: [[0, 4]], 1: [[0, 4]]}


def test_the_geometry_of_an_all_gather_lays_out_everything_that_it_selects():
    # a and b are eight elements in a row, four for each rank, so that all of b is rank 1's; by itself it would be halves.
    two = [parameter("a", [4]), parameter("b", [4])]
    scatter = step("scatter", "reduce_scatter", over="dp", params=["a"])
    gather = step("gather", "all_gather", over="dp", geometry={"kind": "flat"})
    report = check(scenario([backward(), scatter, gather], two, DP2))
    assert_held(report, "a", {0: "g0 g1", 1: "g0 g1"})
    assert_held(report, "b", {0: "g1", 1: "g1"})


def test_all_gather_needs_the_group_of_the_reduce_scatter():
    layout = {"dp_shard": 2, "dp_replicate": 2}
    text = message(
        scenario(
            [backward(), step("scatter", "reduce_scatter", over="dp_shard"), step("gather", "all_gather", over="dp")],
            layout=layout,
        )
    )
    assert "gather" in text and "scatter" in text
    # The group is a set of ranks: another spelling of the same one is the same.
    steps = [
        backward(),
        step("scatter", "reduce_scatter", over="dp", reduce="avg"),
        step("gather", "all_gather", over={"dp": "all"}),
    ]
    assert verdicts(scenario(steps, layout=DP2)) == ["match"]


def test_all_gather_without_a_reduce_scatter_uses_its_own_geometry():
    report = on_two_ranks(step("gather", "all_gather", over="dp"))
    halves = {"[0,2)": "g0", "[2,4)": "g1"}
    assert_held(report, "w", {0: halves, 1: halves})
    report = on_two_ranks(step("gather", "all_gather", over="dp", geometry={"kind": "flat", "align": 6}))
    by_three = {"[0,3)": "g0", "[3,4)": "g1"}
    assert_held(report, "w", {0: by_three, 1: by_three})
    # A reduce-scatter of an earlier optimizer step does not count: by its cut all of w would come from rank 0.
    steps = [
        step("zero", "zero"),
        backward(),
        step("scatter", "reduce_scatter", over="dp", reduce="avg", when="step == 0", geometry={"kind": "bucket"}),
        step("gather", "all_gather", over="dp"),
    ]
    report = check(scenario(steps, layout=DP2, batch={"steps": 2}))
    assert (report["verdict"], report["step"]) == ("mismatch", 1)
    halves = {"[0,2)": "g0.1", "[2,4)": "g1.1"}
    assert_held(report, "w", {0: halves, 1: halves})


def test_all_gather_of_several_parameters_cuts_each_as_it_was_scattered_or_by_its_own_geometry():
    # The bucket puts all of w into the first slice; v was not scattered, and goes by halves.
    two = [W, parameter("v", [4])]
    steps = [
        backward(),
        step("scatter", "reduce_scatter", over="dp", reduce="avg", params=["w"], geometry={"kind": "bucket"}),
        step("gather", "all_gather", over="dp"),
    ]
    report = check(scenario(steps, two, DP2))
    assert_held(report, "w", {0: "1/2: g0 g1", 1: "1/2: g0 g1"})
    halves = {"[0,2)": "g0", "[2,4)": "g1"}
    assert_held(report, "v", {0: halves, 1: halves})


def test_all_gather_owns_all_even_of_what_nobody_owned():
    report = on_two_ranks(MEAN, step("give_up", "reduce", over="dp", root=0), step("gather", "all_gather", over="dp"))
    assert owned(report, "w") == {0: [[0, 4]], 1: [[0, 4]]}


def test_all_gather_is_not_allowed_on_owned():
    assert "all_gather" in message(
        scenario([backward(), SCATTER, step("gather", "all_gather", over="dp", on="owned")], layout=DP2)
    )


def test_broadcast_gives_every_member_the_roots_buffer():
    report = on_two_ranks(step("send", "broadcast", over="dp", root=1))
    assert_held(report, "w", {0: "g1", 1: "g1"})


def test_broadcast_leaves_ownership_as_it_was():
    report = on_two_ranks(SCATTER, step("send", "broadcast", over="dp", root=0))
    # Rank 1 owns [2,4), where rank 0 held its stale own.
    assert_held(report, "w", {0: "g0 g1", 1: "g0"})
    assert owned(report, "w") == {0: [[0, 2]], 1: [[2, 4]]}


def test_reduce_gives_the_root_the_sum_and_the_others_own_nothing_and_keep_what_they_held():
    report = on_two_ranks(step("to_root", "reduce", over="dp", root=1, reduce="avg"))
    assert report["verdict"] == "match"
    assert_held(report, "w", {1: "1/2: g0 g1"})
    report = on_two_ranks(step("to_root", "reduce", over="dp", root=1), OWN)
    assert_held(report, "w", {0: "g0", 1: "g0 g1"})
    # The root keeps what it owned, which need not be all.
    report = on_two_ranks(SCATTER, step("to_root", "reduce", over="dp", root=1))
    assert owned(report, "w") == {1: [[2, 4]]}


def test_own_moves_no_data_and_member_i_owns_slice_i():
    report = on_two_ranks(MEAN, step("mine", "own", over="dp"))
    assert report["verdict"] == "match"
    assert owned(report, "w") == {0: [[0, 2]], 1: [[2, 4]]}
    report = on_two_ranks(step("mine", "own", over="dp", geometry={"kind": "flat", "align": 6}))
    assert owned(report, "w") == {0: [[0, 3]], 1: [[3, 4]]}
    assert_held(report, "w", {0: "g0", 1: "g1"})
    # It gives as well as takes: not the intersection with what was owned.
    report = on_two_ranks(SCATTER, step("other", "own", over="dp", geometry={"kind": "flat", "align": 6}))
    assert owned(report, "w") == {0: [[0, 3]], 1: [[3, 4]]}


def test_own_joins_the_members_that_call_it_and_nobody_has_to_meet():
    # Rank 1 does not call: it keeps all; rank 0 is a family of its own and nobody owns its second half.
    report = on_two_ranks(MEAN, step("mine", "own", over="dp", only={"dp": [0]}))
    assert report["verdict"] == "mismatch"
    assert owned(report, "w") == {0: [[0, 2]], 1: [[0, 4]]}
    assert [entry["unowned"] for entry in report["parameters"]] == [[[2, 4]]]


def test_own_over_nothing_owns_all():
    report = on_two_ranks(SCATTER, OWN)
    assert owned(report, "w") == {0: [[0, 4]], 1: [[0, 4]]}


def test_copy_and_accumulate_go_from_a_buffer_to_a_buffer_stale_elements_too():
    keep = step("keep", "copy", **{"from": "grad", "to": "kept"})
    report = on_two_ranks(SCATTER, keep, step("clear", "zero"), step("back", "copy", **{"from": "kept"}), OWN)
    assert_held(report, "w", {0: {"[0,2)": "g0 g1", "[2,4)": "g0"}, 1: {"[0,2)": "g1", "[2,4)": "g0 g1"}})
    # copy replaces, accumulate adds; `to` is grad where it is not given.
    replaced, added = on_two_ranks(keep, MEAN, step("c", "copy", **{"from": "kept"})), on_two_ranks(
        keep, MEAN, step("a", "accumulate", **{"from": "kept"})
    )
    assert_held(replaced, "w", {0: "g0", 1: "g1"})
    assert_held(added, "w", {0: "3/2: g0; 1/2: g1", 1: "1/2: g0; 3/2: g1"})


def test_a_buffer_never_written_is_0():
    assert_held(on_two_ranks(step("c", "copy", **{"from": "fresh"})), "w", {0: "", 1: ""})
    assert_held(on_two_ranks(step("a", "accumulate", **{"from": "fresh"})), "w", {0: "g0", 1: "g1"})
    assert_held(check(scenario([backward()], result="fresh")), "w", {0: ""})


def test_accumulate_onto_itself_doubles():
    report = on_two_ranks(step("a", "accumulate", **{"from": "grad", "to": "grad"}))
    assert_held(report, "w", {0: "2: g0", 1: "2: g1"})


def test_zero_clears():
    report = on_two_ranks(SCATTER, step("z", "zero"), OWN)
    assert_held(report, "w", {0: "", 1: ""})


def test_leftover_adds_one_unknown_per_element_and_what_equal_on_all_ranks_times_by():
    report = on_two_ranks(step("noise", "leftover", what="parameter"))
    assert_held(report, "w", {0: "g0 parameter", 1: "g1 parameter"})
    report = on_two_ranks(step("noise", "leftover", what="old", by="1/3"), MEAN)
    assert_held(report, "w", {0: "1/2: g0 g1; 1/3: old", 1: "1/2: g0 g1; 1/3: old"})
    # Equal on all ranks, so it can cancel; another `what` is another unknown.
    report = on_two_ranks(
        step("plus", "leftover", what="a"),
        MEAN,
        step("minus", "leftover", what="a", by="-1"),
        step("b", "leftover", what="b"),
    )
    assert_held(report, "w", {0: "1/2: g0 g1; 1: b", 1: "1/2: g0 g1; 1: b"})


def test_a_leftover_per_rank_is_different_on_each():
    report = on_two_ranks(step("noise", "leftover", what="old", per="rank"), MEAN)
    assert_held(report, "w", {0: "1/2: g0 g1 old@0 old@1", 1: "1/2: g0 g1 old@0 old@1"})


def test_norm_is_an_op():
    assert verdicts(scenario([backward(), MEAN, step("norm", "norm")], layout=DP2)) == ["match"]


def test_all_to_all_moves_no_gradient_touches_no_buffer_and_has_to_be_met():
    report = on_two_ranks(step("tokens", "all_to_all", over="dp"), MEAN)
    assert report["verdict"] == "match"
    report = on_two_ranks(step("tokens", "all_to_all", over="dp", only={"dp": [0]}), MEAN)
    # Rank 1 comes with the all-reduce instead.
    assert report["verdict"] == "invalid_collective"
    report = on_two_ranks(step("tokens", "all_to_all", over="dp", only={"dp": [0]}))
    assert report["verdict"] == "deadlock"
    # No buffer: no race with what is in flight.
    assert verdicts(
        scenario(
            [
                backward(),
                step("mean", "all_reduce", over="dp", reduce="avg", **{"async": True}),
                step("tokens", "all_to_all", over="dp"),
                {"op": "wait", "for": "mean"},
            ],
            layout=DP2,
        )
    ) == ["match"]


def test_wait_ends_the_asynchronous_step_and_with_nothing_in_flight_does_nothing():
    flying = step("mean", "all_reduce", over="dp", reduce="avg", **{"async": True})
    wait = {"op": "wait", "for": "mean"}
    scaled = [step("twice", "scale", by="2"), step("half", "scale", by="1/2")]
    assert verdicts(
        scenario([backward(), flying, wait, *scaled], layout=DP2),
        scenario([backward(), flying, *scaled, wait], layout=DP2),
        scenario([backward(), wait, flying, wait, wait], layout=DP2),
    ) == ["match", "race", "match"]
    assert '"mean"' in message(scenario([backward(), flying, {"op": "wait", "for": "maen"}], layout=DP2))


def test_each_runs_its_steps_once_per_micro_batch_and_not_inside_another():
    report = check(
        scenario(
            [each(step("backward", "backward"), step("noise", "leftover", what="n", by="micro_batch"))],
            batch={"micro_batches": 3, "loss": "sum"},
        )
    )
    assert_held(report, "w", {0: "1: g0 g0.1 g0.2; 3: n"})
    nested = each(each(step("backward", "backward")))
    nested["steps"][0]["name"] = "inner"
    assert messages(scenario([nested]))
    # A backward outside each has no current micro-batch.
    assert messages(scenario([step("backward", "backward")]))


def test_every_op_of_the_table_is_known_and_no_other():
    assert "all_reduce" in message(scenario([backward(), step("x", "allreduce", over="dp")]))
    assert held(on_two_ranks(), "w") == {0: form("g0"), 1: form("g1")}
