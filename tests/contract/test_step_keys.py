# SPDX-License-Identifier: Apache-2.0
"""The section "schedule" of the scenario format: the keys of a step."""

from contract_program import (
    W,
    assert_held,
    backward,
    check,
    check_all,
    each,
    message,
    messages,
    owned,
    parameter,
    scenario,
    show,
    step,
    verdicts,
)

MEAN = step("mean", "all_reduce", over="dp", reduce="avg")
SCATTER = step("scatter", "reduce_scatter", over="dp")
OWN = step("own_all", "own", over=[])
DP2 = {"dp": 2}


def on_two_ranks(*steps, **keys):
    return check(scenario([backward(), *steps], layout=DP2, **keys))


def test_every_step_but_wait_has_a_unique_name():
    assert '"name"' in message(scenario([backward(), {"op": "zero"}]))
    assert '"mean"' in message(scenario([backward(), MEAN, MEAN], layout=DP2))
    assert '"backward"' in message(scenario([backward(), step("backward", "zero")]))
    flying = {**MEAN, "async": True}
    assert verdicts(
        scenario([backward(), flying, {"op": "wait", "for": "mean"}], layout=DP2),
        scenario([backward(), flying, {"op": "wait", "for": "mean", "name": "join"}], layout=DP2),
    ) == ["match", "match"]


def test_params_are_all_by_default_and_every_key_of_the_list_is_known():
    two = [W, parameter("v", [4])]
    report = check(scenario([backward(), step("s", "scale", by="2")], two))
    assert_held(report, "w", {0: "2: g0"})
    assert_held(report, "v", {0: "2: g0"})
    report = check(scenario([backward(), step("s", "scale", by="2", params=["v"])], two))
    assert_held(report, "w", {0: "g0"})
    assert_held(report, "v", {0: "2: g0"})
    everything = {
        "params": ["w"],
        "over": "dp",
        "reduce": "avg",
        "when": "true",
        "only": {"dp": [0, 1]},
        "geometry": {"kind": "rows"},
        "on": "all",
        "async": False,
        "buffer": "grad",
    }
    assert verdicts(scenario([backward(), step("scatter", "reduce_scatter", **everything)], layout=DP2)) == ["match"]
    # Another buffer is another: grad stays as it was.
    report = on_two_ranks(step("s", "scale", by="2", buffer="other"))
    assert_held(report, "w", {0: "g0", 1: "g1"})


def test_every_collective_but_norm_needs_over():
    for op, keys in {
        "all_reduce": {},
        "reduce_scatter": {},
        "all_gather": {},
        "broadcast": {"root": 0},
        "reduce": {"root": 0},
        "own": {},
        "all_to_all": {},
    }.items():
        assert '"over"' in message(scenario([backward(), step("x", op, **keys)], layout=DP2))
    assert verdicts(scenario([backward(), step("x", "norm")])) == ["match"]


def groups(over, layout):
    return show(scenario([backward(), step("meet", "all_to_all", over=over)], layout=layout))["groups"]["steps"]["meet"]


def test_over_names_axes_of_one_mesh_or_picks():
    layout = {"tp": 2, "dp": 2, "pp": 3}  # rank = tp + 2 dp + 4 pp
    assert groups("dp", layout) == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11]]
    assert groups(["dp", "tp"], layout) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert groups("edp", {"dp": 4, "ep": 2}) == [[0, 2], [1, 3]]
    assert groups({"pp": ["first", "last"]}, layout) == [[0, 8], [1, 9], [2, 10], [3, 11]]
    assert groups({"pp": ["first", "last"], "dp": "all"}, layout) == [[0, 2, 8, 10], [1, 3, 9, 11]]
    assert groups({"pp": [1]}, layout) == [[4], [5], [6], [7]]
    assert groups({"dp": [1], "tp": "all"}, layout) == [[2, 3], [6, 7], [10, 11]]
    for mixed in (["tp", "edp"], ["dp", "ep"], {"cp": "all", "etp": "all"}):
        assert "mesh" in message(
            scenario([backward(), step("x", "all_reduce", over=mixed)], layout={"tp": 2, "dp": 2, "etp": 2})
        )
    assert messages(scenario([backward(), step("x", "all_reduce", over={"pp": [3]})], layout=layout))
    assert messages(scenario([backward(), step("x", "all_reduce", over="edq")], layout=layout))


def test_ranks_outside_a_pick_do_not_call():
    everywhere = [parameter("w", [4], stage="all")]
    report = check(
        scenario([backward(), step("ends", "all_reduce", over={"pp": ["first", "last"]})], everywhere, {"pp": 3})
    )
    assert_held(report, "w", {0: "g0 g2", 1: "g1", 2: "g0 g2"})


def test_first_and_last_are_one_where_the_axis_has_size_1():
    assert groups({"pp": ["first", "last"]}, {"dp": 2}) == [[0], [1]]
    report = on_two_ranks(step("ends", "all_reduce", over={"pp": ["first", "last"]}), MEAN)
    assert report["verdict"] == "match"


def test_a_group_is_its_set_of_ranks_in_ascending_order():
    # Slices go by rank, whatever the order in which the axes are written.
    layout = {"tp": 2, "dp": 2}
    for over in (["dp", "tp"], ["tp", "dp"], {"dp": "all", "tp": "all"}):
        assert groups(over, layout) == [[0, 1, 2, 3]]
        report = check(scenario([backward(), step("mine", "own", over=over)], layout=layout))
        assert owned(report, "w") == {rank: [[rank, rank + 1]] for rank in range(4)}
    report = check(
        scenario(
            [backward(), step("send", "broadcast", over=["dp", "tp"], root=1)],
            [parameter("w", [4], partial=["tp"])],
            layout,
        )
    )
    assert_held(report, "w", {rank: "g1" for rank in range(4)})


def test_pp_goes_with_either_mesh():
    assert groups(["tp", "pp"], {"tp": 2, "pp": 2}) == [[0, 1, 2, 3]]
    assert groups(["ep", "pp"], {"dp": 4, "ep": 2, "pp": 2}) == [[0, 1, 4, 5], [2, 3, 6, 7]]


def test_a_rank_on_which_the_selectors_match_nothing_does_not_call():
    # w is on stage 0 only: over dp stage 1 is not missed, over pp it is.
    layout = {"dp": 2, "pp": 2}
    two = [W, parameter("v", [4], stage=1)]
    quiet = scenario(
        [
            backward(),
            step("mean_w", "all_reduce", over="dp", reduce="avg", params=["w"]),
            step("mean_v", "all_reduce", over="dp", reduce="avg", params=["v"]),
        ],
        two,
        layout,
    )
    missed = scenario([backward(), step("mean_w", "all_reduce", over="pp", params=["w"])], two, layout)
    assert verdicts(quiet, missed) == ["match", "deadlock"]


def test_a_group_of_one_is_the_identity():
    steps = [
        step("a", "all_reduce", over="tp"),
        step("b", "all_reduce", over="tp", reduce="avg"),
        step("c", "broadcast", over="tp", root=0),
        step("d", "reduce", over="tp", root=0),
        step("e", "reduce_scatter", over="tp"),
        step("f", "all_gather", over="tp"),
        step("g", "all_to_all", over="tp"),
        step("h", "own", over="tp"),
        MEAN,
    ]
    report = on_two_ranks(*steps)
    assert report["verdict"] == "match"
    assert owned(report, "w") == {0: [[0, 4]], 1: [[0, 4]]}
    # Nothing to meet, whoever calls.
    assert verdicts(scenario([backward(), step("a", "all_reduce", over="tp", only={"dp": [0]}), MEAN], layout=DP2)) == [
        "match"
    ]


def test_when_and_only_leave_ranks_out():
    report = on_two_ranks(step("s", "scale", by="2", when="rank.dp == 1"), step("t", "scale", by="3", only={"dp": [0]}))
    assert_held(report, "w", {0: "3: g0", 1: "2: g1"})
    everywhere = [parameter("w", [4], stage="all")]
    report = check(
        scenario(
            [
                backward(),
                step("s", "scale", by="2", only={"pp": [0, "last"]}),
                step("t", "scale", by="5", only={"pp": ["first"]}),
                step("u", "scale", by="7", only={"pp": [1], "dp": [1]}),
            ],
            everywhere,
            {"pp": 3, "dp": 2},
        )
    )
    assert_held(report, "w", {0: "10: g0", 1: "10: g1", 2: "g2", 3: "7: g3", 4: "2: g4", 5: "2: g5"})
    # Both together: where both hold.
    report = on_two_ranks(step("s", "scale", by="2", when="rank.dp == 1", only={"dp": [0]}))
    assert_held(report, "w", {0: "g0", 1: "g1"})


def test_on_an_each_when_and_only_hold_for_its_whole_body_and_are_evaluated_once():
    body = [step("backward", "backward"), step("noise", "leftover", what="n")]
    for keys in ({"when": "rank.dp == 1"}, {"only": {"dp": [1]}}):
        report = check(scenario([each(*body, **keys)], layout=DP2, batch={"micro_batches": 2}))
        assert_held(report, "w", {0: "", 1: "1: g1 g1.1; 2: n"})
    # Evaluated once, outside of any micro-batch: its number is not known there.
    assert "micro_batch" in message(scenario([each(*body, when="micro_batch == 0")]))
    # Of a step inside, it is evaluated in each.
    report = check(scenario([each(step("backward", "backward", when="micro_batch == 1"))], batch={"micro_batches": 2}))
    assert_held(report, "w", {0: "g0.1"})


def test_root_has_no_default_and_is_a_position_in_the_group_or_coordinates():
    for op in ("broadcast", "reduce"):
        assert '"root"' in message(scenario([backward(), step("x", op, over="dp")], layout=DP2))
    layout = {"dp": 2, "pp": 2}  # rank = dp + 2 pp
    everywhere = [parameter("w", [4], stage="all")]
    by_position = check(
        scenario([backward(), step("send", "broadcast", over=["dp", "pp"], root=2)], everywhere, layout)
    )
    by_axis = check(scenario([backward(), step("send", "broadcast", over="pp", root={"pp": 1})], everywhere, layout))
    by_end = check(
        scenario(
            [
                backward(),
                step("send", "broadcast", over={"pp": ["first", "last"], "dp": "all"}, root={"pp": "last", "dp": 0}),
            ],
            everywhere,
            layout,
        )
    )
    assert_held(by_position, "w", {rank: "g2" for rank in range(4)})
    assert_held(by_axis, "w", {0: "g2", 1: "g3", 2: "g2", 3: "g3"})
    assert_held(by_end, "w", {rank: "g2" for rank in range(4)})
    assert messages(scenario([backward(), step("send", "broadcast", over="dp", root=2)], layout=DP2))
    assert messages(
        scenario([backward(), step("send", "broadcast", over=["dp", "pp"], root={"pp": 0})], everywhere, layout)
    )


def test_on_owned_acts_on_what_the_rank_owns_alone():
    stale = {0: "g0", 1: "g1"}

    def after(*steps):
        return on_two_ranks(SCATTER, *steps, OWN)

    # What is owned after the scatter: rank 0 [0,2), rank 1 [2,4), both the sum.
    cases = {
        "scale": (step("x", "scale", by="3", on="owned"), {0: "3: g0 g1", 1: "3: g0 g1"}),
        "zero": (step("x", "zero", on="owned"), {0: "", 1: ""}),
        "leftover": (step("x", "leftover", what="n", on="owned"), {0: "g0 g1 n", 1: "g0 g1 n"}),
        "accumulate": (step("x", "accumulate", on="owned", **{"from": "grad"}), {0: "2: g0 g1", 1: "2: g0 g1"}),
        "copy": (step("x", "copy", on="owned", **{"from": "fresh"}), {0: "", 1: ""}),
    }
    for one, expected in cases.values():
        report = after(one)
        assert_held(
            report, "w", {0: {"[0,2)": expected[0], "[2,4)": stale[0]}, 1: {"[0,2)": stale[1], "[2,4)": expected[1]}}
        )


def test_on_owned_collectives_go_by_position_in_what_each_owns():
    # rank 0's [0,2) meets rank 1's [2,4): elements that have nothing to do with each other.
    report = on_two_ranks(SCATTER, step("x", "all_reduce", over="dp", on="owned"))
    assert_held(report, "w", {0: "g0 g1 g0!w g1!w", 1: "g0 g1 g0!w g1!w"})
    report = on_two_ranks(SCATTER, step("x", "broadcast", over="dp", on="owned", root=0), OWN)
    assert_held(report, "w", {0: {"[0,2)": "g0 g1", "[2,4)": "g0"}, 1: {"[0,2)": "g1", "[2,4)": "g0!w g1!w"}})
    report = on_two_ranks(SCATTER, step("x", "reduce", over="dp", on="owned", root=0))
    assert_held(report, "w", {0: "g0 g1 g0!w g1!w"})


def test_on_owned_sizes_must_agree():
    uneven = step("scatter", "reduce_scatter", over="dp", geometry={"kind": "flat", "align": 6})  # 3 and 1 elements
    for op, keys in {"all_reduce": {}, "broadcast": {"root": 0}, "reduce": {"root": 0}, "reduce_scatter": {}}.items():
        assert verdicts(scenario([backward(), uneven, step("x", op, over="dp", on="owned", **keys)], layout=DP2)) == [
            "invalid_collective"
        ]


def test_a_reduce_scatter_on_owned_cuts_what_is_owned():
    # dp_shard first: [0,4) and [4,8). Then dp_replicate cuts each half into quarters of the whole.
    layout = {"dp_shard": 2, "dp_replicate": 2}
    steps = [
        backward(),
        step("one", "reduce_scatter", over="dp_shard", reduce="avg"),
        step("two", "reduce_scatter", over="dp_replicate", reduce="avg", on="owned"),
    ]
    report = check(scenario(steps, [parameter("w", [8])], layout))
    assert report["verdict"] == "match"
    assert owned(report, "w") == {0: [[0, 2]], 1: [[4, 6]], 2: [[2, 4]], 3: [[6, 8]]}
    # The gathers undo them, last one first.
    steps += [step("gather", "all_gather", over="dp_replicate")]
    report = check(scenario(steps, [parameter("w", [8])], layout))
    assert report["verdict"] == "match"
    assert owned(report, "w") == {0: [[0, 4]], 1: [[4, 8]], 2: [[0, 4]], 3: [[4, 8]]}


def test_own_on_owned_cuts_what_is_owned():
    layout = {"dp_shard": 2, "dp_replicate": 2}
    steps = [
        backward(),
        step("mean", "all_reduce", over="dp", reduce="avg"),
        step("one", "own", over="dp_shard"),
        step("two", "own", over="dp_replicate", on="owned"),
    ]
    report = check(scenario(steps, [parameter("w", [8])], layout))
    assert report["verdict"] == "match"
    assert owned(report, "w") == {0: [[0, 2]], 1: [[4, 6]], 2: [[2, 4]], 3: [[6, 8]]}


def test_on_all_is_the_default_the_whole_buffer():
    default, given = check_all(
        [
            scenario([backward(), SCATTER, step("x", "scale", by="2", **keys), OWN], layout=DP2)
            for keys in ({}, {"on": "all"})
        ]
    )
    for report in (default, given):
        assert_held(
            report, "w", {0: {"[0,2)": "2: g0 g1", "[2,4)": "2: g0"}, 1: {"[0,2)": "2: g1", "[2,4)": "2: g0 g1"}}
        )
    assert messages(scenario([backward(), step("x", "zero", on="mine")]))


def test_backward_on_owned_adds_to_what_is_owned_alone():
    steps = [step("mine", "own", over="dp"), backward(on="owned"), OWN]
    report = check(scenario(steps, layout=DP2))
    assert_held(report, "w", {0: {"[0,2)": "g0", "[2,4)": ""}, 1: {"[0,2)": "", "[2,4)": "g1"}})


def test_result_names_the_buffer_that_the_optimizer_reads():
    steps = [backward(), step("keep", "copy", **{"from": "grad", "to": "main_grad"}), step("spoil", "scale", by="5")]
    main, grad, default = check_all(
        [scenario(steps, result="main_grad"), scenario(steps, result="grad"), scenario(steps)]
    )
    assert [report["verdict"] for report in (main, grad, default)] == ["match", "mismatch", "mismatch"]
    assert_held(main, "w", {0: "g0"})
    assert_held(default, "w", {0: "5: g0"})


def test_ownership_belongs_to_a_parameter_on_a_rank_whatever_the_buffer():
    # Scattered in another buffer, owned in the result's.
    steps = [
        backward(buffer="other"),
        step("scatter", "reduce_scatter", over="dp", reduce="avg", buffer="other"),
        step("take", "copy", **{"from": "other"}),
    ]
    report = check(scenario(steps, layout=DP2))
    assert report["verdict"] == "match"
    assert owned(report, "w") == {0: [[0, 2]], 1: [[2, 4]]}
